"""Where a command may write."""

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
Kept = Iterable[tuple[Path, str]]  # files that must stay, and what each holds


def file_to_write(option: str, given: str, endings: Sequence[str], kept: Kept = ()) -> Path:
    """The file that an option names: by its ending what is written there, and nothing that would be lost."""
    path = Path(given).expanduser()
    if path.is_dir():
        raise IsADirectoryError(f"{option} is {path}, which is a folder, but a file is needed")
    run = owner_of(path) or recording_of(path)
    if run is not None:
        raise ValueError(f"{option} is {path}, which is part of the run {run}: name another file")
    held = what_it_holds(path, kept)
    if held is not None:
        advice = f"name another file, such as {_free_name(path, endings[0])}"
        raise ValueError(f"{option} is {path}, which holds {held}: {advice}")
    if path.suffix.lower() not in endings:
        raise ValueError(f"{option} is {path}, but it must end in {' or '.join(endings)}")
    return path


def folder_to_write(option: str, given: str) -> Path:
    """The folder that an option names, there or not yet."""
    path = Path(given).expanduser()
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"{option} is {path}, which is a file, but a folder is needed")
    return path


def trained_on(config: TrainConfig) -> Kept:
    """The files of the user's own that a run was trained on: without them it cannot be made again."""
    labels, data = noise.parse(config.noise).path, source.path_of(config.data, config.root)
    if labels is not None:
        yield Path(labels).expanduser(), "the labels that the run was trained on"
    if data is not None:
        yield data[1], "the samples that the run was trained on"


def what_it_holds(path: Path, kept: Kept) -> str | None:
    """What would be lost if the file were written: it is one of those that stay, maybe by another name."""
    return next((held for place, held in kept if path.exists() and place.exists() and path.samefile(place)), None)


def _free_name(path: Path, ending: str) -> Path:
    """A name beside it that is free: its own with that ending, or of labels.csv labels-2.csv, labels-3.csv ..."""
    stem, _, number = path.stem.rpartition("-")
    if not stem or not number.isdecimal():
        stem, number = path.stem, "1"
    names = (path.with_name(f"{stem}-{later}{ending}") for later in count(int(number) + 1))
    return next(name for name in chain((path.with_suffix(ending),), names) if not name.exists())
