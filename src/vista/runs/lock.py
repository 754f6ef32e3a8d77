"""The lock of a run folder: one process at a time may train in it.

The lock file is opened without following links, and written only once it is locked and known to be a regular file with
a single name: a link at its path never changes its target.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
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
        file = _open(folder, remedy)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            there = os.fstat(file.fileno())
            if os.path.samestat(there, os.lstat(folder / FILE)):
                if there.st_nlink > 1:
                    file.close()
                    raise _wrong_kind(folder, "a hard link to another file")
                return file
            file.close()
        except FileNotFoundError:  # its last owner deleted it before we had locked it
            file.close()
        except BlockingIOError as error:
            with file:
                file.seek(0)
                owner = file.read().strip() or "another one"
            raise RuntimeError(f"{folder} is in use by process {owner}: wait until that has ended") from error
        except OSError as error:
            file.close()
            raise type(error)(
                f"{folder / FILE} cannot be locked: {error.strerror}; use a run folder on a disk that supports flock, "
                "such as a local one"
            ) from error


def _open(folder: Path, remedy: str) -> IO[str]:
    """The file of the lock, unchanged; neither a link nor anything but a regular file."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        kinds = {errno.ELOOP: "a symbolic link", errno.EISDIR: "a folder", errno.ENXIO: "a socket"}
        if error.errno in kinds and folder.is_dir():
            raise _wrong_kind(folder, kinds[error.errno]) from error
        raise type(error)(f"{folder} cannot be written to: {error.strerror}; {remedy}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _wrong_kind(folder, "a special file")
    return os.fdopen(handle, "r+")


def _wrong_kind(folder: Path, kind: str) -> ValueError:
    return ValueError(f"{folder / FILE} is {kind}, but the lock must be a regular file of its own: remove it")


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
