"""The path of single samples through training: when each method got a validation sample right, and what was predicted
for a suspected training sample."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from vista.analysis.forgetting import per_sample
from vista.analysis.groups import Group, common_labels
from vista.runs.folder import RunFolder
from vista.runs.predictions import FILE as PREDICTIONS

MOST_SAMPLES = 40  # validation samples, those that changed from right to wrong most often


def validation_paths(groups: Sequence[Group]) -> dict[str, Any] | None:
    """Right and wrong epochs of the validation samples that were lost most often, for every method.

    Args:
        groups: Groups of runs with samples; the runs of one seed are shown, which share their validation set.

    Returns:
        JSON values, or None without groups: ``samples`` with id, labels and the run lengths of wrong and right epochs
        by method, starting with wrong; ``total`` counts all validation samples.
    """
    if not groups:
        return None
    labels, first = common_labels(groups), groups[0].runs[0]
    shown = [(g, run) for g in groups if (run := next((r for r in g.runs if r.shares_validation(first)), None))]
    matrices = {group.name: run.correct(labels)[: group.epochs] for group, run in shown}
    lost = sum(per_sample(correct).times_lost for correct in matrices.values())
    order = np.argsort(-np.asarray(lost), kind="stable")[:MOST_SAMPLES]
    ids = np.arange(len(order)) if first.val_ids is None else first.val_ids
    names = first.classes or ()
    samples = []
    for k in order.tolist():
        own = {"id": int(ids[k]) if first.val_ids is not None else k, "lost": int(np.asarray(lost)[k])}
        for key, known in (("given", first.val_labels), ("true", first.val_true if labels == "true" else None)):
            if known is not None and names:
                own[key] = names[int(known[k])]
        own["methods"] = {name: run_lengths(correct[:, k].tolist()) for name, correct in matrices.items()}
        samples.append(own)
    seed = first.seed if len({run.seed for _, run in shown}) == 1 else None
    return {"labels": labels, "seed": seed, "total": int(np.size(lost)), "samples": samples}


def run_lengths(right: Iterable[bool]) -> list[int]:
    """Lengths of the alternating runs of wrong and right epochs; the first is of wrong ones and may be 0.

    >>> run_lengths([True, True, False, True])
    [0, 2, 1, 1]
    """
    found = [(value, sum(1 for _ in own)) for value, own in itertools.groupby(right)]
    lengths = [length for _, length in found]
    return [0, *lengths] if found and found[0][0] else lengths


def predicted_paths(folder: RunFolder, ids: Sequence[int]) -> dict[int, list[int]]:
    """Class and number of epochs, alternating, for each of these samples that was trained on; empty if not kept."""
    if not (folder.path / PREDICTIONS).exists():
        return {}
    classes, train = folder.predictions().classes, folder.split().train
    position = {int(sample): k for k, sample in enumerate(train)}
    return {
        sample: [number for value, own in itertools.groupby(classes[:, position[sample]].tolist())
                 for number in (int(value), sum(1 for _ in own))]
        for sample in ids if sample in position
    }  # fmt: skip
