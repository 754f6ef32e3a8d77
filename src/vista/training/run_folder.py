"""The folder of a run: what lies where, who may write it, and the trained network out of it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from vista import durable
from vista.noise import NoisyLabels
from vista.split import Split
from vista.training.config import TrainConfig
from vista.training.record import Record

CONFIG, ENVIRONMENT, DATA, METRICS = "config.json", "environment.json", "data.json", "metrics.json"
LABELS, SPLIT, TEACHER, LOCK = "labels.safetensors", "split.safetensors", "teacher.safetensors", "lock"
EARLIER = "earlier"
Which = Literal["best", "last"]


@dataclass(frozen=True)
class RunFolder:
    """A run by its path; nothing is read before it is asked for."""

    path: Path

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """An existing run."""
        folder = cls(Path(path))
        if not (folder.path / CONFIG).is_file():
            what = "does not exist" if not folder.path.exists() else f"is no run: it has no {CONFIG}"
            raise FileNotFoundError(f"{folder.path} {what}; `vista runs` lists the runs of a folder")
        return folder

    def config(self) -> TrainConfig:
        return TrainConfig.from_json(durable.read_json(self.path / CONFIG))

    def environment(self) -> dict[str, Any]:
        return dict(durable.read_json(self.path / ENVIRONMENT))

    def data(self) -> dict[str, Any]:
        """Class names, shapes and hashes of what the run was trained on."""
        return dict(durable.read_json(self.path / DATA))

    def labels(self) -> NoisyLabels:
        return NoisyLabels.load(self.path / LABELS)

    def split(self) -> Split:
        return Split.load(self.path / SPLIT)

    def record(self) -> Record:
        return Record.read(self.path)

    def metrics(self) -> dict[str, Any]:
        """Final metrics; only a finished run has them."""
        if not self.is_finished():
            raise FileNotFoundError(f"{self.path} has not finished: `vista resume {self.path}` goes on with it")
        return dict(durable.read_json(self.path / METRICS))

    def teacher(self) -> Tensor:
        """What the method believes of the training samples at the end, float16 ``[N, K]``."""
        if not (self.path / TEACHER).exists():
            raise FileNotFoundError(
                f"{self.path} has no {TEACHER}: its method keeps no teacher, or it has not finished"
            )
        return _tensors(self.path / TEACHER)["teacher"]

    def weights(self, which: Which) -> dict[str, Tensor]:
        path = self.path / f"{which}.safetensors"
        if not path.exists():
            raise FileNotFoundError(f"{path} is not there: the run has not finished (`vista resume {self.path}`)")
        return _tensors(path)

    def is_finished(self) -> bool:
        return (self.path / METRICS).exists()

    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())

    def delete(self) -> None:
        shutil.rmtree(self.path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time may train in a folder."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / LOCK, "a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.seek(0)
                owner = file.read().strip() or "another one"
                raise RuntimeError(f"{self.path} is in use by process {owner}; choose another --out or wait") from error
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged or cut short: {error}") from error


def find_runs(root: str | Path) -> list[RunFolder]:
    """Every run below a folder, runs that others needed first left out."""
    configs = sorted(Path(root).rglob(CONFIG))
    return [RunFolder(c.parent) for c in configs if EARLIER not in c.parent.relative_to(root).parts]
