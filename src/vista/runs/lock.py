"""The lock of a run's folder: one process at a time may train in it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

FILE = "lock"


@contextmanager
def locked(folder: Path, remedy: str = "choose another --out") -> Iterator[None]:
    """Hold the lock; of a run that is refused before it writes nothing stays. ``remedy`` is for who may not write."""
    made = _missing(folder)
    with _lock_file(folder, remedy) as file:
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            _leave(folder, made)


def _missing(folder: Path) -> list[Path]:
    """The folders that must be made for this one, the innermost first."""
    missing = []
    for place in (folder, *folder.parents):
        if place.is_dir():
            break
        if place.exists():
            raise NotADirectoryError(f"{place} is a file, but a run needs a folder: choose another --out")
        missing.append(place)
    return missing


def _lock_file(folder: Path, remedy: str) -> IO[str]:
    """The file of the lock, locked."""
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = open(folder / FILE, "a+")  # noqa: SIM115  (whoever asks for the lock closes it)
        except OSError as error:
            raise type(error)(f"{folder} cannot be written to: {error.strerror}; {remedy}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(folder / FILE)):
                return file
            file.close()
        except FileNotFoundError:  # its last owner deleted it before we had locked it
            file.close()
        except BlockingIOError as error:
            with file:
                file.seek(0)
                owner = file.read().strip() or "another one"
            raise RuntimeError(f"{folder} is in use by process {owner}: wait until that has ended") from error


def _leave(folder: Path, made: list[Path]) -> None:
    """Take away the lock, and the folders that were made for it, if nothing else came into them."""
    if not folder.is_dir() or [path.name for path in folder.iterdir()] != [FILE]:
        return
    (folder / FILE).unlink()
    for place in made:
        try:
            place.rmdir()
        except OSError:  # somebody else's things lie in it
            return
