"""Scalars per epoch for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vista.runs.folder import TENSORBOARD
from vista.training.events import EpochEnded, Event, Finished, Started
from vista.training.scheduler import Job


class Scalars:
    """One writer per run; numbers of an epoch that is done again after a resume replace the old ones."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError(
                "--tensorboard needs the package tensorboard: pip install 'vista-distill[tensorboard]'"
            ) from error
        self._open: Any = SummaryWriter
        self._writers: dict[Path, Any] = {}

    def __enter__(self) -> Scalars:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()

    def __call__(self, job: Job, event: Event) -> None:
        match event:
            case Started(role=None):
                place = event.folder / TENSORBOARD
                self._writers[job.out] = self._open(str(place), purge_step=event.epoch)
            case EpochEnded() if job.out in self._writers:  # runs that this one needs first come before it
                for name, value in event.line.items():
                    if isinstance(value, int | float) and name not in ("epoch", "best"):
                        self._writers[job.out].add_scalar(name, value, event.line["epoch"])
                self._writers[job.out].flush()
            case Finished(role=None) if job.out in self._writers:
                self._writers.pop(job.out).close()
