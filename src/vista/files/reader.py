"""The reader of all files in a run folder, which may be damaged, or come from somebody else.

It opens regular files only, follows no symbolic link, limits size, nesting and numbers, and reports every defect in one
form: ``PATH is damaged: WHY; REMEDY``.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as arrays_from_bytes
from safetensors.torch import load as tensors_from_bytes
from torch import Tensor

from vista.files.mapping import map_bytes

MAX_JSON_BYTES = 64 * 2**20
MAX_DEPTH = 64  # of nested lists and objects
INT64 = range(-(2**63), 2**64)  # signed or unsigned
_TENSOR_TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
REMEDY = "restore the file, or train the run again with --fresh"


class DamagedFile(ValueError):
    """A file whose content is not what was written.

    Args:
        path: The file, with a line number if that is known.
        why: What is wrong with it.
        remedy: What the user can do about it.
    """

    def __init__(self, path: Path | str, why: str, remedy: str = REMEDY) -> None:
        super().__init__(f"{path} is damaged: {why}; {remedy}")


def read_bytes(path: Path, *, limit: int | None = None) -> bytes:
    """Read a regular file.

    Args:
        path: The file. A symbolic link, folder, FIFO or device in its place is an error, as is a missing file.
        limit: Its largest size in bytes; half of the available memory by default, where that is known.

    Returns:
        The content.

    Raises:
        DamagedFile: If it is not a regular file, or too large.
        OSError: If it cannot be read; ``FileNotFoundError`` if it does not exist.
    """
    with _open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        most = _half_of_memory() if limit is None else limit
        if most is not None and size > most:
            raise DamagedFile(path, f"it has {size} bytes, but at most {most} can be read")
        return file.read(size)  # no more than that, if it grows


def sha256(path: Path) -> str:
    """Compute the SHA-256 of a regular file, which need not fit into memory."""
    with _open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _open_regular(path: Path) -> Iterator[BufferedReader]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(mode := os.fstat(handle).st_mode):
                raise DamagedFile(path, f"it is a {'folder' if stat.S_ISDIR(mode) else 'special file'}, not a file")
            with open(handle, "rb", closefd=False) as file:
                yield file
        finally:
            os.close(handle)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path} is missing: {REMEDY}") from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            kind = "symbolic link" if error.errno == errno.ELOOP else "socket"
            raise DamagedFile(path, f"it is a {kind}, not a file") from error
        raise type(error)(f"{path} cannot be read: {error.strerror}") from error


def _half_of_memory() -> int | None:
    """Half of the memory that is available: tensors are copied out of the content of their file."""
    try:
        with open("/proc/meminfo") as meminfo:
            fields = dict(line.split(":", 1) for line in meminfo)
        return int(fields["MemAvailable"].split()[0]) * 1024 // 2
    except (OSError, KeyError, ValueError):
        return None


# ---------------------------------------------------------------- JSON


def read_object(path: Path, remedy: str = REMEDY) -> dict[str, Any]:
    """Read a JSON file that holds an object.

    Args:
        path: The file, of at most 64 MiB.
        remedy: What the user can do about a damaged file.

    Returns:
        The object. Its numbers are finite, integers have at most 64 bits.

    Raises:
        DamagedFile: If the file is not such an object, or nested too deeply.
        OSError: If it cannot be read.
    """
    return parse_object(read_bytes(path, limit=MAX_JSON_BYTES), path, remedy)


def read_lines(path: Path, remedy: str = REMEDY) -> list[dict[str, Any]]:
    """Read a file with one JSON object per line; the same limits hold as for :func:`read_object`."""
    lines = read_bytes(path, limit=MAX_JSON_BYTES).splitlines()
    return [parse_object(line, f"{path} line {number}", remedy) for number, line in enumerate(lines, 1)]


def parse_object(
    content: bytes | str, path: Path | str, remedy: str = REMEDY, any_number: bool = False
) -> dict[str, Any]:
    """Parse a JSON object under the limits of :func:`read_object`.

    Args:
        content: The text, or its bytes in UTF-8.
        path: Where it comes from, for errors.
        remedy: What the user can do about damage.
        any_number: Accept integers of any size, NaN and infinity too, as the state of a method may hold them.
    """
    numbers: dict[str, Any] = {"parse_int": _parse_int, "parse_float": _parse_float, "parse_constant": _parse_float}
    try:
        text = content if isinstance(content, str) else content.decode()
        value: Any = json.loads(text, **({} if any_number else numbers))
    except UnicodeDecodeError as error:
        raise DamagedFile(path, "it is not UTF-8 text", remedy) from error
    except json.JSONDecodeError as error:
        raise DamagedFile(path, f"it is not JSON (line {error.lineno}: {error.msg})", remedy) from error
    except RecursionError:
        raise DamagedFile(path, f"it is nested more than {MAX_DEPTH} levels deep", remedy) from None
    except ValueError as error:
        raise DamagedFile(path, str(error), remedy) from error
    if not isinstance(value, dict):
        raise DamagedFile(path, f"it must hold a JSON object, got {type(value).__name__}", remedy)
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        inner = [each for group in level for each in (group.values() if isinstance(group, dict) else group)]
        level = [each for each in inner if isinstance(each, dict | list)]
    if level:
        raise DamagedFile(path, f"it is nested more than {MAX_DEPTH} levels deep", remedy)
    return value


def _parse_int(text: str) -> int:
    if len(text) > 20 or int(text) not in INT64:
        raise ValueError(f"numbers must have at most 64 bits, got {text[:24]}")
    return int(text)


def _parse_float(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"numbers must be finite, got {text[:24]}")
    return value


# ---------------------------------------------------------------- safetensors


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file.

    Args:
        path: The file.

    Returns:
        The tensors by name, on the CPU.

    Raises:
        DamagedFile: If it is not a complete safetensors file.
        OSError: If it cannot be read.
    """
    content = read_bytes(path)
    try:
        return dict(sorted(tensors_from_bytes(content).items()))  # safetensors returns them in no fixed order
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise DamagedFile(path, f"it is not a complete safetensors file ({error})") from error


def map_tensors(path: Path) -> dict[str, Tensor]:
    """Map the tensors of a safetensors file that this program wrote: their pages are read when they are used.

    Processes that map the same file share its pages. The tensors may be changed; the file is not.
    """
    with _open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= min(size - 8, MAX_JSON_BYTES):
            raise DamagedFile(path, "it is not a complete safetensors file")
        header = parse_object(file.read(length), path)
        content = map_bytes(file) if size > 8 + length else np.zeros(8 + length, np.uint8)
    header.pop("__metadata__", None)
    tensors = {}
    for name, about in sorted(header.items()):
        try:
            low, high = (8 + length + int(offset) for offset in about["data_offsets"])
            dtype, shape = _TENSOR_TYPES[about["dtype"]], [int(n) for n in about["shape"]]
            if not 8 + length <= low <= high <= size or high - low != math.prod(shape) * dtype.itemsize:
                raise ValueError(f"tensor {name!r} is outside of it")
            flat = torch.from_numpy(content[low:high])
            aligned = flat if flat.data_ptr() % dtype.itemsize == 0 else flat.clone()
            tensors[name] = aligned.view(dtype).view(shape) if high > low else torch.zeros(shape, dtype=dtype)
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            raise DamagedFile(path, f"it is not a complete safetensors file ({error})") from error
    return tensors


def read_arrays(path: Path, remedy: str = REMEDY) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read the arrays of a safetensors file, and its metadata, of which both keys and values are text."""
    content = read_bytes(path)
    try:
        arrays = dict(sorted(arrays_from_bytes(content).items()))
    except (SafetensorError, KeyError, ValueError) as error:
        raise DamagedFile(path, f"it is not a complete safetensors file ({error})", remedy) from error
    header = content[8 : 8 + int.from_bytes(content[:8], "little")]
    return arrays, parse_object(header, path, remedy).get("__metadata__") or {}
