"""What happens in a training, as the loop tells it, and the wish to stop it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vista.training.config import TrainConfig

GONE = (errno.EPIPE, errno.ECONNRESET, errno.EIO)  # a pipe or a terminal without its other end


@dataclass(frozen=True)
class Started:
    config: TrainConfig
    folder: Path
    epoch: int  # the first one that will run
    samples: int  # per epoch
    role: str | None  # what a run is for that another one needs first


@dataclass(frozen=True)
class Stepped:
    epoch: int
    samples: int  # of this epoch, so far


@dataclass(frozen=True)
class Waiting:
    """The card has enough to do until this event."""

    event: torch.cuda.Event


@dataclass(frozen=True)
class EpochEnded:
    line: dict[str, Any]  # the epoch's line of the record
    timing: dict[str, float]


@dataclass(frozen=True)
class Finished:
    folder: Path
    metrics: dict[str, Any]
    role: str | None


Event = Started | Stepped | Waiting | EpochEnded | Finished


@dataclass
class Stop:
    """A wish to stop, set by a signal: its number, or 0."""

    signal: int = 0


class NobodyReads(Exception):
    """What happened cannot be shown: whoever read it is gone."""


@contextmanager
def somebody_reads() -> Iterator[None]:
    """Around what is shown or sent: an end that is gone is told from other faults, such as that of a disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in GONE:
            raise
        raise NobodyReads from error


class Interrupted(Exception):
    """The run was asked to stop; a checkpoint is in place."""

    def __init__(self, folder: Path, signal: int) -> None:
        self.folder, self.signal = folder, signal
        super().__init__(f"stopped in {folder}")
