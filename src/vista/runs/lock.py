"""The lock of a run folder: one process at a time may train in it.

The file names the host, the process and the time of its last sign of life, which the owner renews: on a file system
that does not share locks between hosts, another host waits until the owner has given none for a minute.

The lock file is opened without following links, and written only after it is locked and known to be a regular file
with a single name: the target of a link at its path is never changed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import stat
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO

from vista.files import atomic

FILE = "lock"
HEARTBEAT = 10.0  # seconds between signs of life
ABANDONED = 60.0  # seconds without one after which the lock of another host is taken over


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

    def __init__(self, path: Path, lock: IO[str]) -> None:
        self._path, self._handle = path, os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self._lock, self._ended = lock, threading.Event()
        try:
            self._write_sign_of_life()
            self._heart = threading.Thread(target=self._beat, daemon=True)
            self._heart.start()
        except OSError as error:
            os.close(self._handle)
            raise OSError(error.errno, f"cannot write {path / FILE}: {os.strerror(error.errno or 0)}") from error
        except RuntimeError as error:
            os.close(self._handle)
            raise RuntimeError(f"no thread could be started to renew {path / FILE}: {error}") from error

    def _write_sign_of_life(self) -> None:
        os.pwrite(self._lock.fileno(), f"{platform.node()} {os.getpid():>10} {int(time.time()):>12}\n".encode(), 0)

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT):
            with suppress(OSError):
                self._write_sign_of_life()

    def check_path(self) -> None:
        """Raise :class:`FolderMoved` unless the folder is still at the path where it was locked.

        Raises:
            RuntimeError: If another host has taken the lock over, because this process gave no sign of life.
        """
        try:
            if os.path.samestat(os.fstat(self._handle), os.stat(self._path)):
                self._check_owner()
                return
        except OSError:
            pass
        now = None
        with suppress(OSError):  # only Linux has the link
            now = Path(os.readlink(f"/proc/self/fd/{self._handle}"))
        raise FolderMoved(self._path, now if now and now.is_dir() else None)

    def _check_owner(self) -> None:
        with suppress(OSError):  # moved or removed: the error below says so
            if not os.path.samestat(os.fstat(self._lock.fileno()), os.lstat(self._path / FILE)):
                raise RuntimeError(
                    f"{self._path} was taken over by process {_owner(self._path / FILE)}: this one stops"
                )

    def close(self) -> None:
        """Stop the signs of life, and leave the file empty: the next owner need not wait."""
        self._ended.set()
        self._heart.join()
        os.close(self._handle)
        with suppress(OSError):
            self._lock.truncate(0)


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
    with _lock_file(folder, remedy) as file, closing(_held(folder, file)) as held:
        for path in reversed(created or [folder]):  # an existing one may be of a process that ended before the flush
            with suppress(PermissionError):  # a parent that may be written to but not read cannot be opened for fsync
                atomic.sync_folder(path.parent)
        try:
            yield held
        finally:
            _remove_unused(folder, created)


def _held(folder: Path, file: IO[str]) -> HeldFolder:
    file.truncate(0)
    return HeldFolder(folder, file)


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
                if _may_be_taken(folder, file):  # also where hosts do not see each other's locks
                    return file
                with file:
                    raise _in_use(folder)
            file.close()
        except FileNotFoundError:  # its last owner deleted it before it was locked here
            file.close()
        except BlockingIOError as error:
            with file:
                if not _is_foreign(file) or not _may_be_taken(folder, file):
                    raise _in_use(folder) from error
                (folder / FILE).unlink(missing_ok=True)  # the lock of a host that is gone; this file is another one
        except OSError as error:
            file.close()
            raise type(error)(
                f"{folder / FILE} cannot be locked: {error.strerror}; use a run folder on a disk that supports flock, "
                "such as a local one"
            ) from error


def _sign(text: str) -> tuple[str, str, float] | None:
    """Host, process and time of an owner's last sign of life."""
    words = text.split()
    return (words[0], words[1], float(words[2])) if len(words) == 3 and words[2].isdecimal() else None


def _owner(path: Path) -> str:
    sign = None
    with suppress(OSError, ValueError):
        sign = _sign(path.read_text())
    if sign is None:
        return "another one"
    return sign[1] if sign[0] == platform.node() else f"{sign[1]} on host {sign[0]}"


def _read_sign(file: IO[str]) -> tuple[str, str, float] | None:
    return _sign(os.pread(file.fileno(), 400, 0).decode(errors="replace"))


def _is_foreign(file: IO[str]) -> bool:
    sign = _read_sign(file)
    return sign is not None and sign[0] != platform.node()


def _may_be_taken(folder: Path, file: IO[str]) -> bool:
    """Whether the lock is of no other host, or that host's process gives no sign of life; some seconds show it."""
    first, began = _read_sign(file), time.time()
    if first is None or first[0] == platform.node():
        return True
    left = ABANDONED - abs(began - first[2])
    if left > 0:
        warnings.warn(
            f"{folder} was in use by process {_owner(folder / FILE)} {ABANDONED - left:.0f} s ago: it is taken over if "
            f"that gives no sign of life for {left:.0f} s",
            stacklevel=5,
        )
    while time.time() - began < left:
        if (sign := _read_sign(file)) != first:
            return sign is None  # it has ended
        time.sleep(HEARTBEAT / 10)
    return True


def _in_use(folder: Path) -> RuntimeError:
    return RuntimeError(f"{folder} is in use by process {_owner(folder / FILE)}: wait until that has ended")


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
