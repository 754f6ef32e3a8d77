"""Metrics of predictions: top-k accuracy, NLL, calibration (ECE) and selective risk (AURC), in numpy and float64.

Scores have shape ``[n, K]``, labels ``[n]`` with values 0 to K - 1. Results are fractions, not percentages.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vista.core.validation import as_int

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

SUM_TOLERANCE = 2**-8
"""Tolerance of the sum of a row of probabilities: values rounded to bfloat16 are accepted, logits are not."""


def topk_accuracy(scores: ArrayLike, labels: ArrayLike, k: int = 1) -> float:
    """Compute the share of samples whose label is among the k highest scores.

    Args:
        scores: Logits or probabilities, ``[n, K]``; of equal scores the lower class ranks first.
        labels: Classes, ``[n]``.
        k: Number of classes to consider.

    Returns:
        A fraction.

    >>> topk_accuracy([[0.6, 0.4], [0.7, 0.3]], [0, 1])
    0.5
    """
    values, classes, k = *_check_scores(scores, labels, "scores"), as_int(k, "k")
    if not 1 <= k <= values.shape[1]:
        raise ValueError(f"k must be 1 to {values.shape[1]}, the number of classes, got {k}")
    own = np.take_along_axis(values, classes[:, None], axis=1)
    lower = np.arange(values.shape[1]) < classes[:, None]
    ahead = (values > own) | ((values == own) & lower)
    return float(np.mean(ahead.sum(axis=1) < k))


def nll(probs: ArrayLike, labels: ArrayLike) -> float:
    """Compute the mean of ``-log p_i[y_i]``.

    Args:
        probs: Probabilities, ``[n, K]``.
        labels: Classes, ``[n]``.

    Returns:
        The negative log-likelihood; infinite if a label has probability 0.

    >>> round(nll([[0.5, 0.5]], [0]), 4)
    0.6931
    """
    values, classes = _check_probs(probs, labels)
    with np.errstate(divide="ignore"):
        return _mean_nll(np.log(values), classes)


def ece(probs: ArrayLike, labels: ArrayLike, bins: int = 15) -> float:
    """Compute the expected calibration error ``Σ_b n_b/n |accuracy_b - confidence_b|``.

    Args:
        probs: Probabilities, ``[n, K]``.
        labels: Classes, ``[n]``.
        bins: Number of equal bins ``(lo, hi]`` of confidence, the highest probability.

    Returns:
        A fraction, the lower the better.

    >>> round(ece([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [0, 1, 1]), 3)
    0.3
    """
    bins = as_int(bins, "bins")
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    confidence, wrong = _confidence(*_check_probs(probs, labels))
    edges = np.arange(bins + 1) / bins
    bin_of = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    gaps = np.bincount(bin_of, weights=1.0 - wrong - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(confidence))


def aurc(probs: ArrayLike, labels: ArrayLike) -> float:
    """Compute the area under the risk-coverage curve.

    It is the mean over i of the error rate of the i most confident samples.

    Args:
        probs: Probabilities, ``[n, K]``; the highest is the confidence, equally confident samples keep their order.
        labels: Classes, ``[n]``.

    Returns:
        A fraction, the lower the better.

    >>> round(aurc([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [0, 1, 1]), 3)
    0.111
    """
    confidence, wrong = _confidence(*_check_probs(probs, labels))
    return _mean_risk(wrong[np.argsort(-confidence, kind="stable")])


def eaurc(probs: ArrayLike, labels: ArrayLike) -> float:
    """Compute the excess of :func:`aurc` over that of the best order, in which all errors come last.

    Args:
        probs: Probabilities, ``[n, K]``.
        labels: Classes, ``[n]``.

    Returns:
        A fraction, the lower the better.

    >>> eaurc([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [0, 1, 1])
    0.0
    """
    confidence, wrong = _confidence(*_check_probs(probs, labels))
    return _mean_risk(wrong[np.argsort(-confidence, kind="stable")]) - _mean_risk(np.sort(wrong))


def classification_report(logits: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Compute all metrics of logits.

    Args:
        logits: Logits, ``[n, K]``.
        labels: Classes, ``[n]``.

    Returns:
        ``top1``, ``top5`` (all classes if there are fewer than 5), ``nll``, ``ece`` and ``aurc``.

    >>> classification_report([[2.0, 0.0], [0.0, 1.0]], [0, 0])["top1"]
    0.5
    """
    values, classes = _check_scores(logits, labels, "logits")
    shifted = values - values.max(axis=1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    probs = np.exp(log_probs)
    return {
        "top1": topk_accuracy(values, classes),
        "top5": topk_accuracy(values, classes, k=min(5, values.shape[1])),
        "nll": _mean_nll(log_probs, classes),
        "ece": ece(probs, classes),
        "aurc": aurc(probs, classes),
    }


def _mean_nll(log_probs: Floats, labels: Labels) -> float:
    return float(-np.take_along_axis(log_probs, labels[:, None], axis=1).mean())


def _confidence(probs: Floats, labels: Labels) -> tuple[Floats, Floats]:
    """Return the highest probability of each sample, and 1.0 where its class (the lowest on ties) is wrong."""
    return probs.max(axis=1), (probs.argmax(axis=1) != labels).astype(np.float64)


def _mean_risk(wrong: Floats) -> float:
    """Average the error rate of the first i samples over i; samples are in the order of acceptance."""
    return float(np.mean(np.cumsum(wrong) / np.arange(1, len(wrong) + 1)))


def _check_scores(scores: ArrayLike, labels: ArrayLike, name: str) -> tuple[Floats, Labels]:
    values, classes = np.asarray(scores, dtype=np.float64), np.asarray(labels)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"{name} must be [samples, classes] with at least one of each, got shape {values.shape}")
    if classes.shape != values.shape[:1]:
        raise ValueError(f"labels must have shape {values.shape[:1]}, as many as rows of {name}, got {classes.shape}")
    if not np.issubdtype(classes.dtype, np.integer):
        raise TypeError(f"labels must be integers, got {classes.dtype}")
    outside = (classes < 0) | (classes >= values.shape[1])
    if outside.any():
        first = int(outside.argmax())
        raise ValueError(f"labels[{first}] must be 0 to {values.shape[1] - 1}, got {classes[first]}")
    finite = np.isfinite(values)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise ValueError(f"{name}[{row}, {column}] must be finite, got {values[row, column]}")
    return values, classes.astype(np.int64)


def _check_probs(probs: ArrayLike, labels: ArrayLike) -> tuple[Floats, Labels]:
    values, classes = _check_scores(probs, labels, "probs")
    if (values < 0).any():
        row, column = np.argwhere(values < 0)[0]
        raise ValueError(f"probs[{row}, {column}] must be at least 0, got {values[row, column]}")
    off = np.abs(values.sum(axis=1) - 1.0) > SUM_TOLERANCE
    if off.any():
        first = int(off.argmax())
        raise ValueError(f"probs[{first}] must sum to 1, got {values[first].sum():.6g}: pass softmax(logits)")
    return values, classes


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Compute the mean and its standard error.

    Args:
        values: At least one number.

    Returns:
        The mean, and the sample standard deviation over the root of n, or ``None`` for a single value.

    >>> mean_and_error([1.0, 3.0])
    (2.0, 1.0)
    """
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return statistics.fmean(values), error
