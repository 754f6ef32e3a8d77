"""Trajectories recorded by other tools, read from an `.npz` file.

Required key: ``correct``, bool or 0/1 ``[E, m]``, which validation samples were right in which epoch. Optional keys:
``correct_true`` ``[E, m]``, the same against the true labels; ``test`` ``[E, T]``, the same for test samples;
``labels`` and ``true_labels``, int ``[m]``, the validation labels; ``classes``, text ``[K]``, the class names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vista.files.npz import read_arrays
from vista.runs.record import TEST, VAL_GIVEN, VAL_TRUE, Record

MATRICES = {"correct": VAL_GIVEN, "correct_true": VAL_TRUE, "test": TEST}
OTHERS = ("labels", "true_labels", "classes")


@dataclass(frozen=True, eq=False)
class Trajectory:
    """The contents of one file."""

    record: Record
    labels: NDArray[np.int64] | None
    true_labels: NDArray[np.int64] | None
    classes: tuple[str, ...] | None


def read_npz(path: Path) -> Trajectory:
    """Read and validate a file; errors name the key."""
    arrays = read_arrays(path, (*MATRICES, *OTHERS))
    if "correct" not in arrays:
        raise ValueError(f"{path} has no key 'correct': add a bool array [epochs, samples]")
    matrices = {key: _matrix(path, key, arrays[key]) for key in MATRICES if key in arrays}
    epochs, samples = matrices["correct"].shape
    for key, matrix in matrices.items():
        if len(matrix) != epochs or (key == "correct_true" and matrix.shape[1] != samples):
            raise ValueError(f"{path}: {key!r} has shape {matrix.shape}, but 'correct' has {epochs, samples}")
    record = Record({MATRICES[key]: matrix.shape[1] for key, matrix in matrices.items()})
    for epoch in range(epochs):
        rows = {MATRICES[key]: matrix[epoch] for key, matrix in matrices.items()}
        record.append(epoch_line(epoch + 1, rows), {}, rows)
    if "classes" in arrays and arrays["classes"].ndim != 1:
        raise ValueError(f"{path}: 'classes' must be the class names [K], got shape {arrays['classes'].shape}")
    classes = tuple(str(name) for name in arrays["classes"].tolist()) if "classes" in arrays else None
    return Trajectory(
        record, _labels(path, "labels", arrays, classes), _labels(path, "true_labels", arrays, classes), classes
    )


def epoch_line(epoch: int, correct: dict[str, NDArray[np.bool_]]) -> dict[str, float]:
    """The accuracies of one epoch as a line of a record."""
    names = {VAL_GIVEN: "val_accuracy", VAL_TRUE: "val_true_accuracy", TEST: "test_accuracy"}
    return {"epoch": epoch, **{names[key]: float(row.mean()) for key, row in correct.items()}}


def _matrix(path: Path, key: str, values: NDArray) -> NDArray[np.bool_]:
    if values.ndim != 2 or 0 in values.shape or not np.isin(values, (0, 1)).all():
        raise ValueError(
            f"{path}: {key!r} must be bool or 0/1 [epochs, samples], got {values.dtype} of shape {values.shape}"
        )
    return values.astype(np.bool_)


def _labels(
    path: Path, key: str, arrays: dict[str, NDArray], classes: tuple[str, ...] | None
) -> NDArray[np.int64] | None:
    if key not in arrays:
        return None
    values, samples = arrays[key], arrays["correct"].shape[1]
    if values.shape != (samples,) or not np.issubdtype(values.dtype, np.integer):
        raise ValueError(f"{path}: {key!r} must be int [{samples}], got {values.dtype} of shape {values.shape}")
    wrong = np.flatnonzero((values < 0) | (values >= (np.inf if classes is None else len(classes))))
    if len(wrong):
        raise ValueError(f"{path}: {key}[{wrong[0]}] is {values[wrong[0]]}, which is not a class index")
    return values.astype(np.int64)
