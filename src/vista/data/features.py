"""Columns of a table as one float32 vector per row: numbers scaled, categories one-hot.

A number becomes ``(value - mean) / std`` over the training rows; a missing one becomes 0, the mean, and columns with
missing training values have a second input that is 1 where the value is missing. A category has one input per value of
the training rows, at most :data:`MOST`: less frequent and unknown values have 0 everywhere. A missing category is a
value of its own.
"""

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vista.core.validation import suggest

MOST = 64  # values of a category with an input of their own
Encoding = dict[str, dict[str, Any]]  # by column: {"mean", "std", "missing"} of a number, or {"values"} of a category
Values = Mapping[str, Sequence[Any]]  # by column: numbers, text or booleans, and None where missing


def fit(path: Path, columns: Values, rows: np.ndarray) -> Encoding:
    """Determine how each column is encoded, from the training rows alone.

    Args:
        path: The file, for messages.
        columns: The feature columns.
        rows: Positions of the training rows.

    Returns:
        The encoding, which JSON can represent. Text that differs in every row (a name, an id) is left out.

    >>> fit(Path("t.csv"), {"age": [1.0, None, 3.0], "job": ["a", "b", "a"]}, np.arange(3))
    {'age': {'mean': 2.0, 'std': 1.0, 'missing': True}, 'job': {'values': ['a', 'b']}}
    """
    encoding: Encoding = {}
    for name, values in columns.items():
        known = [values[row] for row in rows if values[row] is not None]
        if not known:
            _leave_out(path, name, "has no value in any training row")
        elif all(isinstance(value, int | float) and not isinstance(value, bool) for value in known):
            encoding[name] = _fit_number(path, name, known, missing=len(known) < len(rows))
        elif all(isinstance(value, str | bool) for value in known):
            counts = Counter(_category(values[row]) for row in rows)
            if len(counts) == len(rows) > 2:
                _leave_out(path, name, "has another text in every row")
            else:
                encoding[name] = {"values": sorted(value for value, _ in counts.most_common(MOST))}
        else:
            other = next(value for value in known if not isinstance(value, str | bool))
            raise ValueError(
                f"{path}: column {name!r} must hold numbers, or text or booleans, got {type(other).__name__}: "
                "convert or remove it"
            )
    if not encoding:
        raise ValueError(
            f"{path} has no feature column besides the label: add one, or name --image-column or --text-column"
        )
    return encoding


def _leave_out(path: Path, name: str, why: str) -> None:
    warnings.warn(f"{path}: column {name!r} {why} and is left out", stacklevel=4)


def _fit_number(path: Path, name: str, known: Sequence[float], missing: bool) -> dict[str, Any]:
    array = np.array(known, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{path}: column {name!r} must hold finite numbers, got {array[~np.isfinite(array)][0]}")
    std = float(array.std())
    return {
        "mean": float(array.mean()),
        "std": std if std > 1e-12 * float(np.abs(array).max()) else 1.0,
        "missing": missing,
    }


def _category(value: Any) -> str:
    return "" if value is None else str(value)


def encode(path: Path, columns: Values, encoding: Encoding) -> np.ndarray:
    """Encode the rows of a table.

    Args:
        path: The file, for messages.
        columns: The feature columns; those without an encoding are ignored.
        encoding: Result of :func:`fit`, possibly of another table.

    Returns:
        float32 ``[N, F]``, columns in the order of their names.

    >>> encode(Path("t.csv"), {"job": ["b", None]}, {"job": {"values": ["a", "b"]}}).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """
    parts: list[np.ndarray] = []
    for name, how in sorted(encoding.items()):  # the order of data.json, whatever the table's
        if name not in columns:
            raise ValueError(
                f"{path} has no column {name!r}, which the training data have; {suggest(name, list(columns))}"
            )
        values = columns[name]
        if "values" in how:
            texts = np.array([_category(value) for value in values])
            parts += [texts == value for value in how["values"]]
            continue
        numbers = np.array([_number(path, name, value) for value in values], dtype=np.float64)
        missing = np.isnan(numbers)
        parts.append(np.where(missing, 0.0, (numbers - how["mean"]) / how["std"]))
        if how["missing"]:
            parts.append(missing)
    return np.stack(parts, axis=1).astype(np.float32)


def _number(path: Path, name: str, value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{path}: column {name!r} must hold finite numbers as in the training data, got {value!r}")
    return float(value)
