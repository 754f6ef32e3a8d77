r"""Suspected labels: training samples whose given label the final teacher considers unlikely.

A class that is learned less confidently than others makes even its right labels look doubtful. As in confident
learning, a probability is therefore compared with the usual one of its class: the threshold :math:`t_k` is the mean of
:math:`Q(x)_k` over the samples labelled k, and :math:`r_k = Q(x)_k / t_k`. The score of a sample labelled y is
:math:`r_j / (r_j + r_y)` with the highest :math:`r_j` of another class. It is between 0 and 1; from 1/2 on, another
class is at least as likely as the given one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vista import noise
from vista.analysis.runs import TRUTH_KNOWN
from vista.metrics import SUM_TOLERANCE
from vista.runs.folder import RunFolder

PRECISION_AT = (10, 50, 100, 500, 1000, 5000)
Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Suspects:
    """All labelled training samples, most suspect first; ids are positions in the original, unsplit data."""

    ids: Labels  # [n]
    given: Labels
    suggested: Labels
    score: Floats
    estimated: int  # number of wrong labels, by the confident joint
    classes: tuple[str, ...]
    true: Labels | None = None  # where known
    files: Sequence[str] | None = None  # file of each sample by id, for data in files

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def is_doubted(self) -> NDArray[np.bool_]:
        """Whether another class is more likely than the given one, ``[n]``."""
        return self.score > 0.5

    def quality(self) -> dict[str, Any] | None:
        """Precision at k, AUROC and average precision of the ranking, where the true labels are known."""
        return None if self.true is None else ranking_quality(self.score, self.given != self.true)


def thresholds(probs: Floats, given: Labels) -> Floats:
    """Mean probability of each class over the samples labelled with it, ``[K]``; infinite for an unused class."""
    counts = np.bincount(given, minlength=probs.shape[1])
    totals = np.bincount(given, weights=probs[np.arange(len(given)), given], minlength=probs.shape[1])
    return np.asarray(np.divide(totals, counts, out=np.full(len(counts), np.inf), where=counts > 0))


def scores(probs: Floats, given: Labels) -> tuple[Floats, Labels]:
    r"""Score of each given label by the formula above, and the suggested class j, ``[n]``."""
    rows, usual = np.arange(len(given)), thresholds(probs, given)
    ratios = probs / np.where(usual > 0, usual, 1.0)  # a class with probability 0 everywhere
    own = ratios[rows, given]
    ratios[rows, given] = -1.0
    other = ratios.argmax(axis=1)
    highest = ratios[rows, other]
    total = highest + own
    return np.divide(highest, total, out=np.full(len(given), 0.5), where=total > 0), other


def estimated_errors(probs: Floats, given: Labels) -> int:
    """Estimated number of wrong labels, by the confident joint.

    A sample is counted for the most likely of the classes that reach their threshold, if any does. Among the counted
    samples labelled k, the share counted for another class estimates the share of wrong labels of class k.
    """
    reached = probs >= thresholds(probs, given)
    counted = reached.any(axis=1)
    guess = np.where(reached, probs, -1.0).argmax(axis=1)
    size = np.bincount(given, minlength=probs.shape[1])
    confident = np.bincount(given[counted], minlength=probs.shape[1])
    elsewhere = np.bincount(given[counted & (guess != given)], minlength=probs.shape[1])
    shares = np.divide(elsewhere, confident, out=np.zeros(len(size)), where=confident > 0)
    return round(float(size @ shares))


def ranking_quality(score: Floats, wrong: NDArray[np.bool_]) -> dict[str, Any]:
    """Precision among the k highest scores, area under the ROC curve, average precision."""
    # Imported here because the import takes a second and only known true labels need it.
    from sklearn.metrics import average_precision_score, roc_auc_score  # type: ignore[import-untyped]

    total = int(wrong.sum())
    if total in (0, len(wrong)):
        return {"wrong": total, "precision_at": {}, "auroc": None, "average_precision": None}
    ranked = wrong[np.argsort(-score, kind="stable")]
    counts = sorted({k for k in (*PRECISION_AT, total) if k <= len(wrong)})
    return {
        "wrong": total,
        "precision_at": {str(k): float(ranked[:k].mean()) for k in counts},
        "auroc": float(roc_auc_score(wrong, score)),
        "average_precision": float(average_precision_score(wrong, score)),
    }


def suspect_labels(
    probs: ArrayLike,
    given: ArrayLike,
    *,
    ids: ArrayLike | None = None,
    classes: tuple[str, ...] | None = None,
    true: ArrayLike | None = None,
) -> Suspects:
    """Rank samples by how unlikely their given label is.

    Args:
        probs: Predicted probabilities ``[n, K]``.
        given: Given labels ``[n]``; samples with label -1 are left out.
        ids: Ids to report ``[n]``; default: 0..n-1.
        classes: Class names ``[K]``.
        true: True labels ``[n]``, to measure the quality of the ranking.

    Returns:
        The samples, most suspect first.

    >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.9, 0.1], [0.1, 0.9]])
    >>> found = suspect_labels(probs, [0, 0, 1, 1])
    >>> int(found.ids[0]), int(found.suggested[0])
    (2, 0)
    """
    values, labels = _checked(probs, given)
    for name, numbers in (("ids", ids), ("true", true)):
        if numbers is not None and np.shape(numbers) != labels.shape:
            raise ValueError(
                f"{name} must have one number for each of {len(labels)} samples, got shape {np.shape(numbers)}"
            )
    if classes is not None and len(classes) != values.shape[1]:
        raise ValueError(f"classes has {len(classes)} names, but probs has {values.shape[1]} classes")
    labelled = np.flatnonzero(labels >= 0)
    values, own = values[labelled], labels[labelled]
    if len(np.unique(own)) < 2:
        raise ValueError("given must contain at least 2 classes, got one")
    score, other = scores(values, own)
    order = np.argsort(-score, kind="stable")
    chosen = labelled[order]
    return Suspects(
        ids=chosen if ids is None else np.asarray(ids, dtype=np.int64)[chosen],
        given=labels[chosen],
        suggested=other[order],
        score=score[order],
        estimated=estimated_errors(values, own),
        classes=classes or tuple(str(k) for k in range(values.shape[1])),
        true=None if true is None else np.asarray(true, dtype=np.int64)[chosen],
    )


def of_run(folder: RunFolder) -> Suspects:
    """Rank the training samples of a finished run by its final teacher."""
    teacher = folder.teacher().float().numpy()
    labels, split = folder.labels(), folder.split()
    known = noise.parse(labels.spec).kind in TRUTH_KNOWN
    found = suspect_labels(
        teacher,
        labels.given[split.train],
        ids=split.train,
        classes=folder.data().classes,
        true=labels.true[split.train] if known else None,
    )
    files = folder.data().files
    if files is not None and len(files) != len(labels.given):
        raise ValueError(f"{folder.path} is damaged: it names {len(files)} files, but has {len(labels.given)} labels")
    return dataclasses.replace(found, files=files)


def _checked(probs: ArrayLike, given: ArrayLike) -> tuple[Floats, Labels]:
    values, labels = np.array(probs, dtype=np.float64), np.asarray(given)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"probs must be a non-empty array [samples, classes], got shape {values.shape}")
    if labels.shape != values.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"given must be integers [{len(values)}], got {labels.dtype} of shape {labels.shape}")
    bad = np.flatnonzero((labels < -1) | (labels >= values.shape[1]))
    if len(bad):
        raise ValueError(f"given[{bad[0]}] is {labels[bad[0]]}, but num_classes is {values.shape[1]}")
    if not np.isfinite(values).all() or (values < 0).any():
        row, column = np.argwhere(~(np.isfinite(values) & (values >= 0)))[0]
        raise ValueError(f"probs[{row}, {column}] must be finite and at least 0, got {values[row, column]}")
    total = values.sum(axis=1)
    off = np.flatnonzero((np.abs(total - 1.0) > SUM_TOLERANCE) & (total > 0))  # a row of zeros is unknown
    if len(off):
        raise ValueError(f"probs[{off[0]}] must sum to 1, got {total[off[0]]:.6g}: pass softmax(logits)")
    return values, labels.astype(np.int64)
