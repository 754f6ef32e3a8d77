"""trackio: ``Watch(Trackio("digits"), val_labels)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vista.integrations import require_extra
from vista.integrations.trackers import render_pixels

with require_extra("trackio"):
    import trackio

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Trackio:
    """Logs to a new run of a project in trackio's local store.

    Args:
        project: Name of the project.
        name: Name of the run; by default trackio chooses one.

    >>> tracker = Trackio("digits")    # doctest: +SKIP
    """

    def __init__(self, project: str, *, name: str | None = None) -> None:
        self._run = trackio.init(project=project, name=name, embed=False)
        self._epoch = 0

    def log(self, epoch: int, values: Mapping[str, float]) -> None:
        self._epoch = epoch
        self._run.log(dict(values), step=epoch)

    def figure(self, name: str, figure: Figure) -> None:
        self._run.log({name: trackio.Image(render_pixels(figure))}, step=self._epoch)

    def close(self) -> None:
        self._run.finish()
