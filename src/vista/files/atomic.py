"""Atomic, durable writes, and deletions that follow no symbolic link.

Every step that changes the disk calls :data:`on_write`, so that tests can kill the process or fill the disk there.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import platform
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def _ignore(what: str, path: Path) -> None:
    """Default of :data:`on_write`."""


on_write: Callable[[str, Path], None] = _ignore


def write(path: Path, content: bytes) -> None:
    """Write a file atomically: under a temporary name, fsync, rename, fsync of the folder.

    Each process has its own temporary name, so concurrent writers do not corrupt a file; the last version remains.
    """
    temporary = path.with_name(f"{_temporary_prefix(path)}{os.getpid()}.tmp")
    on_write("open", path)
    _remove_abandoned(path)
    try:
        with suppress(FileNotFoundError):
            temporary.unlink()
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666), "wb") as file:
            half = len(content) // 2
            file.write(content[:half])
            on_write("half", path)
            file.write(content[half:])
            file.flush()
            os.fsync(file.fileno())
        on_write("rename", path)
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):  # it may not exist, or may not be deletable
            temporary.unlink()
        if isinstance(error, OSError):
            raise OSError(error.errno, f"cannot write {path}: {os.strerror(error.errno or 0)}") from error
        raise
    sync_folder(path.parent)
    on_write("done", path)


def link(source: Path, path: Path) -> None:
    """Give a file another name, in place of any file of that name; on a file system without links it is copied."""
    temporary = path.with_name(f"{_temporary_prefix(path)}{os.getpid()}.tmp")
    on_write("open", path)
    _remove_abandoned(path)
    try:
        try:
            os.link(source, temporary, follow_symlinks=False)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOSPC, errno.EDQUOT):
                raise
            shutil.copyfile(source, temporary)
        on_write("rename", path)
        os.replace(temporary, path)
    except OSError as error:
        raise OSError(error.errno, f"cannot write {path}: {os.strerror(error.errno or 0)}") from error
    finally:
        with suppress(OSError):  # a rename of one name of a file to another leaves both
            temporary.unlink()
    on_write("done", path)


def sync_file(path: Path) -> None:
    """Make the content of a file, and its name, durable (fsync)."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    sync_folder(path.parent)


def is_temporary(name: str) -> bool:
    """Whether this is a temporary name of :func:`write`; those of older versions contain the rank alone."""
    return re.fullmatch(r"\..+\.\d+(-[^.]*-\d+)?\.tmp", name) is not None


def _temporary_prefix(path: Path) -> str:
    """The name contains rank and host beside the process id: machines may share a disk, containers a host name."""
    rank = os.environ.get("RANK", "0")
    return f".{path.name}.{rank if rank.isdecimal() else 0}-{platform.node().replace('.', '_')}-"


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of killed processes of this machine."""
    for left in path.parent.glob(f"{glob.escape(_temporary_prefix(path))}*.tmp"):
        process = left.stem.rpartition("-")[2]
        if process.isdecimal() and not is_alive(int(process)):
            with suppress(OSError):  # another process may have removed it
                left.unlink()


def is_alive(process: int) -> bool:
    """Whether a process of this machine exists."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # a process of another user
        pass
    return True


def write_json(path: Path, value: Any) -> None:
    write(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """The content of a JSON file: the same bytes for the same value."""
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def rename(source: Path, target: Path) -> None:
    """Rename a folder durably."""
    on_write("rename", target)
    os.replace(source, target)
    sync_folder(target.parent)
    on_write("done", target)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable (fsync)."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---------------------------------------------------------------- links


def reject_link(path: Path) -> None:
    """Reject a symbolic link where a training writes or deletes: its target may belong to another user.

    Args:
        path: A file or folder in a run folder, or a path that does not exist.

    Raises:
        ValueError: If ``path`` is a symbolic link.
    """
    if path.is_symlink():
        raise ValueError(
            f"{path} is a symbolic link, but a run folder must not contain links: replace it by the file or folder "
            "itself; to store checkpoints on another disk, use --checkpoint-dir DIR"
        )


@contextmanager
def _open_folder(folder: Path) -> Iterator[int]:
    """Open a descriptor of the folder; it keeps referring to this folder if its path is replaced."""
    reject_link(folder)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield handle
    finally:
        os.close(handle)


def list_entries(folder: Path) -> list[str]:
    """List the sorted names in a folder, none if it does not exist; a symbolic link is rejected."""
    try:
        with _open_folder(folder) as handle:
            return sorted(os.listdir(handle))
    except FileNotFoundError:
        return []


def delete_entries(
    folder: Path, names: Iterable[str], is_own: Callable[[str], object] = lambda name: False
) -> list[str]:
    """Delete entries of a folder; symbolic links are removed, their targets are not touched.

    Args:
        folder: The folder; a symbolic link is rejected.
        names: Names of the entries; those that do not exist are skipped.
        is_own: Whether to delete a file of this name in entries that are folders; temporary ones are deleted too.
            Anything else in them is foreign, and left with its folder.

    Returns:
        The names of the folders that hold foreign entries.
    """
    foreign = []
    with _open_folder(folder) as handle:
        for name in names:
            with suppress(FileNotFoundError):
                if not stat.S_ISDIR(os.lstat(name, dir_fd=handle).st_mode):
                    os.unlink(name, dir_fd=handle)
                elif _delete_folder(name, handle, is_own):
                    foreign.append(name)
    return foreign


def _delete_folder(name: str, parent: int, is_own: Callable[[str], object]) -> bool:
    """Delete the files in a folder, and then the folder, as far as possible; whether it holds foreign entries."""
    is_shared = False
    with suppress(OSError):
        handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        try:
            for file in os.listdir(handle):
                if not (is_own(file) or is_temporary(file)):
                    is_shared = True
                elif not stat.S_ISDIR(os.lstat(file, dir_fd=handle).st_mode):
                    os.unlink(file, dir_fd=handle)
                elif not _is_removed(file, handle):
                    is_shared = True
        finally:
            os.close(handle)
        os.rmdir(name, dir_fd=parent)
    return is_shared


def _is_removed(name: str, parent: int) -> bool:
    """Remove a folder in the place of a file if it is empty; whether it was."""
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError:
        return False
    return True


def make_folder(folder: Path, parents: bool = True) -> None:
    """Make a folder and its missing parents durably; a symbolic link is rejected.

    Args:
        folder: The folder, which may exist. The parent of every new folder is flushed to the disk, so that a power
            failure cannot lose a folder after a file in it was written.
        parents: Make missing parents too; otherwise they are a ``FileNotFoundError``.
    """
    reject_link(folder)
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=parents, exist_ok=True)
    for path in reversed(missing):
        with suppress(PermissionError):  # a parent that may be written to but not read cannot be opened for fsync
            sync_folder(path.parent)
