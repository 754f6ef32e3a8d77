"""The folder of a run: what lies where, and what is read out of it; runs below a folder."""

from __future__ import annotations

import errno
import math
import os
import shutil
from collections.abc import Container, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from vista import models
from vista.files import atomic, shell
from vista.noise import NoisyLabels
from vista.runs import checkpoint, lock
from vista.runs.config import TrainConfig
from vista.runs.description import DataDescription
from vista.runs.predictions import FILE as PREDICTIONS
from vista.runs.predictions import Predictions
from vista.runs.record import COVERAGE, EPOCHS, TIMINGS, Record
from vista.split import Split

CONFIG, ENVIRONMENT, DATA, METRICS = "config.json", "environment.json", "data.json", "metrics.json"
LABELS, SPLIT, TEACHER = "labels.safetensors", "split.safetensors", "teacher.safetensors"
EARLIER, TENSORBOARD, ASIDE = "earlier", "tensorboard", ".replaced"
MOST_THREADS = 1024
LONGEST_NAME = 255  # bytes, on any disk
Which = Literal["best", "last"]
WEIGHTS: dict[Which, str] = {"best": "best.safetensors", "last": "last.safetensors"}
OWN = frozenset((
    CONFIG, ENVIRONMENT, DATA, METRICS, LABELS, SPLIT, TEACHER, PREDICTIONS, *WEIGHTS.values(), EPOCHS, TIMINGS,
    COVERAGE, EARLIER, TENSORBOARD, checkpoint.FOLDER, checkpoint.BLOBS, lock.FILE,
))  # fmt: skip
LITTER = frozenset((".DS_Store", "Thumbs.db", "desktop.ini"))  # what file managers leave: nobody's work
CHECKPOINT_FILES = frozenset((checkpoint.STATE, checkpoint.TENSORS, checkpoint.MANIFEST))


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
        values = _read_object(self.path / CONFIG)
        try:
            return TrainConfig.from_json(values)
        except ValueError as error:
            raise ValueError(f"{self.path / CONFIG} cannot be used: {error}") from error

    def environment(self) -> dict[str, Any]:
        return _read_object(self.path / ENVIRONMENT)

    def threads(self) -> int | None:
        """CPU threads that the run started with; ``None`` if it recorded none."""
        threads = self.environment().get("threads")
        if threads is None:
            return None
        if not isinstance(threads, int) or not 1 <= threads <= MOST_THREADS:
            raise _damaged(self.path / ENVIRONMENT, f"threads is {threads!r}, expected 1 to {MOST_THREADS}")
        return threads

    def data(self) -> DataDescription:
        """Class names, shapes, preprocessing and hashes of the data."""
        try:
            return DataDescription.from_json(_read_object(self.path / DATA))
        except ValueError as error:
            if str(self.path / DATA) in str(error):
                raise
            raise _damaged(self.path / DATA, str(error)) from error

    def labels(self) -> NoisyLabels:
        return NoisyLabels.load(self.path / LABELS)

    def split(self) -> Split:
        return Split.load(self.path / SPLIT)

    def record(self) -> Record:
        return Record.read(self.path)

    def seconds(self) -> float:
        """Time that the run took, the runs that it needed first included."""
        return self.record().seconds() + self.earlier_seconds()

    def earlier_seconds(self) -> float:
        """Time that the runs took that it needed first."""
        return sum(run.seconds() for run in find_runs(self.path / EARLIER))

    def resume_command(self) -> str:
        """How to go on with the run, as its own user would write it."""
        network = self.config().network
        named = ("--network", network) if models.is_from_outside(network) else ()
        return shell.command("vista", "resume", self.path, *named)

    def metrics(self) -> dict[str, Any]:
        """Final metrics; only a finished run has them."""
        if not self.is_finished():
            raise FileNotFoundError(f"{self.path} has not finished: `{self.resume_command()}` goes on with it")
        values = _read_object(self.path / METRICS)
        self.check_metrics(values, ("best.test.top1", "last.test.top1", "best.test.ece", "best.test.aurc"))
        return values

    def check_metrics(self, values: dict[str, Any], places: Iterable[str]) -> None:
        """Refuse metrics that lack a number."""
        if found := lacking(values, places):
            raise _damaged(self.path / METRICS, found)

    def temperature(self, which: Which) -> float | None:
        """Fitted temperature of these weights; ``None`` for a run without calibration, such as an older one."""
        calibration = self.metrics().get("calibration") if self.is_finished() else None
        if not isinstance(calibration, dict) or calibration.get(which) is None:
            return None
        values = {"calibration": calibration}
        self.check_metrics(values, [f"calibration.{which}.temperature"])
        found = float(calibration[which]["temperature"])
        if found <= 0:
            raise _damaged(self.path / METRICS, f"calibration.{which}.temperature must be positive, got {found}")
        return found

    def teacher(self) -> Tensor:
        """What the method believes of the training samples at the end, float16 ``[N, K]``."""
        if not (self.path / TEACHER).exists():
            raise FileNotFoundError(
                f"{self.path} has no {TEACHER}: its method keeps no teacher, or it has not finished"
            )
        tensors = _tensors(self.path / TEACHER)
        if "teacher" not in tensors:
            raise _damaged(self.path / TEACHER, "it has no 'teacher'")
        return tensors["teacher"]

    def predictions(self) -> Predictions:
        """Predicted classes of the training samples by epoch, their mean prediction, and the final logits."""
        return Predictions.load(self.path)

    def weights(self, which: Which) -> dict[str, Tensor]:
        path = self.path / WEIGHTS[which]
        if not path.exists():
            why = "the run was kept without its weights"
            if not self.is_finished():
                why = f"the run has not finished (`{self.resume_command()}`)"
            raise FileNotFoundError(f"{path} is not there: {why}")
        return _tensors(path)

    def is_finished(self) -> bool:
        return (self.path / METRICS).exists()

    def is_kept_read_only(self) -> bool:
        """Whether it is finished and nobody may write to it: then nobody needs its lock."""
        return self.is_finished() and not os.access(self.path, os.W_OK)

    def strangers(self, besides: Container[str] = ()) -> list[str]:
        """Paths in the folder that no training put there; names in ``besides`` may lie beside what it did put there."""
        names = (path.name for path in self.path.iterdir() if path.name not in OWN and path.name not in besides)
        found = [name for name in names if not atomic.is_temporary(name)]
        for folder in (TENSORBOARD, checkpoint.FOLDER, checkpoint.BLOBS):
            files = (Path(place, name) for place, _, names in os.walk(self.path / folder) for name in names)
            inside = (file.relative_to(self.path) for file in files)
            found += [file.as_posix() for file in inside if not _is_own_inside(file)]
        for path in (self.path / EARLIER).glob("*"):
            below = [f"/{name}" for name in RunFolder(path).strangers(besides)] if path.is_dir() else [""]
            found += [f"{EARLIER}/{path.name}{name}" for name in below]
        return sorted(name for name in found if name.rpartition("/")[2] not in LITTER)

    def size(self) -> int:
        """Bytes on disk, checkpoints below --checkpoint-dir included, without other runs that the folder holds."""
        inside = _size(self.path, {str(run.path) for run in find_runs(self.path)} - {str(self.path)})
        return inside + sum(map(checkpoints_size, self._roots_in_checkpoint_dir()))

    def checkpoints_size(self) -> int:
        """Bytes on disk of its checkpoints and blobs."""
        return checkpoints_size(self.checkpoint_root())

    def checkpoint_root(self) -> Path:
        """The folder that holds ``checkpoints/`` and ``blobs/``: the one on record in ``config.json``, or this one."""
        try:
            recorded = atomic.read_object(self.path / CONFIG).get("checkpoint_dir")
        except (OSError, ValueError):
            return self.path
        if isinstance(recorded, str) and checkpoint.is_in_checkpoint_dir(Path(recorded)):
            return Path(recorded)
        return self.path

    def choose_checkpoint_root(self, checkpoint_dir: str | None) -> Path:
        """The folder for the run's checkpoints.

        Args:
            checkpoint_dir: The parent of the run's checkpoint folder, or that folder; ``None`` for the one on record.

        Returns:
            The folder on record, or the one of that name in ``checkpoint_dir``; of a run without one on record a new
            one in ``checkpoint_dir``, or the run folder.

        Raises:
            FileNotFoundError: If the folder on record has lost its parent, as on a disk that is not mounted.
            ValueError: If checkpoints would be left behind, or the folder is a symbolic link.
        """
        recorded = chosen = self.checkpoint_root()
        if checkpoint_dir is not None:
            given = Path(checkpoint_dir).expanduser()
            parent = (given.parent if checkpoint.is_in_checkpoint_dir(given) else given).resolve()
            is_recorded = recorded != self.path
            chosen = parent / (recorded.name if is_recorded else checkpoint.new_name_in_checkpoint_dir(self.path))
        if chosen == recorded:
            if chosen != self.path and not chosen.parent.is_dir():
                raise FileNotFoundError(
                    f"{chosen.parent} does not exist, but {self.path} has its checkpoints there: mount the disk, or "
                    "give the new path with --checkpoint-dir"
                )
        elif checkpoint.Checkpoints(recorded).names() and not checkpoint.Checkpoints(chosen).names():
            there = recorded / checkpoint.FOLDER
            remedy = f"move {recorded} to {chosen.parent} first, or resume without" if is_recorded else "resume without"
            raise ValueError(f"{self.path} has its checkpoints in {there}: {remedy} --checkpoint-dir")
        if chosen != self.path:
            atomic.reject_link(chosen)
        return chosen

    def _roots_in_checkpoint_dir(self) -> list[Path]:
        """Folders below --checkpoint-dir of this run and of those that it needed first."""
        earlier = self.path / EARLIER
        configs = [] if earlier.is_symlink() else files_named(CONFIG, earlier)
        roots = [run.checkpoint_root() for run in (self, *(RunFolder(config.parent) for config in configs))]
        return [root for root in roots if checkpoint.is_in_checkpoint_dir(root)]

    def reject_links(self) -> None:
        """Reject symbolic links at every path that a training, or the removal of the run, writes to or deletes."""
        for name in sorted(OWN):
            atomic.reject_link(self.path / name)
        checkpoint.reject_links(self.path)
        for name in atomic.list_entries(self.path / EARLIER) if (self.path / EARLIER).is_dir() else ():
            atomic.reject_link(self.path / EARLIER / name)
            RunFolder(self.path / EARLIER / name).reject_links()

    def delete(self) -> None:
        """Delete the run folder, and the run's own entries below --checkpoint-dir."""
        for root in self._roots_in_checkpoint_dir():
            if not root.is_symlink():
                checkpoint.delete_checkpoints(root)
        try:
            shutil.rmtree(self.path)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
            raise type(error)(f"{self.path} cannot be deleted: {error.strerror}; {WRITABLE}") from error

    def locked(self) -> AbstractContextManager[None]:
        """One process at a time may train in a folder; a run that is there has its place."""
        return lock.locked(self.path, WRITABLE) if (self.path / CONFIG).exists() else lock.locked(self.path)


def _size(root: Path, without: Container[str] = ()) -> int:
    """Bytes on disk of all files below a folder but for some folders in it."""
    total = 0
    for place, folders, files in os.walk(root):
        folders[:] = [name for name in folders if os.path.join(place, name) not in without]
        for name in files:
            with suppress(FileNotFoundError):  # a checkpoint may give way to the next one meanwhile
                total += os.stat(os.path.join(place, name), follow_symlinks=False).st_size
    return total


def checkpoints_size(root: Path) -> int:
    """Bytes on disk of the checkpoints and blobs below a folder."""
    folders = (root / checkpoint.FOLDER, root / checkpoint.BLOBS)
    return sum(_size(folder) for folder in folders if not folder.is_symlink())


def _is_own_inside(file: Path) -> bool:
    """Whether a training writes such a file to one of a run's folders; by its path in the run."""
    folder, name = file.parts[:2]
    if atomic.is_temporary(file.name):
        return True
    if folder == TENSORBOARD:
        return len(file.parts) == 2 and name.startswith("events.out.tfevents.")
    depth = 3 if folder == checkpoint.FOLDER else 2
    is_known = depth == 2 or file.name in CHECKPOINT_FILES
    return len(file.parts) == depth and is_known and checkpoint.OWN_NAMES[folder].fullmatch(name) is not None


def _read_object(path: Path) -> dict[str, Any]:
    """What a JSON file of a run holds."""
    try:
        return atomic.read_object(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path} is gone: {AGAIN}") from error
    except ValueError as error:
        raise ValueError(f"{error}; {AGAIN}") from error


def lacking(values: dict[str, Any], places: Iterable[str]) -> str | None:
    """Which of these places of a finished run's metrics holds no number, and what it holds; ``None`` if all do."""
    for place in places:
        found: Any = values
        for name in place.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        if not isinstance(found, int | float) or not math.isfinite(found):
            return f"{place} is {found!r}, where a finished run has a number"
    return None


def _damaged(path: Path, what: str) -> ValueError:
    return ValueError(f"{path} is damaged: {what}; {AGAIN}")


WRITABLE = "make it writable first"
AGAIN = "put the file back, or make the run again with --fresh"


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged or cut short: {error}") from error


def owner_of(path: Path) -> Path | None:
    """The run that the file is a part of, or would be; a page or a list that somebody put there is none."""
    path = path.resolve()
    places = (place for place in path.parents if (place / CONFIG).is_file())
    return next((place for place in places if path.relative_to(place).parts[0] in OWN), None)


def find_runs(root: str | Path) -> list[RunFolder]:
    """Every run below a folder, runs that others needed first left out."""
    folders = dict.fromkeys(config.parent for config in files_named(CONFIG, root))
    return [RunFolder(folder) for folder in folders if not _is_needed_by_another(folder, folders)]


def _is_needed_by_another(folder: Path, runs: Container[Path]) -> bool:
    """Whether it lies in ``earlier/`` of a run, or in one that does; any other folder may have that name."""
    return any(place.name == EARLIER and place.parent in runs for place in folder.parents)


def files_named(name: str, root: str | Path) -> list[Path]:
    """Every file of that name below a folder, but for runs set aside; what another process removes is passed over."""
    found = []
    for place, folders, files in os.walk(root):
        folders[:] = [folder for folder in folders if not is_set_aside(folder)]
        found += [Path(place) / name] if name in files else []
    return sorted(found)


def aside_of(run: Path) -> Path:
    """Where a run waits, beside its place, until the one that is to replace it has begun."""
    place = run.resolve()
    name = f".{place.name}{ASIDE}"
    if (over := len(os.fsencode(name)) - LONGEST_NAME) > 0:
        raise ValueError(f"{place.name} is too long a name for a run, by {over} bytes: choose another --out")
    return place.parent / name


def is_set_aside(name: str) -> bool:
    """Whether a folder of this name is a run out of its place."""
    return name.startswith(".") and name.endswith(ASIDE)


def set_aside_below(root: Path) -> list[Path]:
    """Every run below a folder that was set aside; a symbolic link, as the folder or in it, is not followed."""
    if root.is_symlink():
        return []
    folders = (Path(place) / name for place, names, _ in os.walk(root) for name in names if is_set_aside(name))
    return sorted(folder for folder in folders if not folder.is_symlink())
