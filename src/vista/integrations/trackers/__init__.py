"""Trackers: what each epoch's end decided, and figures at the end, where people already look.

>>> watch = Watch(TensorBoard("logs"), val_labels)    # doctest: +SKIP
>>> watch.epoch(vista.end_epoch(logits), logits)      # doctest: +SKIP
>>> watch.close()                                     # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vista.analysis import trajectory
from vista.analysis.runs import Group, Run, read_run
from vista.distiller import Summary
from vista.report import drawing
from vista.training.record import VAL_GIVEN, Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = "forgetting", "marginal-coverage", "contributing-set"


class Tracker(Protocol):
    """What a tracker takes; each is a file here."""

    def log(self, epoch: int, values: Mapping[str, float]) -> None:
        """Numbers of an epoch, by name."""

    def figure(self, name: str, figure: Figure) -> None:
        """A figure of the whole training."""

    def close(self) -> None:
        """Nothing more will come."""


class Watch:
    """Tells a tracker of every epoch of a loop as it ends; ``close`` draws the figures."""

    def __init__(self, tracker: Tracker, val_labels: Tensor | NDArray[Any] | Sequence[int]) -> None:
        self.tracker = tracker
        self._labels = torch.as_tensor(val_labels).cpu()
        self._record = Record({VAL_GIVEN: len(self._labels)})

    def epoch(self, summary: Summary, val_logits: Tensor | NDArray[Any]) -> None:
        """``val_logits`` ``[m, K]`` are those that ``end_epoch`` got, in the order of ``val_labels``."""
        right = (torch.as_tensor(val_logits).argmax(dim=1).cpu() == self._labels).numpy()
        self._record.append({"epoch": summary.epoch, "anchors": len(summary.anchors)}, {}, {VAL_GIVEN: right})
        self.tracker.log(summary.epoch, epoch_values(summary.beta, summary.anchors, self._record.correct(VAL_GIVEN)))

    def close(self) -> None:
        end_with_figures(Run("this training", Path(), self._record), self.tracker)


def publish(path: str | Path, tracker: Tracker) -> None:
    """Tell a tracker of a run that ``vista train`` has made, epoch by epoch."""
    run = read_run(path)
    correct = run.correct()
    credit = trajectory.credit(correct, run.options["tau"], run.options["order"])
    weights = trajectory.anchor_weights(correct, credit, run.options["weights"])
    for epoch, (line, row) in enumerate(zip(run.record.lines, weights, strict=True), 1):
        anchors = {int(s) + 1: float(row[s]) for s in row.nonzero()[0]} if run.keeps_anchors else {}
        tracker.log(epoch, epoch_values(line.get("beta", 0.0), anchors, correct[:epoch]))
    end_with_figures(run, tracker)


def epoch_values(beta: float, anchors: Mapping[int, float], correct: NDArray[np.bool_]) -> dict[str, float]:
    """Numbers of the newest epoch of ``correct`` ``[t, m]``; the gap is the mean over the epochs so far."""
    return {
        "vista/accuracy": float(correct[-1].mean()),
        "vista/beta": beta,
        "vista/anchors": float(len(anchors)),
        "vista/deviation_gap": float(trajectory.deviation_gap(correct).mean()),
        **{f"vista/weight/{state}": weight for state, weight in anchors.items()},
    }


def end_with_figures(run: Run, tracker: Tracker) -> None:
    try:
        for name in FIGURES if len(run) else ():
            tracker.figure(name, drawing.draw(name, [Group(run.name, (run,))]))
    finally:
        tracker.close()


def pixels(figure: Figure) -> NDArray[np.uint8]:
    """The figure as a picture ``[height, width, 3]``, for trackers that take no figures."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # figures are an extra

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba(), dtype=np.uint8)[..., :3]
