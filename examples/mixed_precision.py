"""Mixed precision, gradient accumulation, clipping, workers, class weights, missing labels.

python examples/mixed_precision.py
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from vista import Vista, indexed
from vista.data.holdout import holdout
from vista.noise import symmetric

EPOCHS, ACCUMULATE = 15, 2


def load_data():
    """Digits: a training set with 40 % wrong labels, and a clean test set."""
    digits = load_digits()
    x, y = torch.from_numpy(digits.data).float() / 16, digits.target
    given = symmetric(y[:1300], num_classes=10, rate=0.4, seed=0)
    return TensorDataset(x[:1300], torch.from_numpy(given)), given, x[1300:], torch.from_numpy(y[1300:])


def main():
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    half = torch.float16 if device == "cuda" else torch.bfloat16
    dataset, labels, test_x, test_y = load_data()
    labels[::10] = -1  # unlabelled: from the first teacher on, the teacher is their target
    train, val, labels, val_labels = holdout(dataset, labels, fraction=0.1, seed=0)
    loader = DataLoader(indexed(train), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    val_x = torch.stack([x for x, _ in val]).to(device)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler(device, enabled=half is torch.float16)

    counts = torch.from_numpy(labels[labels >= 0]).bincount(minlength=10)
    class_weight = (counts.sum() / (10 * counts)).to(device)  # rare classes weigh more
    vista = Vista(labels, num_classes=10, epochs=EPOCHS, val_labels=val_labels, tau=0.01)
    for epoch in vista.epochs():
        for step, (x, _, i) in enumerate(loader, 1):
            with torch.autocast(device, dtype=half):
                logits = model(x.to(device))
            loss = vista.loss(logits, i, class_weight=class_weight)  # computed in float32
            scaler.scale(loss / ACCUMULATE).backward()
            if step % ACCUMULATE == 0 or step == len(loader):
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 5.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        with torch.no_grad():
            summary = vista.end_epoch(model(val_x))
            accuracy = (model(test_x.to(device)).argmax(1).cpu() == test_y).float().mean()
        print(f"epoch {epoch:2}  test {accuracy:.3f}  beta {summary.beta:.2f}  anchors {len(summary.anchors)}")


if __name__ == "__main__":
    main()
