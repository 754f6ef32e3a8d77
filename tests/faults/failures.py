"""Make the n-th read, write, fsync, rename or thread start of a process fail, as a failing disk does."""

from __future__ import annotations

import builtins
import errno
import io
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

KINDS = "read", "write", "fsync", "rename", "thread"


class Failures:
    """Counts operations of one kind on files below a folder; the n-th one fails.

    Args:
        kind: One of :data:`KINDS`.
        number: Which one fails, from 1; 0 for none.
        root: Only files below this folder count.
    """

    def __init__(self, kind: str, number: int, root: Path) -> None:
        self.kind, self.number, self.root, self.count = kind, number, os.path.realpath(root), 0
        self._lock = threading.Lock()

    @property
    def failed(self) -> bool:
        """Whether the n-th operation was reached."""
        return 0 < self.number <= self.count

    def _happens(self, kind: str, path: str) -> None:
        if kind != self.kind or not (kind == "thread" or path.startswith(self.root)):
            return
        with self._lock:
            self.count += 1
            fails = self.count == self.number
        if fails and kind == "thread":
            raise RuntimeError("can't start new thread")
        if fails:
            number = errno.ENOSPC if kind == "write" else errno.EIO
            raise OSError(number, os.strerror(number), path)

    @contextmanager
    def injected(self) -> Iterator[None]:
        """Wrap ``open``, the functions of ``os`` that change files, and ``Thread.start`` while the block runs."""
        failures, real_open = self, io.open
        real = {name: getattr(os, name) for name in ("fsync", "replace", "rename", "write", "pwrite")}
        start = threading.Thread.start

        class File(io.FileIO):
            def readinto(self, buffer: Any) -> int | None:
                failures._happens("read", _path(self.fileno()))
                return super().readinto(buffer)

            def readall(self) -> bytes:
                failures._happens("read", _path(self.fileno()))
                return super().readall()

            def read(self, size: int | None = -1) -> bytes | None:
                failures._happens("read", _path(self.fileno()))
                return super().read(-1 if size is None else size)

            def write(self, content: Any) -> int | None:
                failures._happens("write", _path(self.fileno()))
                return super().write(content)

        def open_file(file: Any, mode: str = "r", buffering: int = -1, *args: Any, **kwargs: Any) -> Any:
            if mode not in ("rb", "wb"):
                return real_open(file, mode, buffering, *args, **kwargs)
            raw = File(file, mode, closefd=kwargs.get("closefd", True))
            return io.BufferedReader(raw) if mode == "rb" else io.BufferedWriter(raw)

        def fsync(handle: int) -> None:
            failures._happens("fsync", _path(handle))
            real["fsync"](handle)

        def writes(name: str) -> Any:
            def write(handle: int, *args: Any) -> int:
                failures._happens("write", _path(handle))
                written: int = real[name](handle, *args)
                return written

            return write

        def renames(name: str) -> Any:
            def rename(source: Any, target: Any, **kwargs: Any) -> None:
                failures._happens("rename", os.path.realpath(os.path.dirname(target)))
                real[name](source, target, **kwargs)

            return rename

        def start_thread(thread: threading.Thread) -> None:
            failures._happens("thread", "")
            start(thread)

        builtins.open = io.open = open_file  # type: ignore[assignment]
        os.fsync, os.replace, os.rename = fsync, renames("replace"), renames("rename")  # type: ignore[assignment]
        os.write, os.pwrite = writes("write"), writes("pwrite")  # type: ignore[assignment]
        threading.Thread.start = start_thread  # type: ignore[method-assign]
        try:
            yield
        finally:
            builtins.open = io.open = real_open
            for name, function in real.items():
                setattr(os, name, function)
            threading.Thread.start = start  # type: ignore[method-assign]


def _path(handle: int) -> str:
    return os.readlink(f"/proc/self/fd/{handle}")
