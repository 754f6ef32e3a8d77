"""Trajectory statistics of a bit matrix epochs x samples: accuracy, forgetting, anchors, their weights and lifespans.

``correct`` is bool ``[E, m]``; row ``e - 1`` belongs to epoch ``e``. Shares are fractions of ``m``, counts are samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vista.core import coverage
from vista.core.store import BYTES_PER_VALUE
from vista.core.teacher import Weights, smooth

Matrix = NDArray[np.bool_]
Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


def intermediate_accuracy(correct: Matrix) -> Floats:
    r"""Share of samples that are right at each epoch, :math:`|C_e| / m`."""
    return np.asarray(_checked(correct).mean(axis=1))


def structural_residual(correct: Matrix) -> Floats:
    r"""Share of samples that are right at each epoch and at the last epoch, :math:`|C_e \cap C_E| / m`."""
    return np.asarray((_checked(correct) & correct[-1]).mean(axis=1))


def deviation_gap(correct: Matrix) -> Floats:
    r"""Share of samples that are right at each epoch and wrong at the last, :math:`|C_e \setminus C_E| / m`."""
    return coverage.deviation_gap(coverage.pack(_checked(correct)), correct.shape[1])


def credit(correct: Matrix, tau: float = 0.0, order: coverage.Order = "accuracy") -> Counts:
    r"""Replay Algorithm 2.

    Args:
        correct: Bool ``[E, m]``.
        tau: Tolerance as a fraction of the samples.
        order: Order of the sweep.

    Returns:
        Int ``[E, E]``: row t - 1, column s - 1 holds :math:`\Delta_s` at epoch t, or 0 where s is not an anchor.

    >>> credit(np.array([[True, False, False], [True, True, False], [False, False, True]]))
    array([[1, 0, 0],
           [0, 2, 0],
           [0, 2, 1]])
    """
    epochs = len(_checked(correct))
    table = np.zeros((epochs, epochs), dtype=np.int64)
    for row, anchors in zip(table, coverage.light(coverage.pack(correct), correct.shape[1], tau, order), strict=True):
        row[np.array(list(anchors), dtype=np.intp) - 1] = list(anchors.values())
    return table


def anchor_weights(correct: Matrix, table: Counts, weights: Weights = "coverage") -> Floats:
    """Weights of the anchors after each epoch, ``[E, E]``: a row sums to 1, or to 0 where it has no anchor.

    Args:
        correct: Bool ``[E, m]``.
        table: Result of :func:`credit`.
        weights: Weighting scheme of the run; the ablations weight every past state.
    """
    past = np.tril(np.ones(table.shape))
    scores = {"coverage": table, "accuracy": past * correct.sum(axis=1), "uniform": past}[weights].astype(np.float64)
    total = scores.sum(axis=1, keepdims=True)
    shares: Floats = np.divide(scores, total, out=np.zeros_like(scores), where=total > 0)
    return shares


def smooth_weights(weights: Floats, smoothing: int) -> Floats:
    """Teacher weights ``[E, E]`` of a run with ``smoothing``: each anchor's weight is spread over its neighbours."""
    smoothed = weights.copy()
    for last, row in enumerate(smoothed if smoothing > 1 else (), 1):
        spread = smooth({int(s) + 1: float(row[s]) for s in row.nonzero()[0]}, last, smoothing)
        row[[s - 1 for s in spread]] = list(spread.values())
    return smoothed


def lifespans(table: Counts | Floats) -> Counts:
    """Number of epochs in which each state was an anchor, from :func:`credit` or :func:`anchor_weights`."""
    return np.asarray((table > 0).sum(axis=0))


def bytes_of(anchors: Counts, samples: int, classes: int) -> Counts:
    """Bytes of the stored predictions: samples x classes float16 per anchor."""
    return anchors * samples * classes * BYTES_PER_VALUE


def best_epoch(correct: Matrix) -> int:
    """The 1-based epoch with the most samples right; the first on ties."""
    return int(_checked(correct).sum(axis=1).argmax()) + 1


def _checked(correct: Any) -> Matrix:
    if not isinstance(correct, np.ndarray) or correct.dtype != np.bool_ or correct.ndim != 2 or 0 in correct.shape:
        is_array = isinstance(correct, np.ndarray)
        got = f"{correct.dtype} of shape {correct.shape}" if is_array else type(correct).__name__
        raise ValueError(f"correct must be a non-empty bool array [epochs, samples], got {got}")
    return correct
