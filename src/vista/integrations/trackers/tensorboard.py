"""TensorBoard: ``Watch(TensorBoard("logs/mine"), val_labels)``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from vista.integrations import require_extra

with require_extra("tensorboard"):
    from torch.utils.tensorboard import SummaryWriter

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class TensorBoard:
    """Writes TensorBoard event files.

    Args:
        folder: Where to write them; ``tensorboard --logdir`` reads it or its parent.

    >>> tracker = TensorBoard("logs/mine")    # doctest: +SKIP
    """

    def __init__(self, folder: str | Path) -> None:
        self._writer = SummaryWriter(str(folder))
        self._epoch = 0

    def log(self, epoch: int, values: Mapping[str, float]) -> None:
        self._epoch = epoch
        for name, value in values.items():
            self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def figure(self, name: str, figure: Figure) -> None:
        self._writer.add_figure(name, figure, self._epoch)

    def close(self) -> None:
        self._writer.close()
