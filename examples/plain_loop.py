"""The plain loop: five lines of VISTA in a PyTorch loop. Digits, 40 % of the labels wrong.

python examples/plain_loop.py
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from vista import Vista, indexed
from vista.data.holdout import holdout
from vista.noise import symmetric

EPOCHS = 15


def load_data():
    """Digits: a training set with 40 % wrong labels, and a clean test set."""
    digits = load_digits()
    x, y = torch.from_numpy(digits.data).float() / 16, digits.target
    given = symmetric(y[:1300], num_classes=10, rate=0.4, seed=0)
    return TensorDataset(x[:1300], torch.from_numpy(given)), given, x[1300:], torch.from_numpy(y[1300:])


def main():
    torch.manual_seed(0)
    dataset, labels, test_x, test_y = load_data()
    train, val, labels, val_labels = holdout(dataset, labels, fraction=0.1, seed=0)  # no separate validation set
    loader = DataLoader(indexed(train), batch_size=32, shuffle=True)  # (x, y) -> (x, y, i)
    val_loader = DataLoader(val, batch_size=256)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    vista = Vista(labels, num_classes=10, epochs=EPOCHS, val_labels=val_labels, tau=0.01)
    for epoch in vista.epochs():
        model.train()
        for x, _, i in loader:
            loss = vista.loss(model(x), i)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
        model.eval()
        with torch.no_grad():
            summary = vista.end_epoch(torch.cat([model(x) for x, _ in val_loader]))
            accuracy = (model(test_x).argmax(1) == test_y).float().mean()
        print(f"epoch {epoch:2}  test {accuracy:.3f}  beta {summary.beta:.2f}  anchors {sorted(summary.anchors)}")


if __name__ == "__main__":
    main()
