"""Anybody's `.npz` file of plain arrays: read without pickle, refused by name."""

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

UNREADABLE = (ValueError, TypeError, AttributeError, OSError, EOFError, zlib.error, zipfile.BadZipFile)  # numpy's own

ZIP = b"PK"  # the first bytes of any archive


def read_arrays(path: Path, keys: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays under those of `keys` that the file has."""
    with _opened(path) as arrays:
        return {key: arrays[key] for key in keys if key in arrays}


def names(path: Path) -> list[str]:
    """What the arrays of the file are called."""
    with _opened(path) as arrays:
        return list(arrays.files)


@contextmanager
def _opened(path: Path) -> Iterator[NpzFile]:
    try:
        with path.open("rb") as file:  # opened here: numpy may not close it
            if file.read(len(ZIP)) != ZIP:
                raise ValueError("it is no .npz archive, as numpy.savez writes it")
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                yield arrays
    except UNREADABLE as error:
        raise ValueError(f"{path} is no readable .npz file of plain arrays: {error}") from error
