"""Reader of third-party ``.npz`` files of plain arrays, without pickle; errors name the file."""

import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

# What numpy raises for damaged archives.
UNREADABLE = (
    ValueError, TypeError, AttributeError, OSError, EOFError, SyntaxError, tokenize.TokenError, zlib.error,
    zipfile.BadZipFile,
)  # fmt: skip

ZIP = b"PK"  # the first bytes of any archive


def read_arrays(path: Path, keys: Sequence[str]) -> dict[str, np.ndarray]:
    """Read some arrays of a file.

    Args:
        path: The file.
        keys: Names of the arrays; those that the file does not have are left out.

    Returns:
        The arrays by name.

    Raises:
        ValueError: If the file is damaged or a member is not a plain array, or holds integers above 2**63 - 1.
    """
    with _open(path) as archive:
        arrays = {key: archive[key] for key in keys if key in archive}
    for key, array in arrays.items():
        if not isinstance(array, np.ndarray):  # numpy returns other members of the archive as bytes
            raise ValueError(f"{path}: {key!r} must be an array, got {len(array)} bytes that are not in .npy format")
        if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
            raise ValueError(f"{path}: {key!r} must be below 2**63, got {array.max()}")
    return arrays


def names(path: Path) -> list[str]:
    """List the names of the arrays of a file."""
    with _open(path) as archive:
        return list(archive.files)


@contextmanager
def _open(path: Path) -> Iterator[NpzFile]:
    try:
        with path.open("rb") as file:  # opened here, because numpy may not close it
            if file.read(len(ZIP)) != ZIP:
                raise ValueError("it is not an .npz archive, as numpy.savez writes it")
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                yield archive
    except UNREADABLE as error:
        raise ValueError(f"{path} is not a readable .npz file of plain arrays: {error}") from error
