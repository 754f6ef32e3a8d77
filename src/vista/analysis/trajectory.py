"""What a bit matrix epochs x samples tells: what was right, what stayed, which states were needed, for how long.

``correct`` is bool ``[E, m]``, row ``e - 1`` for epoch ``e``. Shares are fractions of ``m``, counts are samples.
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
    r"""Share of samples right at each epoch, :math:`|C_e| / m`."""
    return np.asarray(_checked(correct).mean(axis=1))


def structural_residual(correct: Matrix) -> Floats:
    r"""Share of samples right at each epoch and still right at the end, :math:`|C_e \cap C_E| / m`."""
    return np.asarray((_checked(correct) & correct[-1]).mean(axis=1))


def deviation_gap(correct: Matrix) -> Floats:
    r"""Share of samples right at each epoch and wrong at the end, :math:`|C_e \setminus C_E| / m`."""
    return coverage.deviation_gap(coverage.pack(_checked(correct)), correct.shape[1])


def end_of_training_coverage(correct: Matrix) -> Counts:
    r"""Marginal coverage :math:`\Delta_s` of every state in one sweep over all of them."""
    return coverage.sweep(coverage.pack(_checked(correct)))


def credit(correct: Matrix, tau: float = 0.0, order: coverage.Order = "accuracy") -> Counts:
    r"""Algorithm 2: ``[E, E]``, row t - 1, column s - 1 holds :math:`\Delta_s` at epoch t, 0 where s is no anchor."""
    epochs = len(_checked(correct))
    table = np.zeros((epochs, epochs), dtype=np.int64)
    for row, anchors in zip(table, coverage.light(coverage.pack(correct), correct.shape[1], tau, order), strict=True):
        row[np.array(list(anchors), dtype=np.intp) - 1] = list(anchors.values())
    return table


def anchor_weights(correct: Matrix, table: Counts, weights: Weights = "coverage", smoothing: int = 1) -> Floats:
    """Weights of the past states in the teacher, ``[E, E]``: rows sum to 1, or to 0 where there is no anchor.

    With ``smoothing`` an anchor's weight is spread over the states around it.
    """
    past = np.tril(np.ones(table.shape))
    scores = {"coverage": table, "accuracy": past * correct.sum(axis=1), "uniform": past}[weights].astype(np.float64)
    total = scores.sum(axis=1, keepdims=True)
    shares: Floats = np.divide(scores, total, out=np.zeros_like(scores), where=total > 0)
    for last, row in enumerate(shares if smoothing > 1 else (), 1):
        spread = smooth({int(s) + 1: float(row[s]) for s in row.nonzero()[0]}, last, smoothing)
        row[[s - 1 for s in spread]] = list(spread.values())
    return shares


def lifespans(table: Counts | Floats) -> Counts:
    """Number of epochs each state was an anchor, from :func:`credit` or :func:`anchor_weights`."""
    return np.asarray((table > 0).sum(axis=0))


def by_age(table: Counts) -> Counts:
    """The same credit, row a for age: column s - 1 holds what state s was worth at epoch s + a; 0 past the end."""
    epochs = len(table)
    aged = np.zeros_like(table)
    for s in range(epochs):
        aged[: epochs - s, s] = table[s:, s]
    return aged


def bytes_of(anchors: Counts, samples: int, classes: int) -> Counts:
    """Bytes that the predictions of so many anchors take: samples x classes float16 each."""
    return anchors * samples * classes * BYTES_PER_VALUE


def best_epoch(correct: Matrix) -> int:
    """The epoch with most samples right, the first on ties; 1-based."""
    return int(_checked(correct).sum(axis=1).argmax()) + 1


def _checked(correct: Any) -> Matrix:
    if not isinstance(correct, np.ndarray) or correct.dtype != np.bool_ or correct.ndim != 2 or 0 in correct.shape:
        what = (
            f"{correct.dtype} of shape {correct.shape}" if isinstance(correct, np.ndarray) else type(correct).__name__
        )
        raise ValueError(f"correct is {what}, but bool [epochs, samples] with at least one of each is needed")
    return correct
