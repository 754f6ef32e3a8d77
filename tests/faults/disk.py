"""A disk that loses power: what of a folder survives if only flushed data is safe.

:class:`Recorder` wraps the functions of ``os`` that change a folder and keeps a log of what they did. :func:`survivors`
replays a part of that log into a new folder under a strict model of a file system: the content of a file is safe after
``fsync`` of the file, its name after ``fsync`` of the folder. Everything else may be lost, in any combination: a name
may be there without its content, a later rename without an earlier one, half of a file, or zeros of the right length.
"""

from __future__ import annotations

import copy
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

MODES = "lost", "kept", "torn", "zeros", "mixed"  # what happens to everything that was not flushed


@dataclass(frozen=True)
class Operation:
    """One change: ``kind`` is set, remove, flush file, flush folder or mark."""

    kind: str
    folder: int = 0  # identity of the folder whose entries change, or that is flushed
    names: dict[str, int | None] = field(default_factory=dict)  # new identity by name; None removes the name
    file: int = 0
    content: bytes = b""
    mark: str = ""


@dataclass
class Node:
    """A file or folder: what is safe, and what was done since."""

    is_folder: bool
    safe: Any  # entries of a folder (name -> identity), or content of a file
    pending: list[dict[str, int | None]] = field(default_factory=list)  # changes of entries since the last flush
    written: bytes = b""  # content of a file that is not safe yet


class Recorder:
    """Keeps a log of every change below a folder that is made through :mod:`os`."""

    def __init__(self, root: Path) -> None:
        self.root, self.log = root, list[Operation]()
        self._lock, self._count = threading.RLock(), 0
        self._identities = {root.stat().st_ino: 0}
        self.folders = {0}
        self.written: dict[int, bytes] = {}  # what was in a file when it was flushed, of which a tear leaves a part

    def mark(self, text: str) -> None:
        """Note in the log that something was promised here, such as a complete checkpoint."""
        with self._lock:
            self.log.append(Operation("mark", mark=text))

    # ------------------------------------------------------------ recording

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Wrap the functions of ``os`` while the block runs."""
        wrapped = {
            "open": self._open, "mkdir": self._mkdir, "fsync": self._fsync, "replace": self._rename,
            "rename": self._rename, "unlink": self._remove, "remove": self._remove, "rmdir": self._remove,
        }  # fmt: skip
        real = {name: getattr(os, name) for name in wrapped}
        for name, wrap in wrapped.items():
            setattr(os, name, self._locked(wrap, real[name]))
        for name in ("open", "mkdir", "unlink", "rmdir", "rename"):  # shutil asks which of them take descriptors
            os.supports_dir_fd.add(getattr(os, name))
        try:
            yield
        finally:
            for name, function in real.items():
                os.supports_dir_fd.discard(getattr(os, name))
                setattr(os, name, function)
                if name not in ("fsync", "replace", "remove"):
                    os.supports_dir_fd.add(function)

    def _locked(self, wrap: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                return wrap(real, *args, **kwargs)

        return call

    def _entry(self, path: Any, dir_fd: int | None = None) -> tuple[int | None, str]:
        """Identity of the folder that a path is in, None outside of the recorded one, and the name."""
        if dir_fd is not None and not os.path.isabs(path):
            return self._identities.get(os.fstat(dir_fd).st_ino), os.fspath(path)
        parent, name = os.path.split(os.path.abspath(os.fspath(path)))
        try:
            return self._identities.get(os.stat(parent).st_ino), name
        except OSError:
            return None, name

    def _new(self, status: os.stat_result) -> int:
        self._count += 1
        self._identities[status.st_ino] = self._count
        if stat.S_ISDIR(status.st_mode):
            self.folders.add(self._count)
        return self._count

    def _open(self, real: Any, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        creates = flags & os.O_CREAT and not _exists(path, dir_fd)
        handle: int = real(path, flags, mode, dir_fd=dir_fd)
        folder, name = self._entry(path, dir_fd)
        if creates and folder is not None:
            self.log.append(Operation("set", folder, {name: self._new(os.fstat(handle))}))
        return handle

    def _mkdir(self, real: Any, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        real(path, mode, dir_fd=dir_fd)
        folder, name = self._entry(path, dir_fd)
        if folder is not None:
            self.log.append(Operation("set", folder, {name: self._new(os.stat(path, dir_fd=dir_fd))}))

    def _fsync(self, real: Any, handle: int) -> None:
        real(handle)
        status = os.fstat(handle)
        found = self._identities.get(status.st_ino)
        if found is None:
            return
        if stat.S_ISDIR(status.st_mode):
            self.log.append(Operation("flush folder", found))
        else:
            with open(f"/proc/self/fd/{handle}", "rb") as file:
                self.written[found] = file.read()
            self.log.append(Operation("flush file", file=found, content=self.written[found]))

    def _rename(self, real: Any, source: Any, target: Any, **_: Any) -> None:
        identity = self._identities.get(os.lstat(source).st_ino)
        real(source, target)
        (before, old), (after, new) = self._entry(source), self._entry(target)
        if identity is None or before is None or before != after:
            assert before == after, f"{source} is renamed to {target}, in another folder"
            return
        self.log.append(Operation("set", before, {old: None, new: identity}))

    def _remove(self, real: Any, path: Any, *, dir_fd: int | None = None) -> None:
        real(path, dir_fd=dir_fd)
        folder, name = self._entry(path, dir_fd)
        if folder is not None:
            self.log.append(Operation("set", folder, {name: None}))


def _exists(path: Any, dir_fd: int | None) -> bool:
    try:
        os.lstat(path, dir_fd=dir_fd)
    except OSError:
        return False
    return True


# ---------------------------------------------------------------- power loss


def states(recorder: Recorder) -> Iterator[tuple[int, dict[int, Node], list[str]]]:
    """The disk after every operation: its number, what is safe and pending, and the marks so far."""
    nodes, marks = {0: Node(True, {})}, list[str]()
    for number, operation in enumerate(recorder.log, 1):
        if operation.kind == "set":
            for identity in filter(None, operation.names.values()):
                is_folder = identity in recorder.folders
                node = Node(is_folder, {} if is_folder else None, written=recorder.written.get(identity, b""))
                nodes.setdefault(identity, node)
            nodes[operation.folder].pending.append(operation.names)
        elif operation.kind == "flush folder":
            node = nodes[operation.folder]
            for change in node.pending:
                _apply(node.safe, change)
            node.pending = []
        elif operation.kind == "flush file":
            nodes[operation.file].safe = operation.content
        else:
            marks.append(operation.mark)
        yield number, nodes, marks


def _apply(entries: dict[str, int], change: dict[str, int | None]) -> None:
    for name, identity in change.items():
        if identity is None:
            entries.pop(name, None)
        else:
            entries[name] = identity


def materialise(nodes: dict[int, Node], target: Path, mode: str, generator: np.random.Generator) -> None:
    """Write what a power loss leaves into a new folder.

    Args:
        nodes: The disk, from :func:`states`.
        target: A folder that does not exist.
        mode: One of :data:`MODES`: all pending changes of names are lost; all are kept, with the content of files
            that was not flushed gone, torn or zeros; or each change and content is drawn at random.
        generator: For ``mixed``.
    """
    _write_folder(copy.deepcopy(nodes), 0, target, mode, generator)


def _write_folder(nodes: dict[int, Node], identity: int, path: Path, mode: str, generator: np.random.Generator) -> None:
    path.mkdir()
    entries = dict(nodes[identity].safe)
    for change in nodes[identity].pending:
        if mode not in ("lost", "mixed") or (mode == "mixed" and generator.random() < 0.5):
            _apply(entries, change)
    for name, inner in entries.items():
        if nodes[inner].is_folder:
            _write_folder(nodes, inner, path / name, mode, generator)
        else:
            (path / name).write_bytes(_content(nodes[inner], mode, generator))


def _content(node: Node, mode: str, generator: np.random.Generator) -> bytes:
    if node.safe is not None:
        content: bytes = node.safe
        return content
    size = len(node.written)
    if mode == "mixed":
        mode, size = str(generator.choice(["lost", "torn", "zeros"])), int(generator.integers(size + 1))
    if mode == "zeros":
        return bytes(size)
    return node.written[: size // 2] if mode == "torn" else b""
