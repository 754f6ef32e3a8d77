r"""Label issues: samples whose given label is unlikely by predicted probabilities, and how many labels are wrong.

The score of a sample labelled y compares y with the most likely other class j:

.. math::  0.9 \cdot \frac{1 + p_j - p_y}{2} + 0.1 \cdot \frac{s_j}{s_j + s_y}

with :math:`s_k = p_k / \sqrt{t_k}` and the threshold :math:`t_k`, the mean of :math:`p_k` over the samples labelled k.
The first term is cleanlab's normalised margin; the second also ranks samples whose probability is spread over many
classes. The thresholds enter by their square root because wrong labels lower the threshold of a rare class that
receives them. The score is between 0 and 1; above 1/2 another class is more likely. :mod:`vista.analysis.joint`
estimates the number of wrong labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vista import noise
from vista.analysis.joint import (
    Floats,
    Labels,
    NoiseEstimate,
    calibrate_joint,
    confident_joint,
    count_wrong,
    estimate_noise,
    rescale_joint,
    thresholds,
)
from vista.analysis.run_predictions import (
    BY_TEACHER,
    BY_TRAINING,
    Group,
    held_out,
    joined,
    make_group,
    out_of_fold,
)
from vista.analysis.runs import TRUTH_KNOWN
from vista.metrics import SUM_TOLERANCE
from vista.runs.folder import TEACHER, RunFolder
from vista.runs.predictions import FILE as PREDICTIONS
from vista.runs.predictions import Predictions

PRECISION_AT = (10, 50, 100, 500, 1000, 5000)
MARGIN = 0.9  # weight of the normalised margin in the score
MEMORISED = 0.1  # training minus validation accuracy on given labels above which the labels are memorised
UNSETTLED = 0.1  # share of predictions that change in the last epoch above which training is too short


@dataclass(frozen=True, eq=False, repr=False)
class LabelIssues:
    """All judged samples, most suspect first, and the estimated label noise.

    Attributes:
        ids: Sample ids ``[n]``; of a run, positions in the original, unsplit data.
        given: Given labels ``[n]``.
        suggested: Most likely other class ``[n]``.
        score: Scores ``[n]`` from 0 to 1, descending; above 0.5 the suggested class is more likely than the given one.
        joint: Estimated number of samples by given and true label ``[K, K]``.
        estimated: Estimated number of wrong labels.
        interval: Its 95 % interval, lower and upper end.
        classes: Class names ``[K]``.
        true: True labels ``[n]``, where known.
        files: File of each sample by id, for data in files.
        evidence: What each sample was judged by ``[n]``: ``teacher``, ``training predictions`` or ``held out``.
        unjudged: Number of samples that were not judged, by reason.
        caution: Why the estimate may be off, if there is a reason.

    >>> probs = np.array([[0.9, 0.1], [0.2, 0.8], [0.8, 0.2], [0.1, 0.9], [0.9, 0.1]])
    >>> found = find_label_issues([0, 1, 0, 1, 1], probs)
    >>> found.ids[found.is_doubted], found.suggested[:1]
    (array([4]), array([0]))
    """

    ids: Labels
    given: Labels
    suggested: Labels
    score: Floats
    joint: Floats
    estimated: int
    interval: tuple[int, int]
    classes: tuple[str, ...]
    true: Labels | None = None
    files: Sequence[str] | None = None
    evidence: NDArray[np.str_] | None = None
    unjudged: Mapping[str, int] = field(default_factory=dict)
    caution: str | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        """The estimate, and the five most suspect labels, one per line."""
        low, high = self.interval
        lines = [f"LabelIssues({self.estimated:,} of {len(self):,} labels estimated wrong, {low:,} to {high:,})"]
        for sample, given, suggested, score in list(zip(self.ids, self.given, self.suggested, self.score, strict=True))[
            :5
        ]:
            name = str(sample) if self.files is None else f"{sample} {self.files[sample]}"
            lines.append(f"  {name}: {self.classes[given]} -> {self.classes[suggested]}, score {score:.2f}")
        if len(self) > 5:
            lines.append("  ...")
        return "\n".join(lines)

    @property
    def noise_rate(self) -> float:
        """Estimated share of wrong labels among the judged samples."""
        return count_wrong(self.joint) / len(self)

    @property
    def is_doubted(self) -> NDArray[np.bool_]:
        """Whether another class is more likely than the given one, ``[n]``."""
        return self.score > 0.5

    def pairs(self) -> list[tuple[int, int, float]]:
        """List the confusions of classes.

        Returns:
            Given class, true class and estimated number of samples, most frequent first.

        >>> probs = np.array([[0.9, 0.1], [0.2, 0.8], [0.8, 0.2], [0.1, 0.9], [0.9, 0.1]])
        >>> [(given, true) for given, true, _ in find_label_issues([0, 1, 0, 1, 1], probs).pairs()]
        [(1, 0)]
        """
        off = self.joint - np.diag(np.diag(self.joint))
        cells = np.argsort(-off, axis=None, kind="stable")[: np.count_nonzero(off)]
        return [(int(i), int(j), float(off[i, j])) for i, j in zip(*np.unravel_index(cells, off.shape), strict=True)]

    def quality(self) -> dict[str, Any] | None:
        """Measure the ranking, where the true labels are known.

        Returns:
            ``wrong``, ``precision_at``, ``auroc`` and ``average_precision``; ``None`` without true labels.

        >>> probs = np.array([[0.9, 0.1], [0.2, 0.8], [0.8, 0.2], [0.1, 0.9], [0.9, 0.1]])
        >>> find_label_issues([0, 1, 0, 1, 1], probs, true=[0, 1, 0, 1, 0]).quality()["auroc"]
        1.0
        """
        return None if self.true is None else ranking_quality(self.score, self.given != self.true)


def scores(probs: Floats, given: Labels, used: NDArray[np.bool_] | None = None) -> tuple[Floats, Labels]:
    r"""Score of each given label by the formula above, and the suggested class j, ``[n]``.

    Args:
        probs: Predicted probabilities ``[n, K]``.
        given: Given labels ``[n]``.
        used: Classes that may be suggested ``[K]``; default: those that occur in ``given``.

    Returns:
        Scores and suggested classes, ``[n]`` each.
    """
    rows, usual = np.arange(len(given)), thresholds(probs, given)
    own = probs[rows, given]
    allowed = np.isfinite(usual) if used is None else used
    usual = np.where(np.isfinite(usual), usual, own.mean())
    root = np.sqrt(np.where(usual > 0, usual, 1.0))  # a class with probability 0 everywhere
    others = np.where(allowed, probs, -1.0)
    others[rows, given] = -1.0
    other = others.argmax(axis=1)
    highest = np.maximum(others[rows, other], 0.0)
    scaled, scaled_own = highest / root[other], own / root[given]
    total = scaled + scaled_own
    share = np.divide(scaled, total, out=np.full(len(given), 0.5), where=total > 0)
    return MARGIN * (1 + highest - own) / 2 + (1 - MARGIN) * share, other


def align(found: Sequence[Floats], wrong: Sequence[float]) -> list[Floats]:
    """Make scores by different kinds of predictions comparable: those of smaller groups are replaced by rank.

    Predictions for held-out samples are more extreme than those for training samples, so that their scores would fill
    the top of a common list. The sample of rank r in a group of which w labels are estimated to be wrong gets the score
    of rank r W / w in the largest group, of which W are, but none above 1/2 if its own is not.

    Args:
        found: Scores of each group.
        wrong: Estimated number of wrong labels in each group.

    Returns:
        Scores of each group; those of the largest are unchanged.

    >>> align([np.array([0.9, 0.6, 0.2, 0.1]), np.array([0.4, 0.99])], [2.0, 1.0])[1].round(2)
    array([0.15, 0.75])
    """
    largest = max(range(len(found)), key=lambda k: len(found[k]))
    model, total = -np.sort(-found[largest]), wrong[largest]
    aligned = []
    for score, count in zip(found, wrong, strict=True):
        if score is found[largest] or not total:
            aligned.append(score)
            continue
        ranks = np.argsort(np.argsort(-score, kind="stable"), kind="stable")
        place = (ranks + 0.5) * total / max(count, 0.5) - 0.5
        taken = np.interp(place, np.arange(len(model)), model)
        aligned.append(np.where(score > 0.5, taken, np.minimum(taken, 0.5)))
    return aligned


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


def find_label_issues(
    labels: ArrayLike,
    pred_probs: ArrayLike,
    *,
    ids: ArrayLike | None = None,
    classes: Sequence[str] | None = None,
    true: ArrayLike | None = None,
) -> LabelIssues:
    """Rank samples by how unlikely their label is, and estimate how many labels are wrong.

    Use predictions for samples that the model was not trained on (cross-validation), or a teacher of past states:
    predictions of a model for its own training samples repeat wrong labels, and the estimate is then too low.

    Args:
        labels: Given labels ``[n]``; -1 means unlabelled.
        pred_probs: Predicted probabilities ``[n, K]`` of any model. A row of zeros means that there is no prediction.
        ids: Ids to report ``[n]``; default: 0..n-1.
        classes: Class names ``[K]``.
        true: True labels ``[n]``, to measure the quality of the ranking.

    Returns:
        The judged samples, most suspect first, with the joint of given and true labels, the estimated number of wrong
        labels and its interval. Samples without label or prediction are counted in ``unjudged``.

    Example:
        >>> import numpy as np
        >>> import vista
        >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.9, 0.1], [0.1, 0.9]])
        >>> found = vista.find_label_issues([0, 0, 1, 1], probs)
        >>> int(found.ids[0]), int(found.suggested[0]), found.estimated
        (2, 0, 1)
    """
    values, given = _checked(pred_probs, labels)
    for name, numbers in (("ids", ids), ("true", true)):
        if numbers is not None and np.shape(numbers) != given.shape:
            raise ValueError(
                f"{name} must have one number for each of {len(given)} samples, got shape {np.shape(numbers)}"
            )
    if classes is not None and len(classes) != values.shape[1]:
        raise ValueError(f"classes has {len(classes)} names, but pred_probs has {values.shape[1]} classes")
    predicted = values.any(axis=1)
    judged = np.flatnonzero((given >= 0) & predicted)
    if len(np.unique(given[judged])) < 2:
        raise ValueError("labels must contain at least 2 classes with predictions")
    values, own = values[judged], given[judged]
    noise_of_all = estimate_noise(values, own)
    score, other = scores(values, own)
    order = np.argsort(-score, kind="stable")
    chosen = judged[order]
    missing = {"no label": given < 0, "no prediction": (given >= 0) & ~predicted}
    return LabelIssues(
        ids=chosen if ids is None else np.asarray(ids, dtype=np.int64)[chosen],
        given=given[chosen],
        suggested=other[order],
        score=score[order],
        joint=noise_of_all.joint,
        estimated=round(count_wrong(noise_of_all.joint)),
        interval=_whole(len(own) * noise_of_all.low, len(own) * noise_of_all.high),
        classes=tuple(classes) if classes is not None else tuple(str(k) for k in range(values.shape[1])),
        true=None if true is None else np.asarray(true, dtype=np.int64)[chosen],
        unjudged={reason: int(rows.sum()) for reason, rows in missing.items() if rows.any()},
    )


def of_run(folder: RunFolder) -> LabelIssues:
    """Judge every sample of a finished run, and estimate how many labels are wrong.

    Training samples are judged by their mean prediction during training, or by the final teacher of a run that kept
    none; validation and held-out test samples by the final network, which was not trained on them; the scores of both
    are aligned. Predictions for training samples are
    biased towards the given labels, so the share of wrong training labels is estimated from samples that were held out
    of the same labels at random; the training predictions say which classes are confused.

    After a cross-validation below the run, every sample is judged by the network that was not trained on it.

    Args:
        folder: A finished run of any method.

    Returns:
        All judged samples, most suspect first.
    """
    labels, split, data = folder.labels(), folder.split(), folder.data()
    given, classes = labels.given, data.classes
    if data.files is not None and len(data.files) != len(given):
        raise ValueError(f"{folder.path} is damaged: it names {len(data.files)} files, but has {len(given)} labels")
    if (highest := int(given.max(initial=-1))) >= len(classes):
        raise ValueError(f"{folder.path} is damaged: it names {len(classes)} classes, but has the label {highest}")
    folds, has_teacher = out_of_fold(folder, given), (folder.path / TEACHER).exists()
    kept = folder.predictions() if (folder.path / PREDICTIONS).exists() or not has_teacher else None
    inside = np.concatenate([split.train, split.val])
    outside = np.setdiff1d(np.flatnonzero(given >= 0), inside)
    by_training = np.zeros((len(split.train), 0)) if kept is None else kept.mean
    if has_teacher and not by_training.shape[1]:
        train = make_group(split.train, folder.teacher().float().numpy(), given, BY_TEACHER)
    else:
        train = make_group(split.train, by_training, given, BY_TRAINING)
    val, test = (held_out(kept, part, ids, given) for part, ids in (("val", split.val), ("test", outside)))
    kind = noise.parse(labels.spec).kind
    is_own_validation = bool(len(split.val)) and int(split.val.min()) > int(split.train.max())
    # Synthetic noise and label files change training labels only, so held-out test labels differ from them.
    pooled = [val] * (not is_own_validation) + [test] * (kind == "none")
    alike = joined([group for group in pooled if group is not None])
    others = [group for group in (val, test) if group is not None and not any(group is each for each in pooled)]
    if folds is not None:
        train, alike, others = None, folds, []
    groups = [group for group in (*others, alike, train) if group is not None]
    if not groups:
        raise ValueError(f"{folder.path} has no prediction for any labelled sample")
    estimates = _estimates(train, alike, others)
    judged = np.concatenate([group.ids for group in groups])
    used = np.bincount(given[judged], minlength=len(classes)) > 0
    if np.count_nonzero(used) < 2:
        raise ValueError(f"{folder.path} must have judged samples of at least 2 classes, got one")
    found = [scores(group.probs, group.given, used) for group in groups]
    score = np.concatenate(align([each for each, _ in found], [count_wrong(each.joint) for _, each in estimates]))
    order = np.lexsort((judged, -score))
    low, high = (sum(size * getattr(each, end) for size, each in estimates) for end in ("low", "high"))
    joint = np.sum([each.joint for _, each in estimates], axis=0)
    missing = {
        "no label": int(np.count_nonzero(given < 0)),
        "no prediction": int(np.count_nonzero(given >= 0)) - len(judged),
        "separate test set": 0 if len(outside) else data.samples.get("test", 0),
    }
    return LabelIssues(
        ids=judged[order],
        given=given[judged[order]],
        suggested=np.concatenate([other for _, other in found])[order],
        score=score[order],
        joint=joint,
        estimated=round(count_wrong(joint)),
        interval=_whole(low, high),
        classes=classes,
        true=labels.true[judged[order]] if kind in TRUTH_KNOWN else None,
        files=data.files,
        evidence=np.concatenate([np.full(len(group.ids), group.evidence) for group in groups])[order],
        unjudged={reason: count for reason, count in missing.items() if count},
        caution=_caution(kept, given, split.train, split.val, train, alike),
    )


def _estimates(train: Group | None, alike: Group | None, others: Sequence[Group]) -> list[tuple[int, NoiseEstimate]]:
    """Size and noise of each group; that of the training samples by held-out samples with labels of the same source."""
    found = [(len(group.ids), estimate_noise(group.probs, group.given)) for group in others]
    known = None if alike is None else estimate_noise(alike.probs, alike.given)
    if alike is not None and known is not None:
        found.append((len(alike.ids), known))
    if train is None:
        return found
    if known is None:
        return [*found, (len(train.ids), estimate_noise(train.probs, train.given))]
    sizes = np.bincount(train.given, minlength=train.probs.shape[1])
    joint = calibrate_joint(confident_joint(train.probs, train.given), sizes)
    wrong = len(train.ids) * known.share
    if count_wrong(joint) == 0 < wrong:  # memorised completely: take the pattern of the held-out samples
        rows = known.joint.sum(axis=1, keepdims=True)
        joint = np.where(rows > 0, known.joint / np.maximum(rows, 1e-300), np.eye(len(sizes))) * sizes[:, None]
    return [*found, (len(train.ids), NoiseEstimate(rescale_joint(joint, wrong), known.share, known.low, known.high))]


def _caution(
    kept: Predictions | None,
    given: Labels,
    train: Labels,
    val: Labels,
    by_training: Group | None,
    alike: Group | None,
) -> str | None:
    """Why the estimated number of wrong labels may be off: the network was trained too long or too briefly.

    It names no number of epochs: on few samples, one may be too small and the next too large.
    """
    if by_training is not None and (by_training.probs[np.arange(len(by_training.ids)), by_training.given] == 1).all():
        return "The predictions for training samples equal the given labels: train for more epochs."
    if alike is None:
        return (
            "No predictions of held-out samples with labels of the same source are stored: the estimate is based on "
            "predictions for training samples and is likely too low."
        )
    if kept is None or len(kept.classes) < 2 or "last.val" not in kept.logits:
        return None
    labelled = (given[train] >= 0) & (kept.classes[-1] >= 0) & (kept.classes[-2] >= 0)
    if not labelled.any() or not len(val):
        return None
    last, before, own = kept.classes[-1][labelled], kept.classes[-2][labelled], given[train][labelled]
    fit, accuracy = float(np.mean(last == own)), float(np.mean(kept.logits["last.val"].argmax(axis=1) == given[val]))
    is_cross_validated = by_training is None
    trust = "Trust the ranking, not the number"
    if fit - accuracy > MEMORISED:
        return (
            f"The network is overtrained for this estimate: it predicts {100 * fit:.0f} % of the given training "
            f"labels, but {100 * accuracy:.0f} % of the validation labels. {trust}"
            + ("." if is_cross_validated else "; `vista labels RUN --folds 5` estimates it from all samples.")
        )
    changed = float(np.mean(last != before))
    if changed > UNSETTLED:
        return (
            f"The network is undertrained for this estimate: {100 * changed:.0f} % of the training predictions changed "
            f"in the last epoch, and its errors count as wrong labels. {trust}; a better "
            "network, such as a pretrained one, makes fewer errors."
        )
    return None


def _whole(low: float, high: float) -> tuple[int, int]:
    return math.floor(low + 1e-9), math.ceil(high - 1e-9)


def _checked(probs: ArrayLike, given: ArrayLike) -> tuple[Floats, Labels]:
    values, labels = np.array(probs, dtype=np.float64), np.asarray(given)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"pred_probs must be a non-empty array [samples, classes], got shape {values.shape}")
    if labels.shape != values.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"labels must be integers [{len(values)}], got {labels.dtype} of shape {labels.shape}")
    bad = np.flatnonzero((labels < -1) | (labels >= values.shape[1]))
    if len(bad):
        raise ValueError(f"labels[{bad[0]}] is {labels[bad[0]]}, but num_classes is {values.shape[1]}")
    if not np.isfinite(values).all() or (values < 0).any():
        row, column = np.argwhere(~(np.isfinite(values) & (values >= 0)))[0]
        raise ValueError(f"pred_probs[{row}, {column}] must be finite and at least 0, got {values[row, column]}")
    total = values.sum(axis=1)
    off = np.flatnonzero((np.abs(total - 1.0) > SUM_TOLERANCE) & (total > 0))  # a row of zeros is unknown
    if len(off):
        raise ValueError(f"pred_probs[{off[0]}] must sum to 1, got {total[off[0]]:.6g}: pass softmax(logits)")
    return values, labels.astype(np.int64)
