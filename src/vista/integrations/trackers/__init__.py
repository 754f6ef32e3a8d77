"""Trackers: what each epoch's end decided, and figures at the end, where people already look.

>>> watch = Watch(TensorBoard("logs"), val_labels)    # doctest: +SKIP
>>> watch.epoch(vista.end_epoch(logits), logits)      # doctest: +SKIP
>>> watch.close()                                     # doctest: +SKIP
"""

from __future__ import annotations

from pathlib import Path

from vista.analysis import trajectory
from vista.analysis.runs import read_run
from vista.integrations.trackers.telling import FIGURES, Tracker, end_with_figures, epoch_values, pixels
from vista.integrations.trackers.watch import Watch

__all__ = ["FIGURES", "Tracker", "Watch", "end_with_figures", "epoch_values", "pixels", "publish"]


def publish(path: str | Path, tracker: Tracker) -> None:
    """Tell a tracker of a run that ``vista train`` has made, epoch by epoch."""
    run = read_run(path)
    if not len(run):
        raise ValueError(f"{path} has no finished epoch: there is nothing to publish yet")
    correct = run.correct()
    credit = trajectory.credit(correct, run.options["tau"], run.options["order"])
    weights = trajectory.anchor_weights(correct, credit, run.options["weights"])
    for epoch, (line, row) in enumerate(zip(run.record.lines, weights, strict=True), 1):
        anchors = {int(s) + 1: float(row[s]) for s in row.nonzero()[0]} if run.keeps_anchors else {}
        tracker.log(epoch, epoch_values(line.get("beta", 0.0), anchors, correct[:epoch]))
    end_with_figures(run, tracker)
