"""Two finished runs on the same test samples and labels, such as before and after labels were corrected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vista import metrics
from vista.runs.folder import RunFolder, Which
from vista.training.evaluate import logits
from vista.training.samples import load_source


@dataclass(frozen=True)
class BeforeAfter:
    """Test results of two runs.

    Attributes:
        samples: Number of test samples.
        changed: Number of test labels of the second run that differ from those of the first.
        left_out: Test samples of the second run that the first was trained on, which are not counted.
        before, after: Metrics on the test labels of the second run.
        before_uncorrected: Metrics of the first run on its own labels of the same samples, where it has them.
        difference: Accuracy after minus before.
        standard_error: Standard error of the difference over the test samples, which both runs share.
    """

    samples: int
    changed: int | None
    left_out: int
    before: dict[str, Any]
    after: dict[str, Any]
    before_uncorrected: dict[str, Any] | None
    difference: float
    standard_error: float


def compare_before_after(
    before: RunFolder, after: RunFolder, which: Which = "best", device: str = "auto", root: str | None = None
) -> BeforeAfter:
    """Test two finished runs on the test labels of the second.

    Args:
        before: The first run.
        after: The second run, whose data must still be there. Class names and sample shapes must be the same.
        which: Weights of the best validation epoch, or of the last.
        device: Where to compute.
        root: Folder that contains the data sets, if it has moved.

    Returns:
        The results of both.
    """
    first, second = before.data(), after.data()
    if first.classes != second.classes:
        raise ValueError(f"the runs must have the same classes, but {before.path} and {after.path} differ")
    data = load_source(after.config(), root if root is not None else after.config().root)
    if second.inputs_hash not in (None, data.inputs_hash) or second.test_hash not in (None, data.test_hash):
        raise ValueError(f"{data.name} has changed since {after.path} was trained: restore the data and its labels")
    values, labels = data.test_samples(), data.test_labels
    old, kept = _labels_before(before, data), np.arange(len(labels))
    if old is not None:
        kept = np.flatnonzero(old >= _UNKNOWN)
        if not len(kept):
            raise ValueError(f"{before.path} was trained on all test samples of {after.path}: use --split-from")
        old, values, labels = old[kept], values[kept], labels[kept]
    left_out = len(data.test_labels) - len(kept)
    scores = [logits(folder, which, values, device) for folder in (before, after)]
    right = [(each.argmax(axis=1) == labels).astype(np.float64) for each in scores]
    gain = right[1] - right[0]
    error = float(gain.std(ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else 0.0
    has_old = old is not None and bool((old >= 0).all())
    return BeforeAfter(
        samples=len(labels),
        changed=int(np.count_nonzero(old != labels)) if has_old else None,
        left_out=left_out,
        before=metrics.classification_report(scores[0], labels),
        after=metrics.classification_report(scores[1], labels),
        before_uncorrected=metrics.classification_report(scores[0], old) if has_old and old is not None else None,
        difference=float(gain.mean()),
        standard_error=error,
    )


_UNKNOWN, _TRAINED_ON = -1, -2


def _labels_before(before: RunFolder, data: Any) -> np.ndarray | None:
    """The label that each test sample had in the first run: -1 if it had none, -2 if the run was trained on it.

    ``None`` for a separate test set, which no run is trained on.
    """
    if data.test_ids is None:
        return None
    given, split = before.labels().given, before.split()
    labels = given.copy()
    labels[np.concatenate([split.train, split.val])] = _TRAINED_ON
    if before.data().inputs_hash in (None, data.inputs_hash):
        found: np.ndarray = labels[data.test_ids]
        return found
    hashes = before.content_hashes()
    if hashes is None:
        raise ValueError(
            f"{before.path} has other samples, and did not record their content: the runs cannot be compared"
        )
    known = dict(zip(hashes, labels.tolist(), strict=True))
    return np.array([known.get(data.hash_of(int(sample)), _UNKNOWN) for sample in data.test_ids], dtype=np.int64)
