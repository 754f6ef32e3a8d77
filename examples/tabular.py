"""Tabular data: is this tumour malignant? 569 samples with 30 measurements; 30 % of the labels are wrong.

The data set is part of scikit-learn; the network is a small perceptron:

    python examples/tabular.py --seeds 3
"""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_breast_cancer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from vista import Vista, indexed
from vista.data.holdout import holdout
from vista.noise import symmetric
from vista.split import stratified

NOISE, BATCH, LR = 0.3, 32, 0.05


def load_table():
    """Standardised measurements ``[569, 30]`` and the diagnoses ``[569]``."""
    cancer = load_breast_cancer()
    return torch.from_numpy((cancer.data - cancer.data.mean(0)) / cancer.data.std(0)).float(), cancer.target


def train(method, seed, epochs, rows, labels):
    """Return the test accuracy in percent at the best-validation epoch and at the last."""
    parts = stratified(labels, 0.2, seed)
    test_x, test_y = rows[parts.val], torch.from_numpy(labels[parts.val])  # test labels stay clean
    given = symmetric(labels[parts.train], 2, NOISE, seed)
    train_set = TensorDataset(rows[parts.train], torch.from_numpy(given))
    own, val, train_labels, val_labels = holdout(train_set, given, 0.15, seed)
    loader = DataLoader(indexed(own), BATCH, shuffle=True, generator=torch.Generator().manual_seed(seed))
    val_x, val_y = torch.stack([x for x, _ in val]), torch.from_numpy(val_labels)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    vista = Vista(train_labels, num_classes=2, epochs=epochs, val_labels=val_labels)
    best = -1.0, 0.0
    for _ in range(epochs):
        for x, y, i in loader:
            loss = vista.loss(model(x), i) if method == "vista" else F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            val_logits, last = model(val_x), (model(test_x).argmax(1) == test_y).float().mean().item()
        if method == "vista":
            vista.end_epoch(val_logits)
        right = (val_logits.argmax(1) == val_y).float().mean().item()
        best = max(best, (right, last), key=lambda pair: pair[0])  # the first on ties
    return {"best": 100 * best[1], "last": 100 * last}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=40)
    flags, data = parser.parse_args(), load_table()
    for seed, method in ((seed, method) for seed in range(flags.seeds) for method in ("ce", "vista")):
        result = train(method, seed, flags.epochs, *data)
        print(f"seed {seed} {method:5} best {result['best']:.1f} last {result['last']:.1f}")
