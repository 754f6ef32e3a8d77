"""Split a validation set off a training set."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Subset

from vista.core.validation import Integers, as_integers
from vista.data.indexed import check_map_style
from vista.split import stratified


class Holdout(NamedTuple):
    """The two parts of a dataset, each with its labels in the same order."""

    train: Subset[Any]
    val: Subset[Any]
    labels: NDArray[np.int64]  # [n], for Vista(labels, ...)
    val_labels: NDArray[np.int64]  # [m]


def holdout(dataset: Any, labels: Integers, fraction: float | int = 0.1, seed: int = 0) -> Holdout:
    """Split ``dataset`` into training and validation parts, stratified by label.

    Wrap the training part with ``indexed()`` afterwards, so that its indices match its labels.

    Args:
        dataset: A map-style dataset of ``N`` samples.
        labels: The given labels ``[N]``, noisy or not; -1 marks unlabelled samples, which stay in the training part.
        fraction: Share of the samples to hold out, or their number from 1 on.
        seed: Determines the split.

    Returns:
        ``(train, val, labels, val_labels)``: two subsets, and the labels of each.

    >>> train, val, labels, val_labels = holdout(["a", "b", "c", "d"], [0, 1, 0, 1], fraction=0.5)
    >>> len(train), sorted(val_labels.tolist())
    (2, [0, 1])
    """
    check_map_style(dataset, "holdout()")
    given = as_integers(labels, "labels").cpu().numpy()
    if len(given) != len(dataset):
        raise ValueError(f"labels must have one entry for each of the {len(dataset)} samples, got {len(given)}")
    parts = stratified(given, fraction, seed)
    train, val = Subset(dataset, parts.train.tolist()), Subset(dataset, parts.val.tolist())
    return Holdout(train, val, given[parts.train], given[parts.val])
