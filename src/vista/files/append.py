"""Durable appends to a file of lines: a line is complete on the disk, or it is not there."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

from vista.files import atomic


class AppendOnly:
    """A file of lines that one process at a time appends to; closing releases it.

    Args:
        path: The file; it is created with the first line.

    Raises:
        BlockingIOError: If another process has it open.
        ValueError: If it is a link or a special file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        atomic.reject_link(path)
        is_new = not path.exists()
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        self._handle = os.open(path, flags, 0o666)
        try:
            status = os.fstat(self._handle)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                raise ValueError(f"{path} must be a regular file with no other name: remove it")
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_new:
                atomic.sync_folder(path.parent)
            self._drop_torn_line()
        except BaseException:
            os.close(self._handle)
            raise

    def close(self) -> None:
        os.close(self._handle)

    def append(self, lines: bytes) -> None:
        """Write lines and flush them to the disk; if that fails, for example on a full disk, none of them remains."""
        size = os.fstat(self._handle).st_size
        try:
            atomic.on_write("append", self.path)
            left = memoryview(lines)
            while left:
                left = left[os.write(self._handle, left) :]
            atomic.on_write("half", self.path)
            os.fsync(self._handle)
        except OSError as error:
            os.ftruncate(self._handle, size)
            raise OSError(error.errno, f"cannot write {self.path}: {os.strerror(error.errno or 0)}") from error

    def _drop_torn_line(self) -> None:
        """Remove the beginning of a line that a killed process did not finish."""
        content = self.path.read_bytes()
        end = content.rfind(b"\n") + 1
        if end < len(content):
            os.ftruncate(self._handle, end)
            os.fsync(self._handle)
