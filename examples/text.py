"""Text: which part of SciPy does this docstring belong to? 30 % of the labels are wrong.
The corpus is the reference manual inside the SciPy package; the network is a bag of embeddings:

    python examples/text.py --seeds 3
"""

import argparse
import importlib
import inspect
import re
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from vista import Vista, indexed
from vista.data.holdout import holdout
from vista.noise import symmetric
from vista.split import stratified

AREAS = ("stats", "signal", "optimize", "sparse", "linalg", "special", "ndimage", "interpolate", "fft", "integrate")
NOISE, BATCH, LR, WORDS = 0.3, 32, 5e-3, 128


def load_corpus():
    """Word indices of the first words of every entry ``[N, 128]``, padded with 0, and the entry's area ``[N]``."""
    texts, labels = [], []
    for label, area in enumerate(AREAS):
        module = importlib.import_module(f"scipy.{area}")
        with warnings.catch_warnings(action="ignore"):  # deprecated names
            entries = {inspect.getdoc(getattr(module, name)) or "" for name in module.__all__}
        for entry in sorted(entries):
            words = [word for word in re.findall(r"[a-z]+", entry.lower()) if word not in ("scipy", area)]
            if len(words) >= 20:
                texts, labels = [*texts, words[:WORDS]], [*labels, label]
    number = {word: i for i, word in enumerate(sorted({word for words in texts for word in words}), 1)}
    padded = [[number[word] for word in words] + [0] * (WORDS - len(words)) for words in texts]
    return torch.tensor(padded), np.array(labels)


def train(method, seed, epochs, texts, labels):
    """Return the test accuracy in percent at the best-validation epoch and at the last."""
    parts = stratified(labels, 0.2, seed)
    test_x, test_y = texts[parts.val], torch.from_numpy(labels[parts.val])  # test labels stay clean
    given = symmetric(labels[parts.train], len(AREAS), NOISE, seed)
    train_set = TensorDataset(texts[parts.train], torch.from_numpy(given))
    own, val, train_labels, val_labels = holdout(train_set, given, 0.15, seed)
    loader = DataLoader(indexed(own), BATCH, shuffle=True, generator=torch.Generator().manual_seed(seed))
    val_x, val_y = torch.stack([x for x, _ in val]), torch.from_numpy(val_labels)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.EmbeddingBag(int(texts.max()) + 1, 64, padding_idx=0), nn.Linear(64, len(AREAS)))
    optimizer, best = torch.optim.Adam(model.parameters(), lr=LR), (-1.0, 0.0)
    vista = Vista(train_labels, num_classes=len(AREAS), epochs=epochs, val_labels=val_labels)
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
    flags, data = parser.parse_args(), load_corpus()
    for seed, method in ((seed, method) for seed in range(flags.seeds) for method in ("ce", "vista")):
        result = train(method, seed, flags.epochs, *data)
        print(f"seed {seed} {method:5} best {result['best']:.1f} last {result['last']:.1f}")
