r"""How many labels are wrong: the confident joint of given and true labels, and an interval for its estimate.

The threshold :math:`t_k` of class k is the mean predicted probability of k over the samples labelled k. A sample is
counted for the most likely of the classes that reach their threshold, if any does. The counts ``[given, counted]`` are
the confident joint (Northcutt, Jiang and Chuang, 2021); its rows are scaled to the number of samples with that label.
The mass off the diagonal estimates the number of wrong labels.

The estimate is biased: errors of the network among the counted samples count as wrong labels. The interval therefore
extends down to a second estimate, from the most confident quarter of the samples predicted as each class, where the
network errs least. Both ends include the sampling error (Wilson's score interval, 95 %). Predictions for samples that
the network was trained on repeat their labels, and then both estimates are too low.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Z = 1.959964  # 95 %
CONFIDENT_PART = 0.25
Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class NoiseEstimate:
    """Estimated label noise of n samples.

    Attributes:
        joint: Estimated number of samples by given and true label, ``[K, K]``; row k sums to the samples labelled k.
        share: Estimated share of wrong labels, from 0 to 1.
        low: Lower end of the 95 % interval of the share.
        high: Upper end.
    """

    joint: Floats
    share: float
    low: float
    high: float


def thresholds(probs: Floats, given: Labels) -> Floats:
    """Mean probability of each class over the samples labelled with it, ``[K]``; infinite for an unused class."""
    counts = np.bincount(given, minlength=probs.shape[1])
    totals = np.bincount(given, weights=probs[np.arange(len(given)), given], minlength=probs.shape[1])
    return np.asarray(np.divide(totals, counts, out=np.full(len(counts), np.inf), where=counts > 0))


def confident_joint(probs: Floats, given: Labels) -> Labels:
    """Count samples by given label and by the most likely class that reaches its threshold.

    Args:
        probs: Predicted probabilities ``[n, K]``.
        given: Given labels ``[n]``.

    Returns:
        Counts ``[K, K]``, rows by given label; a sample that reaches no threshold is not counted.

    >>> probs = np.array([[0.8, 0.2], [0.6, 0.4], [0.1, 0.9], [0.3, 0.7]])
    >>> confident_joint(probs, np.array([0, 0, 0, 1])).tolist()
    [[2, 1], [0, 1]]
    """
    classes = probs.shape[1]
    reached = probs >= thresholds(probs, given)
    counted = reached.any(axis=1)
    likely = np.where(reached, probs, -1.0).argmax(axis=1)
    cells = given[counted] * classes + likely[counted]
    return np.bincount(cells, minlength=classes * classes).reshape(classes, classes).astype(np.int64)


def calibrate_joint(counts: Labels, sizes: Labels) -> Floats:
    """Scale each row of the confident joint to the number of samples with that label.

    Args:
        counts: Confident joint ``[K, K]``.
        sizes: Number of samples by given label ``[K]``.

    Returns:
        Estimated number of samples by given and true label ``[K, K]``; all on the diagonal for a label without counts.
    """
    confident = counts.sum(axis=1)
    filled = np.where(confident[:, None] > 0, counts, np.eye(len(sizes)))
    return np.asarray(filled * (sizes / np.maximum(confident, 1))[:, None])


def count_wrong(joint: Floats) -> float:
    """Mass off the diagonal: the estimated number of wrong labels."""
    return float(joint.sum() - np.trace(joint))


def estimate_noise(probs: Floats, given: Labels) -> NoiseEstimate:
    """Estimate how many labels are wrong, with a 95 % interval.

    Args:
        probs: Predicted probabilities ``[n, K]``, best of samples that the network was not trained on.
        given: Given labels ``[n]``.

    Returns:
        The joint of given and true labels, the share of wrong labels and its interval.
    """
    counts, sizes = confident_joint(probs, given), np.bincount(given, minlength=probs.shape[1])
    joint = calibrate_joint(counts, sizes)
    confident = counts.sum(axis=1)
    share, low, high = _stratified(confident - np.diag(counts), confident, sizes)
    predicted = probs.argmax(axis=1)
    wrong, chosen, found = (np.zeros(probs.shape[1], dtype=np.int64) for _ in range(3))
    for k in np.unique(predicted):
        rows = np.flatnonzero(predicted == k)
        rows = rows[np.argsort(-probs[rows, k], kind="stable")]
        found[k], chosen[k] = len(rows), math.ceil(CONFIDENT_PART * len(rows))
        wrong[k] = np.count_nonzero(given[rows[: chosen[k]]] != k)
    _, lowest, _ = _stratified(wrong, chosen, found)
    return NoiseEstimate(joint, share, min(low, lowest), high)


def rescale_joint(joint: Floats, wrong: float) -> Floats:
    """Change the number of wrong labels of a joint without changing its row sums.

    The odds of a wrong label are multiplied by one factor in all rows, found by bisection.

    Args:
        joint: Number of samples by given and true label ``[K, K]``.
        wrong: Number of wrong labels that the result is to have.

    Returns:
        The joint ``[K, K]``. A joint without wrong labels has no pattern to scale and is returned unchanged.
    """
    sizes, correct = joint.sum(axis=1), np.diag(joint)
    off = sizes - correct
    if not off.any():
        return joint.copy()
    low, high = -40.0, 40.0  # logarithm of the factor
    for _ in range(100):
        middle = (low + high) / 2
        total = _scaled(off, correct, sizes, math.exp(middle)).sum()
        low, high = (middle, high) if total < wrong else (low, middle)
    new = _scaled(off, correct, sizes, math.exp(low))
    scaled = joint * np.divide(new, off, out=np.zeros_like(off), where=off > 0)[:, None]
    np.fill_diagonal(scaled, sizes - new)
    return np.asarray(scaled)


def _scaled(off: Floats, correct: Floats, sizes: Floats, factor: float) -> Floats:
    """Wrong labels per row after their odds were multiplied."""
    odds = factor * off
    return np.asarray(np.divide(odds * sizes, odds + correct, out=np.zeros_like(off), where=off > 0))


def _stratified(wrong: Labels, counted: Labels, sizes: Labels) -> tuple[float, float, float]:
    """Share of wrong labels and its interval, from ``wrong`` of ``counted`` samples in strata of these sizes.

    Wilson's interval of a single sample, with the number of samples at which a binomial has the same variance.
    """
    weight = sizes / sizes.sum()
    rate = wrong / np.maximum(counted, 1)
    share = float(weight @ rate)
    variance = float(np.sum(weight**2 * rate * (1 - rate) / np.maximum(counted, 1)))
    number = share * (1 - share) / variance if variance > 0 else float(counted.sum())
    if number == 0:
        return share, 0.0, 1.0
    centre = (share + Z**2 / (2 * number)) / (1 + Z**2 / number)
    half = Z * math.sqrt(share * (1 - share) / number + Z**2 / (4 * number**2)) / (1 + Z**2 / number)
    return share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))
