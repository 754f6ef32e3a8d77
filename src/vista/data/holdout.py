"""A validation set where none is at hand, split off the training set."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Subset

from vista.core.validation import Integers, as_integers
from vista.data.indexed import check_map_style
from vista.split import stratified


class Holdout(NamedTuple):
    """Two parts of a dataset, each with the given labels of its samples in its own order."""

    train: Subset[Any]
    val: Subset[Any]
    labels: NDArray[np.int64]  # [n], for Vista(labels, ...)
    val_labels: NDArray[np.int64]  # [m]


def holdout(dataset: Any, labels: Integers, fraction: float | int = 0.1, seed: int = 0) -> Holdout:
    """Set ``fraction`` of ``dataset`` (or that many samples) aside, each class by its share, whatever the noise.

    ``labels`` ``[N]`` are the given labels, -1 where there is none: such samples always train. Wrap ``train`` by
    ``indexed()`` afterwards, so that the index counts within it, as ``labels`` do.
    """
    check_map_style(dataset, "holdout()")
    given = as_integers(labels, "labels").cpu().numpy()
    if len(given) != len(dataset):
        raise ValueError(f"labels has {len(given)} entries, but the dataset has {len(dataset)} samples")
    parts = stratified(given, fraction, seed)
    train, val = Subset(dataset, parts.train.tolist()), Subset(dataset, parts.val.tolist())
    return Holdout(train, val, given[parts.train], given[parts.val])
