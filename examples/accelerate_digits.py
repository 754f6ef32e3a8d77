"""Accelerate: prepare() and register_for_checkpointing(), with one process or several.

python examples/accelerate_digits.py
accelerate launch --num_processes 2 examples/accelerate_digits.py
"""

import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
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


def main(folder):
    accelerator = Accelerator()
    torch.manual_seed(0)
    dataset, labels, test_x, test_y = load_data()
    train, val, labels, val_labels = holdout(dataset, labels, fraction=0.1, seed=0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer, loader, val_loader = accelerator.prepare(
        model, optimizer, DataLoader(indexed(train), 32, shuffle=True), DataLoader(indexed(val), 64)
    )
    vista = Vista(labels, num_classes=10, epochs=EPOCHS, val_labels=val_labels, tau=0.01)
    accelerator.register_for_checkpointing(vista)
    if (folder / "last").exists():
        accelerator.load_state(folder / "last")

    for epoch in vista.epochs():  # continues after the loaded state
        model.train()
        for x, _, i in loader:
            optimizer.zero_grad()
            accelerator.backward(vista.loss(model(x), i))
            optimizer.step()
        model.eval()
        with torch.no_grad():  # each process passes its part, with the indices of its samples
            parts = [(model(x), i) for x, _, i in val_loader]
        logits, index = (torch.cat(part) for part in zip(*parts, strict=True))
        summary = vista.end_epoch(logits, val_index=index)
        accelerator.save_state(folder / "last")  # with several processes, save between epochs
        accelerator.print(f"epoch {epoch:2}  val {summary.accuracy:.3f}  anchors {sorted(summary.anchors)}")
    with torch.no_grad():
        right = model(test_x.to(accelerator.device)).argmax(1).cpu() == test_y
    accelerator.print(f"test {right.float().mean():.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
