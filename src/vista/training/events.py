"""Progress events of a training, and the request to stop it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vista.runs.config import TrainConfig

CLOSED = (errno.EPIPE, errno.ECONNRESET, errno.EIO)  # a pipe or terminal without a reader


@dataclass(frozen=True)
class Started:
    """A run starts, or resumes, with the epoch ``epoch``."""

    config: TrainConfig
    folder: Path
    epoch: int
    samples: int  # per epoch
    role: str | None  # what the run is for, if another run needs it first


@dataclass(frozen=True)
class Stepped:
    """``samples`` of the epoch have been trained on so far."""

    epoch: int
    samples: int


@dataclass(frozen=True)
class Waiting:
    """The GPU has work until this CUDA event; other runs may proceed."""

    event: torch.cuda.Event


@dataclass(frozen=True)
class EpochEnded:
    """An epoch's line of the record, and its timings."""

    line: dict[str, Any]
    timing: dict[str, float]


@dataclass(frozen=True)
class Finished:
    """A run has finished; its folder holds weights and metrics."""

    folder: Path
    metrics: dict[str, Any]
    role: str | None


@dataclass(frozen=True)
class Placed:
    """A worker of a cluster has received a run."""

    host: str
    device: str  # such as ``GPU 0``


@dataclass(frozen=True)
class Lost:
    """A worker of a cluster is gone; its run returns to the queue."""

    host: str
    device: str
    reason: str


Event = Started | Stepped | Waiting | EpochEnded | Finished | Placed | Lost


@dataclass
class Stop:
    """A request to stop: the number of the signal, or 0."""

    signal: int = 0


class OutputClosed(Exception):
    """An event cannot be shown because the reader of the output is gone."""


@contextmanager
def closed_output_detected() -> Iterator[None]:
    """Raise :class:`OutputClosed` for a broken pipe or a closed terminal, but not for other errors of a write."""
    try:
        yield
    except OSError as error:
        if error.errno not in CLOSED:
            raise
        raise OutputClosed from error


class Interrupted(Exception):
    """The run was asked to stop, and a checkpoint has been written."""

    def __init__(self, folder: Path, signal: int) -> None:
        self.folder, self.signal = folder, signal
        super().__init__(f"stopped in {folder}")
