"""Paths of output files: checked so that a command overwrites no input and no part of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, count
from pathlib import Path

from vista import noise
from vista.analysis.recorder import recording_of
from vista.data import source
from vista.runs.config import TrainConfig
from vista.runs.folder import owner_of

PAGE, TABLE = (".html", ".htm"), (".csv",)
Kept = Iterable[tuple[Path, str]]  # files that must not be overwritten, and what each holds


def file_to_write(option: str, given: str, endings: Sequence[str], kept: Kept = ()) -> Path:
    """The path given by an option, if it has one of the endings and may be overwritten."""
    path = Path(given).expanduser()
    if path.is_dir():
        raise IsADirectoryError(f"{option} must be a file, got the folder {path}")
    run = owner_of(path) or recording_of(path)
    if run is not None:
        raise ValueError(f"{option} must be another file, got {path}: it is part of the run {run}")
    held = what_it_holds(path, kept)
    if held is not None:
        other = _free_name(path, endings[0])
        raise ValueError(f"{option} must be another file, such as {other}, got {path}: it holds {held}")
    if path.suffix.lower() not in endings:
        raise ValueError(f"{option} must end in {' or '.join(endings)}, got {path}")
    return path


def folder_to_write(option: str, given: str) -> Path:
    """The folder given by an option, which may not exist yet."""
    if not given:
        raise ValueError(f"{option} must be the path of a folder, got ''")
    path = Path(given).expanduser()
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"{option} must be a folder, got the file {path}")
    return path


def trained_on(config: TrainConfig) -> Kept:
    """The user's files that a run was trained on."""
    labels, data = noise.parse(config.noise).path, source.path_of(config.data, config.root)
    if labels is not None:
        yield Path(labels).expanduser(), "the labels that the run was trained on"
    if data is not None:
        yield data[1], "the samples that the run was trained on"


def what_it_holds(path: Path, kept: Kept) -> str | None:
    """The content that writing the file would destroy, also if it is named differently; None if nothing."""
    return next((held for file, held in kept if path.exists() and file.exists() and path.samefile(file)), None)


def _free_name(path: Path, ending: str) -> Path:
    """An unused path in the same folder: with that ending, or labels-2.csv, labels-3.csv ... for labels.csv."""
    stem, _, number = path.stem.rpartition("-")
    if not stem or not number.isdecimal():
        stem, number = path.stem, "1"
    names = (path.with_name(f"{stem}-{later}{ending}") for later in count(int(number) + 1))
    return next(name for name in chain((path.with_suffix(ending),), names) if not name.exists())
