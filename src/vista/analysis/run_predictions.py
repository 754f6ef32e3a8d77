"""What a finished run predicts for its samples, by kind of evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vista.analysis.joint import Floats, Labels
from vista.runs.folder import RunFolder
from vista.runs.predictions import Predictions

EVIDENCE = BY_TEACHER, BY_TRAINING, HELD_OUT, OUT_OF_FOLD = (
    "teacher",
    "training predictions",
    "held out",
    "out of fold",
)


@dataclass(frozen=True, eq=False)
class Group:
    """Samples of a run that are judged by the same kind of prediction."""

    ids: Labels
    probs: Floats
    given: Labels
    evidence: str


def make_group(ids: Labels, probs: NDArray[Any], given: Labels, evidence: str) -> Group | None:
    """Samples with a label and a prediction; ``None`` if no sample has both."""
    values = np.asarray(probs, dtype=np.float64)
    if len(values) != len(ids):
        raise ValueError(f"the run is damaged: {len(values)} predictions ({evidence}), but {len(ids)} samples")
    rows = np.flatnonzero((given[ids] >= 0) & values.any(axis=1))
    return Group(ids[rows], values[rows], given[ids[rows]], evidence) if len(rows) else None


def held_out(kept: Predictions | None, part: str, ids: Labels, given: Labels, evidence: str = HELD_OUT) -> Group | None:
    """Samples that were not trained on; the fused prediction is used if the method has one, else the best epoch's."""
    if kept is None or not len(ids):
        return None
    name = next((f"{which}.{part}" for which in ("fused", "best") if f"{which}.{part}" in kept.logits), None)
    if name is None:
        return None
    logits = kept.logits[name].astype(np.float64)
    exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
    return make_group(ids, exponents / exponents.sum(axis=1, keepdims=True), given, evidence)


def joined(groups: Sequence[Group]) -> Group | None:
    """Several groups with the same evidence as one."""
    if not groups:
        return None
    ids, probs, given = (np.concatenate([getattr(each, name) for each in groups]) for name in ("ids", "probs", "given"))
    return Group(ids, probs, given, groups[0].evidence)


def out_of_fold(folder: RunFolder, given: Labels) -> Group | None:
    """Samples that the runs of a cross-validation below the run predicted without having been trained on them.

    Args:
        folder: A run; `vista labels RUN --folds K` trains the others.
        given: Its labels.

    Returns:
        All labelled samples; ``None`` without a finished cross-validation.
    """
    groups = []
    for run in folder.folds():
        if not np.array_equal(run.labels().given, given):
            raise ValueError(f"{run.path} was trained on other labels than {folder.path}: delete {run.path.parent}")
        split = run.split()
        outside = np.setdiff1d(np.flatnonzero(given >= 0), np.concatenate([split.train, split.val]))
        groups.append(held_out(run.predictions(), "test", outside, given, OUT_OF_FOLD))
    return joined([group for group in groups if group is not None])
