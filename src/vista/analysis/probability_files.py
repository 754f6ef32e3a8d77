"""Read predicted probabilities and labels of any model from ``.npy``, ``.npz`` or ``.csv`` files."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vista.analysis.joint import Labels
from vista.files import npz

PROBS, LABELS = ("pred_probs", "probs"), ("labels", "label", "y")
ENDINGS = (".npy", ".npz", ".csv")


def read_probabilities(path: Path) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """Read probabilities ``[n, K]``.

    Args:
        path: A ``.npy`` array, a ``.npz`` file with ``pred_probs`` or ``probs`` (or a single array), or a ``.csv`` file
            whose header has the class names; a column ``id`` must number the rows from 0.

    Returns:
        The probabilities, and the class names if the file has any.
    """
    if _ending(path) != ".csv":
        return _array(path, PROBS), None
    header, rows = _table(path)
    try:
        return np.array([[float(cell) for cell in row] for row in rows], dtype=np.float64), tuple(header)
    except ValueError as error:
        raise ValueError(f"{path} must have a probability in every cell below its header: {error}") from None


def read_labels(path: Path, classes: tuple[str, ...] | None) -> Labels:
    """Read labels ``[n]``.

    Args:
        path: A ``.npy`` array, a ``.npz`` file with ``labels``, ``label`` or ``y`` (or a single array), or a ``.csv``
            file with a column ``label``; a column ``id`` must number the rows from 0.
        classes: Class names, which a ``.csv`` file may use instead of class numbers.

    Returns:
        Class numbers; -1 means unlabelled.
    """
    if _ending(path) != ".csv":
        values = _array(path, LABELS)
        if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
            raise ValueError(f"{path} must hold integer labels [n], got {values.dtype} of shape {values.shape}")
        return values.astype(np.int64)
    header, rows = _table(path)
    if "label" not in header:
        raise ValueError(f"{path} must have a column 'label', got {', '.join(header)}")
    numbers = {name: number for number, name in enumerate(classes or ())}
    labels = []
    for line, row in enumerate(rows, start=2):
        text = row[header.index("label")].strip()
        try:
            labels.append(numbers[text] if text in numbers else int(text))
        except ValueError:
            raise ValueError(f"{path}, line {line}: label must be a class number or name, got {text!r}") from None
    return np.array(labels, dtype=np.int64)


def _ending(path: Path) -> str:
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(f"{path} must end in {', '.join(ENDINGS)}")
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    return path.suffix.lower()


def _array(path: Path, keys: tuple[str, ...]) -> NDArray[Any]:
    if path.suffix.lower() == ".npy":
        try:
            return np.asarray(np.load(path, allow_pickle=False))
        except npz.UNREADABLE as error:
            raise ValueError(f"{path} is no readable .npy file of a plain array: {error}") from error
    names = npz.names(path)
    key = next((key for key in keys if key in names), names[0] if len(names) == 1 else None)
    if key is None:
        raise ValueError(f"{path} must have an array {' or '.join(map(repr, keys))}, got {', '.join(names) or 'none'}")
    return npz.read_arrays(path, (key,))[key]


def _table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a CSV file; a column ``id`` is checked and left out."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
        lines = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a readable CSV file: {error}") from error
    if len(lines) < 2:
        raise ValueError(f"{path} must have a header and at least one row")
    header, rows = [name.strip() for name in lines[0]], lines[1:]
    for line, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ValueError(f"{path}, line {line}: {len(row)} fields, but the header has {len(header)}")
    if "id" in header:
        column = header.index("id")
        for number, row in enumerate(rows):
            if row[column].strip() != str(number):
                raise ValueError(f"{path}: id must number the rows from 0, got {row[column]!r} in row {number}")
        header, rows = header[:column] + header[column + 1 :], [row[:column] + row[column + 1 :] for row in rows]
    return header, rows
