"""Weights & Biases: ``Watch(WandB("digits"), val_labels)``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vista.integrations import require_extra
from vista.integrations.trackers import render_pixels

with require_extra("wandb"):
    import wandb

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class WandB:
    """Logs to a new run of a Weights & Biases project.

    Args:
        project: Name of the project.
        name: Name of the run; by default W&B chooses one.
        folder: Where the run's files are stored; by default ``wandb/`` in the working directory.
        mode: ``"offline"`` keeps the run on disk until ``wandb sync``; ``"online"`` uploads it.

    >>> tracker = WandB("digits", folder="logs")    # doctest: +SKIP
    """

    def __init__(
        self,
        project: str,
        *,
        name: str | None = None,
        folder: str | Path | None = None,
        mode: Literal["offline", "online"] = "offline",
    ) -> None:
        self._run = wandb.init(project=project, name=name, dir=folder, mode=mode)

    def log(self, epoch: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=epoch)

    def figure(self, name: str, figure: Figure) -> None:
        self._run.log({name: wandb.Image(render_pixels(figure))})

    def close(self) -> None:
        self._run.finish()
