"""How good predictions are: top-k, NLL, calibration (ECE), selective risk (AURC). Pure numpy, float64 inside.

Scores are ``[n, K]``, labels ``[n]`` with values 0 to K - 1. Everything comes back as a fraction, never in percent.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vista.core.validation import whole

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

SUM_TOLERANCE = 2**-8
"""How far from 1 a row of probabilities may sum: what is rounded to bfloat16 is let in, logits are not."""


def topk_accuracy(scores: ArrayLike, labels: ArrayLike, k: int = 1) -> float:
    """Share of samples with the label among the k highest scores; of equal scores the lower class is first."""
    values, classes, k = *_checked(scores, labels, "scores"), whole(k, "k")
    if not 1 <= k <= values.shape[1]:
        raise ValueError(f"k is {k}, but with {values.shape[1]} classes it must be 1 to {values.shape[1]}")
    own = np.take_along_axis(values, classes[:, None], axis=1)
    lower = np.arange(values.shape[1]) < classes[:, None]
    ahead = (values > own) | ((values == own) & lower)
    return float(np.mean(ahead.sum(axis=1) < k))


def nll(probs: ArrayLike, labels: ArrayLike) -> float:
    """Mean of ``-log p_i[y_i]``; infinite where a label has probability 0."""
    values, classes = _checked_probs(probs, labels)
    with np.errstate(divide="ignore"):
        return _mean_nll(np.log(values), classes)


def ece(probs: ArrayLike, labels: ArrayLike, bins: int = 15) -> float:
    """Calibration error ``Σ_b n_b/n |accuracy_b - confidence_b|`` over equal bins ``(lo, hi]`` of confidence."""
    bins = whole(bins, "bins")
    if bins < 1:
        raise ValueError(f"bins is {bins}, but at least 1 is needed")
    confidence, wrong = _confidence(*_checked_probs(probs, labels))
    edges = np.arange(bins + 1) / bins
    places = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    gaps = np.bincount(places, weights=1.0 - wrong - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(confidence))


def aurc(probs: ArrayLike, labels: ArrayLike) -> float:
    """Area under the risk-coverage curve: the mean over i of the error rate among the i most confident samples.

    Confidence is the highest probability; equally confident samples keep their order.
    """
    confidence, wrong = _confidence(*_checked_probs(probs, labels))
    return _mean_risk(wrong[np.argsort(-confidence, kind="stable")])


def eaurc(probs: ArrayLike, labels: ArrayLike) -> float:
    """``aurc`` less that of the best possible order, in which every error comes last."""
    confidence, wrong = _confidence(*_checked_probs(probs, labels))
    return _mean_risk(wrong[np.argsort(-confidence, kind="stable")]) - _mean_risk(np.sort(wrong))


def classification_report(logits: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """``top1``, ``top5`` (of all classes where there are fewer), ``nll``, ``ece`` and ``aurc`` of logits ``[n, K]``."""
    values, classes = _checked(logits, labels, "logits")
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
    """The highest probability of each sample, and 1.0 where its class (the lowest on ties) is wrong."""
    return probs.max(axis=1), (probs.argmax(axis=1) != labels).astype(np.float64)


def _mean_risk(wrong: Floats) -> float:
    """Errors in the order in which samples are accepted: the mean over i of the error rate among the first i."""
    return float(np.mean(np.cumsum(wrong) / np.arange(1, len(wrong) + 1)))


def _checked(scores: ArrayLike, labels: ArrayLike, name: str) -> tuple[Floats, Labels]:
    values, classes = np.asarray(scores, dtype=np.float64), np.asarray(labels)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"{name} has shape {values.shape}, but [samples, classes] with at least one of each is needed")
    if classes.shape != values.shape[:1]:
        raise ValueError(f"labels has shape {classes.shape}, but {name} has {len(values)} rows")
    if not np.issubdtype(classes.dtype, np.integer):
        raise TypeError(f"labels has dtype {classes.dtype}, but integers are needed")
    outside = (classes < 0) | (classes >= values.shape[1])
    if outside.any():
        first = int(outside.argmax())
        raise ValueError(f"labels[{first}] is {classes[first]}, but num_classes is {values.shape[1]}")
    finite = np.isfinite(values)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise ValueError(f"{name}[{row}, {column}] is {values[row, column]}, but every value must be finite")
    return values, classes.astype(np.int64)


def _checked_probs(probs: ArrayLike, labels: ArrayLike) -> tuple[Floats, Labels]:
    values, classes = _checked(probs, labels, "probs")
    if (values < 0).any():
        row, column = np.argwhere(values < 0)[0]
        raise ValueError(f"probs[{row}, {column}] is {values[row, column]}, but a probability is at least 0")
    off = np.abs(values.sum(axis=1) - 1.0) > SUM_TOLERANCE
    if off.any():
        first = int(off.argmax())
        raise ValueError(
            f"probs[{first}] sums to {values[first].sum():.6g}, but probabilities sum to 1: give softmax(logits)"
        )
    return values, classes


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard error: the sample's standard deviation over the root of its size; one value has no error."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return statistics.fmean(values), error
