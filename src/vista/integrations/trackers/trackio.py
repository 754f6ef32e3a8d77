"""trackio: ``Watch(Trackio("digits"), val_labels)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from vista.integrations import comes_with

with comes_with("trackio"):
    import trackio

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Trackio:
    """A run of a project, in trackio's local store."""

    def __init__(self, project: str, *, name: str | None = None) -> None:
        self._run = trackio.init(project=project, name=name, embed=False)
        self._epoch = 0

    def log(self, epoch: int, values: Mapping[str, float]) -> None:
        self._epoch = epoch
        self._run.log(dict(values), step=epoch)

    def figure(self, name: str, figure: Figure) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # only here are figures needed as pixels

        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()
        self._run.log({name: trackio.Image(np.asarray(canvas.buffer_rgba())[..., :3])}, step=self._epoch)

    def close(self) -> None:
        self._run.finish()
