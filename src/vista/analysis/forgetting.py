"""Which validation samples were once right and are lost, how often, and of which classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Forgetting:
    """One entry per sample."""

    epochs_right: Counts  # how many epochs it was right in
    times_lost: Counts  # how often it went from right to wrong
    last_right: Counts  # the last epoch it was right in, 0 if never
    lost: NDArray[np.bool_]  # once right, wrong at the end


@dataclass(frozen=True, eq=False)
class ByClass:
    """One entry per class."""

    samples: Counts
    right: Counts  # at the end
    lost: Counts  # once right, wrong at the end
    times_lost: Counts  # all changes from right to wrong


def per_sample(correct: NDArray[np.bool_]) -> Forgetting:
    """From bool ``[E, m]``."""
    epochs = len(correct)
    ever = correct.any(axis=0)
    last = np.where(ever, epochs - correct[::-1].argmax(axis=0), 0)
    changes = (correct[:-1] & ~correct[1:]).sum(axis=0)
    return Forgetting(correct.sum(axis=0), changes, last.astype(np.int64), ever & ~correct[-1])


def per_class(correct: NDArray[np.bool_], labels: NDArray[np.int64], num_classes: int) -> ByClass:
    """From bool ``[E, m]`` and the labels ``[m]`` the samples were judged by."""
    if len(labels) != correct.shape[1]:
        raise ValueError(f"labels has {len(labels)} entries, but correct has {correct.shape[1]} samples")
    own = per_sample(correct)

    def total(values: NDArray) -> Counts:
        return np.bincount(labels, weights=values, minlength=num_classes).astype(np.int64)

    return ByClass(total(np.ones(len(labels))), total(correct[-1]), total(own.lost), total(own.times_lost))
