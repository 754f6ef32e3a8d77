"""Sort the images of a folder into the classes of corrected labels: copied elsewhere, or moved within the folder."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vista.core.validation import suggest
from vista.files import atomic
from vista.review.decisions import Labels

UNDO = "undo-move.sh"


@dataclass(frozen=True)
class Step:
    """One file and its new path; ``target`` is None for a sample without a label, which is not copied."""

    source: Path
    target: Path | None


def plan_copy(folder: Path, to: Path, files: Sequence[str], labels: Labels, classes: Sequence[str]) -> list[Step]:
    """Every file below ``folder``, and its path below ``to`` in the folder of its label.

    Args:
        folder: The data.
        to: The new folder, which must be empty or missing.
        files: Path of each sample in ``folder``.
        labels: Label of each sample, -1 for none.
        classes: Class names, which are the names of the class folders.
    """
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ValueError(f"copy_to must be a new or empty folder, got {to}")
    if to.resolve().is_relative_to(folder):
        raise ValueError(f"copy_to must be outside the data in {folder}, got {to}")
    taken: set[Path] = set()
    return [
        Step(folder / name, None if label < 0 else _free(to / _relabelled(name, classes, int(label)), taken))
        for name, label in zip(files, labels.tolist(), strict=True)
    ]


def plan_move(folder: Path, files: Sequence[str], given: Labels, labels: Labels, classes: Sequence[str]) -> list[Step]:
    """The files whose label changes; those without a label go to a folder beside the data, ``NAME-unlabelled``."""
    taken: set[Path] = set()
    steps = []
    for name, old, new in zip(files, given.tolist(), labels.tolist(), strict=True):
        if new == old:
            continue
        if new < 0:
            target = folder.with_name(f"{folder.name}-unlabelled") / name
        else:
            target = folder / _relabelled(name, classes, int(new))
        steps.append(Step(folder / name, _free(target, taken)))
    return steps


def _relabelled(name: str, classes: Sequence[str], label: int) -> PurePosixPath:
    """The path with the class folder replaced: ``train/cat/7.png`` becomes ``train/dog/7.png``."""
    parts = PurePosixPath(name).parts
    place = next((k for k in (0, 1) if k < len(parts) - 1 and parts[k] in classes), None)
    if place is None or ".." in parts:
        raise ValueError(f"{name} is in no class folder; {suggest(parts[0], classes)}")
    return PurePosixPath(*parts[:place], classes[label], *parts[place + 1 :])


def _free(path: Path, taken: set[Path]) -> Path:
    """The path, or one with a number where a file of that name exists."""
    found, number = path, 2
    while found in taken or found.exists():
        found, number = path.with_name(f"{path.stem}-{number}{path.suffix}"), number + 1
    taken.add(found)
    return found


def copy(steps: Sequence[Step]) -> Iterator[Step]:
    """Copy the files, one at a time."""
    for step in steps:
        if step.target is not None:
            step.target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(step.source, step.target)
        yield step


def move(steps: Sequence[Step], undo: Path) -> Iterator[Step]:
    """Move the files, one at a time; a shell script that moves them back is written first.

    Args:
        steps: A plan of :func:`plan_move`.
        undo: The script; it must not exist, because it may hold the way back of an earlier move.
    """
    missing = next((step.source for step in steps if not step.source.is_file()), None)
    if missing is not None:
        raise FileNotFoundError(f"{missing} does not exist: the data have changed since the run; nothing was moved")
    lines = [
        "#!/bin/sh",
        "# Moves the files back that `vista labels --move` moved; existing files are not overwritten.",
    ]
    for step in steps:
        new, old = (shlex.quote(str(path)) for path in (step.target, step.source))
        lines.append(f"[ ! -e {new} ] || mv -n -- {new} {old}")
    with open(os.open(undo, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755), "wb") as file:
        file.write(("\n".join(lines) + "\n").encode("utf-8", "surrogateescape"))
        file.flush()
        os.fsync(file.fileno())
    atomic.sync_folder(undo.parent)
    for step in steps:
        assert step.target is not None
        step.target.parent.mkdir(parents=True, exist_ok=True)
        os.rename(step.source, step.target)
        yield step


def undo_path(run: Path) -> Path:
    """A free name for the script in the run folder."""
    numbered = (run / f"undo-move-{number}.sh" for number in range(2, 1000))
    return next(path for path in (run / UNDO, *numbered) if not path.exists())
