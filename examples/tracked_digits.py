"""The plain loop with a tracker: accuracy, beta, anchors, weights and deviation gap per epoch; figures at the end.

python examples/tracked_digits.py tensorboard     # or mlflow, wandb, trackio; then e.g. tensorboard --logdir logs
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from vista import Vista, indexed
from vista.data.holdout import holdout
from vista.integrations.trackers import Watch
from vista.noise import symmetric

EPOCHS = 15


def load_data():
    """Digits: a training set with 40 % wrong labels, and a clean test set."""
    digits = load_digits()
    x, y = torch.from_numpy(digits.data).float() / 16, digits.target
    given = symmetric(y[:1300], num_classes=10, rate=0.4, seed=0)
    return TensorDataset(x[:1300], torch.from_numpy(given)), given, x[1300:], torch.from_numpy(y[1300:])


def create_tracker(name):
    if name == "tensorboard":
        from vista.integrations.trackers.tensorboard import TensorBoard

        return TensorBoard("logs/digits")
    if name == "mlflow":
        from vista.integrations.trackers.mlflow import MLflow

        return MLflow("digits", uri="sqlite:///logs.db")
    if name == "wandb":
        from vista.integrations.trackers.wandb import WandB

        return WandB("digits")  # offline: `wandb sync` uploads it
    from vista.integrations.trackers.trackio import Trackio

    return Trackio("digits")


def main(name):
    torch.manual_seed(0)
    dataset, labels, _, _ = load_data()
    train, val, labels, val_labels = holdout(dataset, labels, fraction=0.1, seed=0)
    loader = DataLoader(indexed(train), batch_size=32, shuffle=True)
    val_x = torch.stack([x for x, _ in val])
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    vista = Vista(labels, num_classes=10, epochs=EPOCHS, val_labels=val_labels, tau=0.01)
    watch = Watch(create_tracker(name), val_labels)
    for _ in vista.epochs():
        for x, _, i in loader:
            optimizer.zero_grad()
            vista.loss(model(x), i).backward()
            optimizer.step()
        with torch.no_grad():
            logits = model(val_x)
        watch.epoch(vista.end_epoch(logits), logits)
    watch.close()
    print(f"logged {EPOCHS} epochs to {name}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "tensorboard")
