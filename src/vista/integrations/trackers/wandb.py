"""Weights & Biases: ``Watch(WandB("digits"), val_labels)``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vista.integrations import comes_with
from vista.integrations.trackers import pixels

with comes_with("wandb"):
    import wandb

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class WandB:
    """A run of a project. It stays in ``folder`` until ``wandb sync``, unless ``mode="online"``."""

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
        self._run.log({name: wandb.Image(pixels(figure))})

    def close(self) -> None:
        self._run.finish()
