"""Record any training: validation logits at the end of each epoch become the record that figures and pages read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vista.analysis.trajectory_npz import epoch_line
from vista.core.validation import (
    Integers,
    as_integers,
    as_labels,
    as_logits,
    check_all_named,
    check_finite,
    check_logits,
    predicted_classes,
)
from vista.files import atomic, reader
from vista.runs.record import COVERAGE, EPOCHS, TEST, TIMINGS, VAL_GIVEN, VAL_TRUE, Record

DESCRIPTION = "trajectory.json"
FORMAT = 1


class TrajectoryRecorder:
    """Records a training that vista does not run; a new recorder on the same folder continues its record.

    Args:
        folder: A new or empty folder, or that of the same training.
        val_labels: Given labels of the validation samples ``[m]``.
        num_classes: Number of classes; default: that of ``classes``, or the highest label plus 1.
        true_labels: True labels ``[m]``, where they are known.
        classes: Class names ``[K]``.
        config: A description that JSON can encode. Runs that differ only in ``seed`` are drawn as one, ``method``
            is the displayed name, and ``epochs`` is the planned number: `vista report --watch` then ends with the
            last epoch, and further epochs are rejected.

    >>> import tempfile
    >>> recorder = TrajectoryRecorder(tempfile.mkdtemp(), val_labels=[0, 1, 1], classes=["cat", "dog"])
    >>> recorder.end_epoch(torch.tensor([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]]))
    1
    """

    def __init__(
        self,
        folder: str | Path,
        val_labels: Integers,
        *,
        num_classes: int | None = None,
        true_labels: Integers | None = None,
        classes: Sequence[str] | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        count = _count_classes(val_labels, num_classes, classes)
        self.folder = Path(folder)
        self.num_classes = count
        self._is_counted = num_classes is None and classes is None
        self._planned = (config or {}).get("epochs")
        self._given = as_labels(val_labels, count, "val_labels")
        self._true = None if true_labels is None else as_labels(true_labels, count, "true_labels")
        if self._true is not None and len(self._true) != len(self._given):
            raise ValueError(f"true_labels has {len(self._true)} entries, but val_labels has {len(self._given)}")
        description = {
            "format": FORMAT,
            "classes": [str(name) for name in (classes if classes is not None else range(count))],
            "val_labels": self._given.tolist(),
            "true_labels": None if self._true is None else self._true.tolist(),
            "config": _checked(config or {}),
        }
        self._record = self._open(json.loads(json.dumps(description)))  # as it is read back: tuples become lists
        self._last_seen = self._on_disk()

    def _open(self, description: dict[str, Any]) -> Record | None:
        """The record so far, if the folder holds one of this training."""
        atomic.make_folder(self.folder.resolve())
        if (self.folder / DESCRIPTION).exists():
            there = read_description(self.folder)
            other = next((key for key in description if there.get(key) != description[key]), None)
            if other is not None:
                raise ValueError(f"{self.folder} holds the record of another training: its {other} differ")
        elif any(not path.name.startswith(f".{DESCRIPTION}.") for path in self.folder.iterdir()):  # temporary files
            raise ValueError(f"{self.folder} must be empty or hold a record of this training: choose another folder")
        else:
            atomic.write_json(self.folder / DESCRIPTION, description)
        return Record.read(self.folder) if (self.folder / EPOCHS).exists() else None

    @property
    def epoch(self) -> int:
        """The last epoch recorded; 0 before the first."""
        return 0 if self._record is None else len(self._record)

    def end_epoch(
        self,
        val_logits: Tensor | NDArray[Any],
        val_index: Integers | None = None,
        test_logits: Tensor | NDArray[Any] | None = None,
        test_labels: Integers | None = None,
        *,
        epoch: int | None = None,
    ) -> int:
        """Record one epoch.

        Args:
            val_logits: Validation logits ``[m, K]``.
            val_index: Sample of each row, where the order is not 0..m-1; the first row of a repeated sample counts.
            test_logits: Test logits ``[T, K]``, together with ``test_labels``.
            test_labels: Test labels ``[T]``.
            epoch: The epoch that ended; default: the next one. An earlier one truncates the record, as after a restart
                from an older checkpoint.

        Returns:
            The number of the epoch.

        >>> import tempfile
        >>> recorder = TrajectoryRecorder(tempfile.mkdtemp(), val_labels=[0, 1])
        >>> [recorder.end_epoch(torch.eye(2)) for _ in range(2)]
        [1, 2]
        """
        number = self.epoch + 1 if epoch is None else epoch
        if not 1 <= number <= self.epoch + 1:
            raise ValueError(f"epoch must be between 1 and {self.epoch + 1}, the next of this record, got {number}")
        if isinstance(self._planned, int) and number > self._planned:
            raise ValueError(
                f"{self.folder} has all {self._planned} epochs of its config: choose another folder, or pass epoch=1 "
                "to start over"
            )
        guesses = self._guesses(val_logits, val_index, number)
        correct = {VAL_GIVEN: (guesses == self._given).numpy()}
        if self._true is not None:
            correct[VAL_TRUE] = (guesses == self._true).numpy()
        if (test_logits is None) != (test_labels is None):
            raise ValueError("test_logits and test_labels must be given together, got only one of them")
        if test_logits is not None and test_labels is not None:
            correct[TEST] = self._test(test_logits, test_labels, number)
        if self._on_disk() != self._last_seen:
            raise RuntimeError(
                f"the record in {self.folder} was changed by another process; create a new TrajectoryRecorder to "
                "continue from what the folder holds now"
            )
        record = self._record_until(number - 1, correct)
        record.append(epoch_line(number, correct), {"epoch": number}, correct)
        record.write(self.folder)
        self._record, self._last_seen = record, self._on_disk()
        return number

    def _on_disk(self) -> bytes:
        """The current contents of the epoch file."""
        lines = self.folder / EPOCHS
        return reader.read_bytes(lines) if lines.exists() else b""

    def _guesses(self, logits: Tensor | NDArray[Any], index: Integers | None, epoch: int) -> Tensor:
        values = as_logits(logits, "val_logits").detach()
        if self._is_counted and values.ndim == 2 and values.shape[1] > self.num_classes:
            highest, there = self.num_classes - 1, values.shape[1]
            raise ValueError(
                f"val_logits has {there} classes, but the highest of val_labels is {highest}: pass num_classes={there}"
            )
        guesses = predicted_classes(values, index, len(self._given), self.num_classes, epoch)
        check_all_named(guesses >= 0)
        return guesses

    def _test(self, logits: Tensor | NDArray[Any], labels: Integers, epoch: int) -> NDArray[np.bool_]:
        truth = as_labels(labels, self.num_classes, "test_labels")
        values = as_logits(logits, "test_logits").detach()
        check_logits(values, len(truth), self.num_classes, "test_logits")
        check_finite(values, torch.arange(len(truth)), epoch, "test_logits")
        right: NDArray[np.bool_] = (values.argmax(dim=1).cpu() == truth).numpy()
        return right

    def _record_until(self, epochs: int, correct: dict[str, NDArray[np.bool_]]) -> Record:
        """The record cut to its first ``epochs`` epochs, to append one with the same sets of samples."""
        sizes = {name: len(row) for name, row in correct.items()}
        if self._record is None or epochs == 0:
            return Record(sizes)
        old = self._record
        if sizes != old.sizes:
            raise ValueError(f"epoch {epochs + 1} has {_counted(sizes)}, but the record has {_counted(old.sizes)}")
        rows = {name: values[:epochs] for name, values in old.rows.items()}
        timings: list[dict[str, float]] = [{"epoch": n} for n in range(1, epochs + 1)]  # the file may lack the last
        return Record(sizes, old.lines[:epochs], timings, rows)


def recording_of(path: Path) -> Path | None:
    """The recorder folder that owns a file of this path, or None."""
    folder = path.resolve().parent
    own = path.name in (DESCRIPTION, EPOCHS, TIMINGS, COVERAGE)
    return folder if own and (folder / DESCRIPTION).is_file() else None


def read_description(folder: Path) -> dict[str, Any]:
    """Read the description in a recorder folder."""
    about = reader.read_object(folder / DESCRIPTION, "restore the file, or record the training again")
    if about.get("format") != FORMAT:
        raise ValueError(
            f"{folder / DESCRIPTION} has format {about.get('format')!r}, but this version reads format {FORMAT}"
        )
    for name, kinds in KINDS.items():
        if name not in about or not isinstance(about[name], kinds):
            raise ValueError(f"{folder / DESCRIPTION} is damaged: {name} is {about.get(name)!r}")
    for name in ("val_labels", "true_labels"):
        if not all(type(label) is int and abs(label) < 2**63 for label in about[name] or ()):
            raise ValueError(f"{folder / DESCRIPTION} is damaged: {name} must be integers")
    return about


KINDS: dict[str, tuple[type, ...]] = {
    "config": (dict,),
    "classes": (list,),
    "val_labels": (list,),
    "true_labels": (list, type(None)),
}


def _checked(config: dict[str, Any]) -> dict[str, Any]:
    for name, value in config.items():
        try:
            json.dumps({name: value}, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"config[{name!r}] must be JSON, got {value!r}: {error}") from error
    return config


def _count_classes(labels: Integers, num_classes: int | None, classes: Sequence[str] | None) -> int:
    if num_classes is None:
        num_classes = len(classes) if classes is not None else _highest(labels) + 1
    if classes is not None and len(classes) != num_classes:
        raise ValueError(f"classes has {len(classes)} names, but num_classes is {num_classes}")
    if num_classes < 2:
        raise ValueError(f"num_classes must be at least 2, got {num_classes}")
    return num_classes


def _highest(labels: Integers) -> int:
    values = as_integers(labels, "val_labels")
    return int(values.max()) if len(values) else -1


def _counted(sizes: dict[str, int]) -> str:
    return ", ".join(f"{size} {name} samples" for name, size in sizes.items())
