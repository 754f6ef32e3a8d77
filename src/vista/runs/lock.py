"""The lock of a run folder: one process at a time may train in it.

The lock file is opened without following links, and written only after it is locked and known to be a regular file
with a single name: the target of a link at its path is never changed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO

from vista.files import atomic

FILE = "lock"


class FolderMoved(RuntimeError):
    """The run folder was renamed, replaced or removed while a process trained in it.

    Args:
        path: Its path when the lock was taken.
        now: Its path now; ``None`` if it was removed, or is not known.
    """

    def __init__(self, path: Path, now: Path | None) -> None:
        what = f"moved to {now}" if now else "moved or removed"
        super().__init__(f"{path} was {what} during training: resume it at its new path, or move it back first")
        self.now = now


class HeldFolder:
    """A locked folder, by its descriptor: the folder itself, whatever its path is now."""

    def __init__(self, path: Path) -> None:
        self._path, self._handle = path, os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def check_path(self) -> None:
        """Raise :class:`FolderMoved` unless the folder is still at the path where it was locked."""
        try:
            if os.path.samestat(os.fstat(self._handle), os.stat(self._path)):
                return
        except OSError:
            pass
        now = None
        with suppress(OSError):  # only Linux has the link
            now = Path(os.readlink(f"/proc/self/fd/{self._handle}"))
        raise FolderMoved(self._path, now if now and now.is_dir() else None)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._handle)


@contextmanager
def locked(folder: Path, remedy: str = "choose another --out") -> Iterator[HeldFolder]:
    """Hold the lock of a folder; folders that were created for it are removed again if nothing was written.

    Args:
        folder: The run folder, which is created if needed.
        remedy: Advice for a user who may not write to it.

    Yields:
        The folder, to check that it stays at its path.
    """
    created = _missing(folder)
    with _lock_file(folder, remedy) as file, closing(HeldFolder(folder)) as held:
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        for path in reversed(created or [folder]):  # an existing one may be of a process that ended before the flush
            with suppress(PermissionError):  # a parent that may be written to but not read cannot be opened for fsync
                atomic.sync_folder(path.parent)
        try:
            yield held
        finally:
            _remove_unused(folder, created)


def _missing(folder: Path) -> list[Path]:
    """The folders that must be created for this one, the innermost first."""
    missing = []
    for path in (folder, *folder.parents):
        if path.is_dir():
            break
        if path.exists():
            raise NotADirectoryError(f"{path} is a file, but a run needs a folder: choose another --out")
        missing.append(path)
    return missing


def _lock_file(folder: Path, remedy: str) -> IO[str]:
    """The lock file, locked."""
    while True:
        file = _open(folder, remedy)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            status = os.fstat(file.fileno())
            if os.path.samestat(status, os.lstat(folder / FILE)):
                if status.st_nlink > 1:
                    file.close()
                    raise _wrong_kind(folder, "a hard link to another file")
                return file
            file.close()
        except FileNotFoundError:  # its last owner deleted it before it was locked here
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
    """Open the lock file, which must be a regular file, without changing it."""
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


def _remove_unused(folder: Path, created: list[Path]) -> None:
    """Remove the lock file and the folders that were created for it, if they hold nothing else."""
    if not folder.is_dir() or [path.name for path in folder.iterdir()] != [FILE]:
        return
    (folder / FILE).unlink()
    for path in created:
        try:
            path.rmdir()
        except OSError:  # it is not empty
            return
