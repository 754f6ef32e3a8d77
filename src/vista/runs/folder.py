"""The folder of a run: its files, read and verified, and the search for runs below a folder.

``manifest.json`` of a finished run holds the SHA-256 of its files, which are compared whenever one is read. Runs of
versions without a manifest are read without this check.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import shutil
from collections.abc import Container, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from vista import models
from vista.files import array_file, atomic, reader, shell
from vista.files.reader import DamagedFile
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
CONTENT = "content.safetensors"
CONTENT_FORMAT, CONTENT_VERSION = "vista.content", "1"
EARLIER, FOLDS, TENSORBOARD, ASIDE, MANIFEST = "earlier", "folds", "tensorboard", ".replaced", "manifest.json"
FOLD_LABELS = "labels.csv"  # in FOLDS: the labels that the runs of a cross-validation train on
MANIFEST_FORMAT = 1
MOST_THREADS = 1024
LONGEST_NAME = 255  # bytes, on common file systems
Which = Literal["best", "last"]
WEIGHTS: dict[Which, str] = {"best": "best.safetensors", "last": "last.safetensors"}
VERIFIED = frozenset((
    CONFIG, ENVIRONMENT, DATA, METRICS, LABELS, SPLIT, CONTENT, TEACHER, PREDICTIONS, *WEIGHTS.values(), EPOCHS,
    TIMINGS, COVERAGE,
))  # fmt: skip
FOLDERS = frozenset((EARLIER, FOLDS, TENSORBOARD, checkpoint.FOLDER, checkpoint.BLOBS, checkpoint.STORE))
OWN = VERIFIED | FOLDERS | {MANIFEST, lock.FILE}
LITTER = frozenset((".DS_Store", "Thumbs.db", "desktop.ini"))  # files of file managers


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
        """The resolved configuration."""
        values = self._read_object(CONFIG)
        try:
            return TrainConfig.from_json(values)
        except ValueError as error:
            raise ValueError(f"{self.path / CONFIG} cannot be used: {error}") from error

    def environment(self) -> dict[str, Any]:
        """Machine and versions."""
        return self._read_object(ENVIRONMENT)

    def threads(self) -> int | None:
        """CPU threads that the run started with; ``None`` if it recorded none."""
        threads = self.environment().get("threads")
        if threads is not None and (not isinstance(threads, int) or not 1 <= threads <= MOST_THREADS):
            raise DamagedFile(self.path / ENVIRONMENT, f"threads must be 1 to {MOST_THREADS}, got {threads!r}")
        return threads

    def data(self) -> DataDescription:
        """Class names, shapes, preprocessing and hashes of the data."""
        values = self._read_object(DATA)
        try:
            return DataDescription.from_json(values)
        except ValueError as error:
            raise DamagedFile(self.path / DATA, str(error)) from error

    def labels(self) -> NoisyLabels:
        """Given and true labels of all samples."""
        return NoisyLabels.load(self._verified(LABELS))

    def split(self) -> Split:
        """Ids of the training and validation samples."""
        return Split.load(self._verified(SPLIT))

    def write_content_hashes(self, hashes: Sequence[str]) -> None:
        """Write the SHA-256 of every sample, by which a sample is found again after its file was moved."""
        values = np.frombuffer(bytes.fromhex("".join(hashes)), dtype=np.uint8).reshape(len(hashes), -1)
        atomic.write(self.path / CONTENT, array_file.to_bytes({"sha256": values}, CONTENT_FORMAT, CONTENT_VERSION))

    def content_hashes(self) -> list[str] | None:
        """SHA-256 of every sample; ``None`` if the run recorded none: its data are not files, or it is an older run."""
        if not (self.path / CONTENT).exists():
            return None
        arrays, _ = array_file.read(self._verified(CONTENT), CONTENT_FORMAT, CONTENT_VERSION)
        if "sha256" not in arrays:
            raise DamagedFile(self.path / CONTENT, "it has no array 'sha256'")
        return [row.tobytes().hex() for row in arrays["sha256"]]

    def record(self) -> Record:
        """The epochs so far."""
        for name in (COVERAGE, EPOCHS, TIMINGS):
            if (self.path / name).exists():
                self._verified(name)
        return Record.read(self.path)

    # ------------------------------------------------------------ checksums

    def write_manifest(self, metrics: bytes) -> None:
        """Write ``manifest.json`` of a run that is about to finish.

        Args:
            metrics: The content of ``metrics.json``, which is written next and marks the run as finished.
        """
        there = [name for name in sorted(VERIFIED - {METRICS}) if (self.path / name).exists()]
        files = {name: reader.sha256(self.path / name) for name in there}
        files[METRICS] = hashlib.sha256(metrics).hexdigest()
        content = {"format": MANIFEST_FORMAT, "files": files, "sha256": _digest(files)}
        atomic.write_json(self.path / MANIFEST, content)

    def _verified(self, name: str) -> Path:
        """The path of a file, after its checksum was compared if the run has finished with a manifest."""
        path, manifest = self.path / name, self.path / MANIFEST
        if not self.is_finished() or not manifest.exists():
            return path
        values = reader.read_object(manifest)
        files = values.get("files")
        if values.get("format") != MANIFEST_FORMAT:
            raise DamagedFile(manifest, f"format must be {MANIFEST_FORMAT}, got {values.get('format')!r}")
        if not isinstance(files, dict) or values.get("sha256") != _digest(files):
            raise DamagedFile(manifest, "its entries do not have the checksum they were written with")
        if reader.sha256(path) != files.get(name):
            remedy = f"restore it, or delete {MANIFEST} if you changed it on purpose"
            raise DamagedFile(path, f"it does not have the checksum in {MANIFEST}", remedy)
        return path

    def _read_object(self, name: str) -> dict[str, Any]:
        return reader.read_object(self._verified(name))

    # ------------------------------------------------------------ times and results

    def seconds(self) -> float:
        """Training time, including the runs that it needed first."""
        return self.record().seconds() + self.earlier_seconds()

    def earlier_seconds(self) -> float:
        """Training time of the runs that it needed first."""
        return sum(run.seconds() for run in find_runs(self.path / EARLIER))

    def fold(self, number: int, count: int) -> RunFolder:
        """The run of a cross-validation that tests on one of ``count`` parts."""
        return RunFolder(self.path / FOLDS / f"{number}-of-{count}")

    def folds(self) -> list[RunFolder]:
        """The runs of the finished cross-validation with the most parts below this run; empty without one."""
        names = (path.name.rpartition("-of-")[2] for path in (self.path / FOLDS).glob("1-of-*"))
        for count in sorted((int(name) for name in names if name.isdecimal()), reverse=True):
            runs = [self.fold(number, count) for number in range(1, count + 1)]
            if all(run.is_finished() for run in runs):
                return runs
        return []

    def resume_command(self) -> str:
        """The command that resumes the run."""
        network = self.config().network
        named = ("--network", network) if models.is_custom_network(network) else ()
        return shell.command("vista", "resume", self.path, *named)

    def metrics(self) -> dict[str, Any]:
        """Final metrics; only a finished run has them."""
        if not self.is_finished():
            raise FileNotFoundError(f"{self.path} has not finished: `{self.resume_command()}` continues it")
        values = self._read_object(METRICS)
        self.check_metrics(values, ("best.test.top1", "last.test.top1", "best.test.ece", "best.test.aurc"))
        return values

    def check_metrics(self, values: dict[str, Any], places: Iterable[str]) -> None:
        """Reject metrics that lack a number at one of these positions, such as ``best.test.top1``."""
        if found := lacking(values, places):
            raise DamagedFile(self.path / METRICS, found)

    def temperature(self, which: Which) -> float | None:
        """Fitted temperature of these weights; ``None`` for a run without calibration, such as an older one."""
        calibration = self.metrics().get("calibration") if self.is_finished() else None
        if not isinstance(calibration, dict) or calibration.get(which) is None:
            return None
        values = {"calibration": calibration}
        self.check_metrics(values, [f"calibration.{which}.temperature"])
        found = float(calibration[which]["temperature"])
        if found <= 0:
            raise DamagedFile(self.path / METRICS, f"calibration.{which}.temperature must be positive, got {found}")
        return found

    def teacher(self) -> Tensor:
        """The teacher's final class probabilities of the training samples, float16 ``[n, K]``."""
        if not (self.path / TEACHER).exists():
            raise FileNotFoundError(
                f"{self.path} has no {TEACHER}: its method keeps no teacher, or it has not finished"
            )
        tensors = reader.read_tensors(self._verified(TEACHER))
        if "teacher" not in tensors:
            raise DamagedFile(self.path / TEACHER, "it has no tensor 'teacher'")
        return tensors["teacher"]

    def predictions(self) -> Predictions:
        """Predicted classes of the training samples by epoch, their mean prediction, and the final logits."""
        if (self.path / PREDICTIONS).exists():
            self._verified(PREDICTIONS)
        return Predictions.load(self.path)

    def weights(self, which: Which) -> dict[str, Tensor]:
        """Weights of the best validation epoch, or of the last epoch."""
        if not (self.path / WEIGHTS[which]).exists():
            why = "the run was stored without its weights"
            if not self.is_finished():
                why = f"the run has not finished (`{self.resume_command()}`)"
            raise FileNotFoundError(f"{self.path / WEIGHTS[which]} does not exist: {why}")
        return reader.read_tensors(self._verified(WEIGHTS[which]))

    def is_finished(self) -> bool:
        """Whether ``metrics.json`` exists, which is written last."""
        return (self.path / METRICS).exists()

    def is_kept_read_only(self) -> bool:
        """Whether the run has finished and its folder is not writable, so that no lock is needed."""
        return self.is_finished() and not os.access(self.path, os.W_OK)

    def foreign_entries(self, besides: Iterable[str] = ()) -> list[str]:
        """Paths in the folder that no training created, except for file names in ``besides``."""
        found = []
        for path in self.path.iterdir():
            is_folder = path.is_dir() and not path.is_symlink()
            expected = FOLDERS if is_folder else {*OWN, *besides}
            if path.name not in expected and (is_folder or not atomic.is_temporary(path.name)):
                found.append(path.name)
        for folder in (TENSORBOARD, checkpoint.FOLDER, checkpoint.BLOBS, checkpoint.STORE):
            walked = ((Path(place), [*names, *inner]) for place, inner, names in os.walk(self.path / folder))
            files = (place / name for place, names in walked for name in names)
            inside = (file.relative_to(self.path) for file in files if file.is_symlink() or not file.is_dir())
            found += [file.as_posix() for file in inside if not _is_own_inside(file)]
        for path in (*(self.path / EARLIER).glob("*"), *(self.path / FOLDS).glob("*")):
            if path == self.path / FOLDS / FOLD_LABELS and not path.is_dir():
                continue
            below = [f"/{name}" for name in RunFolder(path).foreign_entries(besides)] if path.is_dir() else [""]
            found += [f"{path.parent.name}/{path.name}{name}" for name in below]
        return sorted(name for name in found if name.rpartition("/")[2] not in LITTER)

    def size(self) -> int:
        """Bytes on disk, including checkpoints below --checkpoint-dir, without other runs inside the folder."""
        inside = _size(self.path, {str(run.path) for run in find_runs(self.path)} - {str(self.path)})
        return inside + sum(map(checkpoints_size, self._roots_in_checkpoint_dir()))

    def checkpoints_size(self) -> int:
        """Bytes on disk of its checkpoints and blobs."""
        return checkpoints_size(self.checkpoint_root())

    def checkpoint_root(self) -> Path:
        """The folder that holds ``checkpoints/`` and ``blobs/``: the one in ``config.json``, or this one."""
        try:
            recorded = reader.read_object(self.path / CONFIG).get("checkpoint_dir")
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
            ValueError: If checkpoints would be left behind, the folder is a symbolic link, or this run is a copy of
                another one, to which the checkpoints belong.
        """
        recorded = chosen = self.checkpoint_root()
        if (original := self._original()) is not None:
            raise ValueError(
                f"{self.path} is a copy of {original}, and the checkpoints in {recorded} belong to that run: resume "
                f"{original}, or train the copy from epoch 1 with --fresh"
            )
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

    def _original(self) -> Path | None:
        """The run that the folder below --checkpoint-dir belongs to, if this one is a copy of it; else ``None``."""
        root = self.checkpoint_root()
        owner = None if root == self.path else checkpoint.read_owner(root)
        if owner is None or not owner.is_dir() or RunFolder(owner).checkpoint_root() != root:
            return None  # also if this run was moved, and its old path is free
        return None if owner.samefile(self.path) else owner

    def _roots_in_checkpoint_dir(self) -> list[Path]:
        """Folders below --checkpoint-dir that belong to this run and to the runs that it needed first."""
        earlier = self.path / EARLIER
        configs = [] if earlier.is_symlink() else files_named(CONFIG, earlier)
        runs = (self, *(RunFolder(config.parent) for config in configs))
        roots = [run.checkpoint_root() for run in runs if run._original() is None]
        return [root for root in roots if checkpoint.is_in_checkpoint_dir(root)]

    def reject_links(self) -> None:
        """Reject symbolic links at every path that a training, or the removal of the run, writes to or deletes."""
        for name in sorted(OWN):
            atomic.reject_link(self.path / name)
        checkpoint.reject_links(self.path)
        for folder in (self.path / EARLIER, self.path / FOLDS):
            for name in atomic.list_entries(folder) if folder.is_dir() else ():
                atomic.reject_link(folder / name)
                if name != FOLD_LABELS:
                    RunFolder(folder / name).reject_links()

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

    def locked(self) -> AbstractContextManager[lock.HeldFolder]:
        """Hold the folder's lock: one process at a time may train in it."""
        return lock.locked(self.path, WRITABLE) if (self.path / CONFIG).exists() else lock.locked(self.path)


def _size(root: Path, without: Container[str] = ()) -> int:
    """Bytes on disk of all files below a folder, except for the folders ``without``."""
    total, counted = 0, set[tuple[int, int]]()
    for place, folders, files in os.walk(root):
        folders[:] = [name for name in folders if os.path.join(place, name) not in without]
        for name in files:
            with suppress(FileNotFoundError):  # a checkpoint may be replaced by the next one meanwhile
                status = os.stat(os.path.join(place, name), follow_symlinks=False)
                if (status.st_dev, status.st_ino) not in counted:  # a state may have two names
                    total += status.st_size
                counted.add((status.st_dev, status.st_ino))
    return total


def checkpoints_size(root: Path) -> int:
    """Bytes on disk of the checkpoints and blobs below a folder."""
    folders = (root / checkpoint.FOLDER, root / checkpoint.BLOBS, root / checkpoint.STORE)
    return sum(_size(folder) for folder in folders if not folder.is_symlink())


def _is_own_inside(file: Path) -> bool:
    """Whether a training creates such a file in one of the run's subfolders, by its path relative to the run."""
    folder, name = file.parts[:2]
    if atomic.is_temporary(file.name):
        return True
    if folder == TENSORBOARD:
        return len(file.parts) == 2 and name.startswith("events.out.tfevents.")
    is_own_file = checkpoint.IS_OWN_FILE.get(folder)
    depth = 2 if is_own_file is None else 3
    is_known = is_own_file is None or bool(is_own_file(file.name))
    return len(file.parts) == depth and is_known and checkpoint.OWN_NAMES[folder].fullmatch(name) is not None


def _digest(files: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def lacking(values: dict[str, Any], places: Iterable[str]) -> str | None:
    """The first of these positions in a finished run's metrics without a finite number, as text; ``None`` if none."""
    for place in places:
        found: Any = values
        for name in place.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        if not isinstance(found, int | float) or not math.isfinite(found):
            return f"{place} must be a number, got {found!r}"
    return None


WRITABLE = "make it writable first"


def owner_of(path: Path) -> Path | None:
    """The run that a file with this path belongs to by its name, such as ``RUN/metrics.json``; else ``None``."""
    path = path.resolve()
    runs = (folder for folder in path.parents if (folder / CONFIG).is_file())
    return next((run for run in runs if path.relative_to(run).parts[0] in OWN), None)


def find_runs(root: str | Path) -> list[RunFolder]:
    """Every run below a folder, without the runs that others needed first and those of cross-validations."""
    folders = dict.fromkeys(config.parent for config in files_named(CONFIG, root))
    return [RunFolder(folder) for folder in folders if not _is_needed_by_another(folder, folders)]


def _is_needed_by_another(folder: Path, runs: Container[Path]) -> bool:
    """Whether the folder is below ``earlier/`` or ``folds/`` of a run; any other folder may have that name too."""
    return any(parent.name in (EARLIER, FOLDS) and parent.parent in runs for parent in folder.parents)


def files_named(name: str, root: str | Path) -> list[Path]:
    """Every file of that name below a folder, except in runs that are being replaced."""
    found = []
    for parent, folders, files in os.walk(root):
        folders[:] = [folder for folder in folders if not is_replaced_run(folder)]
        found += [Path(parent) / name] if name in files else []
    return sorted(found)


def replaced_path(run: Path) -> Path:
    """The path that a run is moved to until the run that replaces it has started."""
    path = run.resolve()
    name = f".{path.name}{ASIDE}"
    if (excess := len(os.fsencode(name)) - LONGEST_NAME) > 0:
        raise ValueError(f"the name {path.name} is {excess} bytes too long for a run: choose another --out")
    return path.parent / name


def is_replaced_run(name: str) -> bool:
    """Whether a folder of this name is a run that is being replaced."""
    return name.startswith(".") and name.endswith(ASIDE)


def find_replaced_runs(root: Path) -> list[Path]:
    """Every run below a folder that is being replaced; symbolic links are not followed."""
    if root.is_symlink():
        return []
    folders = (Path(parent) / name for parent, names, _ in os.walk(root) for name in names if is_replaced_run(name))
    return sorted(folder for folder in folders if not folder.is_symlink())
