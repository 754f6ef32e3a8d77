"""Atomic writes, and deletions that follow no symbolic link.

Every step that changes the disk calls :data:`on_write`, so that tests can stop the process, or fill the disk, at each
of them.
"""

from __future__ import annotations

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


def _unobserved(what: str, path: Path) -> None:
    """Nobody listens."""


on_write: Callable[[str, Path], None] = _unobserved


def write(path: Path, content: bytes) -> None:
    """Write under a temporary name, flush to the disk, rename.

    The temporary name is the process's own: several may write to the same place, and the last one's content stands.
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
        with suppress(OSError):  # what cannot be written may not be there to be taken away, or may not be
            temporary.unlink()
        if isinstance(error, OSError):
            raise OSError(error.errno, f"cannot write {path}: {os.strerror(error.errno or 0)}") from error
        raise
    sync_folder(path.parent)
    on_write("done", path)


def is_temporary(name: str) -> bool:
    """Whether :func:`write` gives such a name to what is not whole yet; older versions put the rank alone into it."""
    return re.fullmatch(r"\..+\.\d+(-[^.]*-\d+)?\.tmp", name) is not None


def _temporary_prefix(path: Path) -> str:
    """Rank and host name beside the process id: machines may share a disk, and containers a host name."""
    rank = os.environ.get("RANK", "0")
    return f".{path.name}.{rank if rank.isdecimal() else 0}-{platform.node().replace('.', '_')}-"


def _remove_abandoned(path: Path) -> None:
    """Remove what processes of this machine left half-written when they were killed."""
    for left in path.parent.glob(f"{glob.escape(_temporary_prefix(path))}*.tmp"):
        process = left.stem.rpartition("-")[2]
        if process.isdecimal() and not _is_alive(int(process)):
            with suppress(OSError):  # another process may remove it too
                left.unlink()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        pass
    return True


def write_json(path: Path, value: Any) -> None:
    write(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """The content of a JSON file: the same bytes for the same value."""
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON (line {error.lineno}): was it cut short?") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is damaged: it is no UTF-8 text") from error


def read_object(path: Path) -> dict[str, Any]:
    """What a JSON file of named values holds; anything else in it is refused by name."""
    values = read_json(path)
    if not isinstance(values, dict):
        raise ValueError(
            f"{path} is damaged: it holds {type(values).__name__}, where an object of named values belongs"
        )
    return values


def rename(source: Path, target: Path) -> None:
    """Rename a folder, durably."""
    on_write("rename", target)
    os.replace(source, target)
    sync_folder(target.parent)
    on_write("done", target)


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---------------------------------------------------------------- links


def reject_link(path: Path) -> None:
    """Reject a symbolic link where a training writes or deletes: its target may belong to somebody else.

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
    """A descriptor of the folder itself: what replaces it at its path meanwhile is not reached through it."""
    reject_link(folder)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield handle
    finally:
        os.close(handle)


def list_entries(folder: Path) -> list[str]:
    """Names in a folder in order, none if it does not exist; a symbolic link to a folder is rejected."""
    try:
        with _open_folder(folder) as handle:
            return sorted(os.listdir(handle))
    except FileNotFoundError:
        return []


def delete_entries(folder: Path, names: Iterable[str]) -> None:
    """Delete files and folders directly inside a folder; symbolic links are removed, their targets are not touched.

    Args:
        folder: The folder; a symbolic link is rejected.
        names: Names of the entries. Those that do not exist are skipped, as are folders that cannot be deleted.
    """
    with _open_folder(folder) as handle:
        for name in names:
            with suppress(FileNotFoundError):
                if stat.S_ISDIR(os.lstat(name, dir_fd=handle).st_mode):
                    shutil.rmtree(name, ignore_errors=True, dir_fd=handle)
                else:
                    os.unlink(name, dir_fd=handle)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents unless it exists; a symbolic link is rejected."""
    reject_link(folder)
    folder.mkdir(parents=True, exist_ok=True)
