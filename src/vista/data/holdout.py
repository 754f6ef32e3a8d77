"""Split a validation set off a training set."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
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


_READ = 4  # samples that are read twice to find random augmentation


def holdout(
    dataset: Any, labels: Integers, fraction: float | int = 0.1, seed: int = 0, *, val_dataset: Any = None
) -> Holdout:
    """Split ``dataset`` into training and validation parts, stratified by label.

    Wrap the training part with ``indexed()`` afterwards, so that its indices match its labels. A warning reports
    validation samples that are augmented at random.

    Args:
        dataset: A map-style dataset of ``N`` samples.
        labels: The given labels ``[N]``, noisy or not; -1 marks unlabelled samples, which stay in the training part.
        fraction: Share of the samples to hold out, or their number from 1 on.
        seed: Determines the split.
        val_dataset: The same samples in the same order with the transform for evaluation, of which ``val`` becomes a
            part; by default ``dataset`` itself.

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
    source = dataset
    if val_dataset is not None:
        check_map_style(val_dataset, "holdout()")
        if len(val_dataset) != len(dataset):
            raise ValueError(
                f"val_dataset must hold the same {len(dataset)} samples as dataset, with another transform, got "
                f"{len(val_dataset)}"
            )
        source = val_dataset
    parts = stratified(given, fraction, seed)
    train, val = Subset(dataset, parts.train.tolist()), Subset(source, parts.val.tolist())
    _warn_if_random(val)
    return Holdout(train, val, given[parts.train], given[parts.val])


def _warn_if_random(val: Subset[Any]) -> None:
    """Warn if one of the first samples differs when it is read twice."""
    with _random_state_kept():
        for position in range(min(_READ, len(val))):
            if not _is_same(val[position], val[position]):
                warnings.warn(
                    "the held-out samples are augmented at random (sample "
                    f"{val.indices[position]} differs when it is read twice): pass val_dataset=, the same samples with "
                    "the transform for evaluation",
                    stacklevel=3,
                )
                return


@contextmanager
def _random_state_kept() -> Iterator[None]:
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        random.setstate(states[2])


def _is_same(a: Any, b: Any) -> bool:
    """Compare two readings of a sample; what is neither an array, an image nor a number counts as the same."""
    if isinstance(a, Mapping):
        return all(_is_same(a[name], b[name]) for name in a if name in b)
    if isinstance(a, tuple | list):
        return all(_is_same(one, other) for one, other in zip(a, b, strict=False))
    if hasattr(a, "tobytes") and hasattr(b, "tobytes"):  # arrays, numpy's numbers, Pillow's images
        return bool(a.tobytes() == b.tobytes())
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
    return not isinstance(a, int | float) or a == b or a != a
