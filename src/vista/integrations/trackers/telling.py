"""What a tracker takes, and what it is told: the numbers of an epoch, and figures at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vista.analysis import trajectory
from vista.analysis.groups import Group
from vista.analysis.runs import Run
from vista.report import drawing

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
