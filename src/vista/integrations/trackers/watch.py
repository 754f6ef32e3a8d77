"""Report a training to an experiment tracker: values after each epoch, figures at the end."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vista.analysis import trajectory
from vista.analysis.groups import Group
from vista.analysis.runs import Run, read_run
from vista.core.validation import Integers, as_integers, as_logits, check_all_named, predicted_classes
from vista.core.vista import Summary
from vista.integrations import fitted_values
from vista.report import drawing
from vista.runs.record import VAL_GIVEN, Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = "forgetting", "marginal-coverage", "contributing-set"


class Tracker(Protocol):
    """What a tracker implements; the modules of this package are four of them."""

    def log(self, epoch: int, values: Mapping[str, float]) -> None:
        """Log the values of an epoch by name."""

    def figure(self, name: str, figure: Figure) -> None:
        """Log a figure of the complete training."""

    def close(self) -> None:
        """Finish the tracker's run."""


class Watch:
    """Reports each epoch of a training loop to a tracker; :meth:`close` draws the figures.

    To resume a loop, save :meth:`state_dict` with the state of ``Vista`` and load both. Otherwise the earlier epochs
    are unknown: the deviation gap and the figures are omitted.

    Args:
        tracker: One of ``vista.integrations.trackers.*``, or any object with the methods of :class:`Tracker`.
        val_labels: The validation labels ``[m]`` that ``Vista`` has.

    Example:
        >>> from vista import Vista
        >>> class Printer:
        ...     def log(self, epoch, values):
        ...         print(epoch, values["vista/accuracy"], values["vista/anchors"])
        ...     def figure(self, name, figure):
        ...         pass
        ...     def close(self):
        ...         print("closed")
        >>> labels = torch.arange(6) % 3
        >>> vista, watch = Vista(labels, num_classes=3, epochs=2, val_labels=labels), Watch(Printer(), labels)
        >>> for epoch in vista.epochs():
        ...     _ = vista.loss(torch.zeros(6, 3, requires_grad=True), torch.arange(6))
        ...     val_logits = torch.eye(3)[labels]
        ...     watch.epoch(vista.end_epoch(val_logits), val_logits)
        1 1.0 1.0
        2 1.0 1.0
        >>> watch.close()
        closed
    """

    def __init__(self, tracker: Tracker, val_labels: Integers) -> None:
        self.tracker = tracker
        self._labels = as_integers(val_labels, "val_labels").cpu()
        self._record = Record({VAL_GIVEN: len(self._labels)})
        self._options: dict[str, Any] = {}
        self._is_complete = True  # no epoch since the first is missing

    def epoch(self, summary: Summary, val_logits: Tensor | NDArray[Any], val_index: Integers | None = None) -> None:
        """Report an epoch.

        Args:
            summary: The result of ``end_epoch``; beta, the anchors and their weights are read from it, and what
                :class:`vista.Posterior` has fitted.
            val_logits: The ``val_logits`` ``[m, K]`` passed to ``end_epoch``.
            val_index: The ``val_index`` passed to ``end_epoch``, if any.
        """
        logits = as_logits(val_logits, "val_logits")
        classes = predicted_classes(logits, val_index, len(self._labels), logits.shape[-1], summary.epoch)
        check_all_named(classes >= 0)
        right = (classes == self._labels).numpy()
        if float(right.mean()) != summary.accuracy:
            raise ValueError(
                f"val_logits has accuracy {right.mean():.4g}, but the summary has {summary.accuracy:.4g}: pass the "
                "val_logits and val_index that end_epoch received"
            )
        if self._is_complete and summary.epoch != len(self._record) + 1:
            self._is_complete = False
            warnings.warn(
                f"epoch {summary.epoch} follows {len(self._record)} known epochs, so the deviation gap and the figures "
                "are omitted: to resume, restore the earlier epochs with load_state_dict()",
                stacklevel=2,
            )
        self._options = asdict(summary.options)
        weights = {str(state): weight for state, weight in summary.anchors.items()}
        line = {"epoch": summary.epoch, "anchors": len(weights), "anchor_weights": weights}
        self._record.append(line, {}, {VAL_GIVEN: right})
        values = _epoch_values(summary.beta, summary.anchors, self._record.correct(VAL_GIVEN), fitted_values(summary))
        if not self._is_complete:
            del values["vista/deviation_gap"]
        self.tracker.log(summary.epoch, values)

    def state_dict(self) -> dict[str, Any]:
        """Return the epochs so far as tensors, numbers and strings."""
        rows = torch.from_numpy(self._record.packed(VAL_GIVEN).copy())
        return {
            "samples": len(self._labels),
            "lines": list(self._record.lines),
            "rows": rows,
            "options": self._options,
            "is_whole": self._is_complete,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the epochs of an earlier Watch.

        Args:
            state: The result of :meth:`state_dict` of a Watch with the same validation samples.
        """
        if state["samples"] != len(self._labels):
            raise ValueError(f"the state must have {len(self._labels)} validation samples, got {state['samples']}")
        lines = [dict(line) for line in state["lines"]]
        rows = {VAL_GIVEN: list(state["rows"].cpu().numpy())}
        self._record = Record(self._record.sizes, lines, [{} for _ in lines], rows)
        self._options, self._is_complete = dict(state["options"]), bool(state["is_whole"])

    def close(self) -> None:
        """Draw the figures, if every epoch is known, and close the tracker."""
        record = self._record if self._is_complete else Record(self._record.sizes)
        _log_figures(Run("this training", Path(), record, {"options": self._options}), self.tracker)


def publish(path: str | Path, tracker: Tracker) -> None:
    """Report a run of ``vista train`` to a tracker: its epochs, then the figures. The tracker is closed.

    Args:
        path: The run's folder.
        tracker: One of ``vista.integrations.trackers.*``, or any object with the methods of :class:`Tracker`.

    >>> from vista.integrations.trackers.tensorboard import TensorBoard    # doctest: +SKIP
    >>> publish("runs/digits", TensorBoard("logs/digits"))                 # doctest: +SKIP
    """
    run = read_run(path)
    if not len(run):
        raise ValueError(f"{path} has no completed epoch to publish")
    correct = run.correct()
    for epoch, (line, anchors) in enumerate(zip(run.record.lines, _read_anchors(run), strict=True), 1):
        tracker.log(epoch, _epoch_values(line.get("beta", 0.0), anchors, correct[:epoch], fitted_values(line)))
    _log_figures(run, tracker)


def render_pixels(figure: Figure) -> NDArray[np.uint8]:
    """Render a figure as an image, for trackers that accept no figures.

    Args:
        figure: A matplotlib figure.

    Returns:
        RGB values ``[height, width, 3]``.

    >>> from matplotlib.figure import Figure
    >>> render_pixels(Figure(figsize=(2, 1), dpi=50)).shape
    (50, 100, 3)
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # matplotlib is an extra

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba(), dtype=np.uint8)[..., :3]


def _epoch_values(
    beta: float, anchors: Mapping[int, float], correct: NDArray[np.bool_], fitted: Mapping[str, float]
) -> dict[str, float]:
    """Return the values of the last epoch of ``correct`` ``[t, m]``; the gap is the mean over the epochs so far."""
    return {
        "vista/accuracy": float(correct[-1].mean()),
        "vista/beta": beta,
        "vista/anchors": float(len(anchors)),
        "vista/deviation_gap": float(trajectory.deviation_gap(correct).mean()),
        **{f"vista/{name}": value for name, value in fitted.items()},
        **{f"vista/weight/{state}": weight for state, weight in anchors.items()},
    }


def _read_anchors(run: Run) -> list[dict[int, float]]:
    """Return each epoch's anchors and weights; a run of a method without anchors has none."""
    if not run.keeps_anchors:
        return [{} for _ in run.record.lines]
    return [{int(s) + 1: float(row[s]) for s in row.nonzero()[0]} for row in run.anchor_weights]


def _log_figures(run: Run, tracker: Tracker) -> None:
    try:
        groups = [Group(run.name, (run,))] if len(run) else []
        for name in drawing.drawable(groups):
            if name in FIGURES:
                tracker.figure(name, drawing.draw(name, groups))
    finally:
        tracker.close()
