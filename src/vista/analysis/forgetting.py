"""Forgetting per sample and per class: validation samples that were right once and are wrong at the end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Forgetting:
    """Forgetting statistics with one entry per sample."""

    times_lost: Counts  # number of changes from right to wrong
    lost: NDArray[np.bool_]  # right at some epoch, wrong at the end


@dataclass(frozen=True, eq=False)
class ByClass:
    """Forgetting statistics with one entry per class."""

    samples: Counts
    right: Counts  # at the end
    lost: Counts  # right at some epoch, wrong at the end
    times_lost: Counts  # changes from right to wrong, summed over the samples


def per_sample(correct: NDArray[np.bool_]) -> Forgetting:
    """Forgetting of each sample, from bool ``[E, m]``.

    >>> per_sample(np.array([[True, False], [False, True]])).lost
    array([ True, False])
    """
    changes = (correct[:-1] & ~correct[1:]).sum(axis=0)
    return Forgetting(changes, correct.any(axis=0) & ~correct[-1])


def per_class(correct: NDArray[np.bool_], labels: NDArray[np.int64], num_classes: int) -> ByClass:
    """Forgetting of each class, from bool ``[E, m]`` and the labels ``[m]`` behind it."""
    if len(labels) != correct.shape[1]:
        raise ValueError(f"labels has {len(labels)} entries, but correct has {correct.shape[1]} samples")
    own = per_sample(correct)

    def total(values: NDArray) -> Counts:
        return np.bincount(labels, weights=values, minlength=num_classes).astype(np.int64)

    return ByClass(total(np.ones(len(labels))), total(correct[-1]), total(own.lost), total(own.times_lost))
