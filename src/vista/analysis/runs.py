"""Runs as analysis sees them: read from a run's folder, a recorder's or a `.npz`, checked."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vista import noise
from vista.analysis import other_tools, recorder
from vista.analysis.trajectory import Matrix
from vista.core import coverage, teacher
from vista.runs import folder as run_folder
from vista.runs.folder import RunFolder
from vista.runs.record import EPOCHS, TEST, VAL_GIVEN, VAL_TRUE, Record

Against = Literal["given", "true", "test"]
SETS: dict[Against, str] = {"given": VAL_GIVEN, "true": VAL_TRUE, "test": TEST}
TRUTH_KNOWN = ("symmetric", "asymmetric", "pairflip", "human")  # of a label file nobody knows which side is right


@dataclass(frozen=True, eq=False)
class Run:
    """The record of one training, and what it was."""

    name: str
    path: Path
    record: Record
    config: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] | None = None  # of a finished run
    classes: tuple[str, ...] | None = None
    val_ids: NDArray[np.int64] | None = None  # which samples these are [m]
    val_labels: NDArray[np.int64] | None = None  # given ones [m]
    val_true: NDArray[np.int64] | None = None
    samples: int | None = None  # of the training part
    epochs: int | None = None  # planned
    earlier_seconds: float = 0.0  # that the runs took which it needed first
    is_folder: bool = False  # written by vista itself, so labels and teacher may be there

    def __len__(self) -> int:
        return len(self.record)

    def has(self, against: Against) -> bool:
        return SETS[against] in self.record.sizes

    def correct(self, against: Against = "given") -> Matrix:
        """Bool ``[E, m]``: validation samples against given or true labels, or test samples."""
        if not self.has(against):
            raise ValueError(f"{self.path} does not say what was right against {against} labels")
        return self.record.correct(SETS[against])

    @property
    def best_labels(self) -> Against:
        """What forgetting is judged by: the true labels where they are known, else the given ones."""
        kind = noise.parse(self.config["noise"]).kind if self.is_folder else None
        known = self.has("true") and (kind in TRUTH_KNOWN or not self.is_folder)
        return "true" if known else "given"

    @property
    def options(self) -> dict[str, Any]:
        """Of its method, where it is one that keeps anchors; else those of Basic, as if it had kept them."""
        own = self.config.get("options")
        own = own if isinstance(own, dict) else {}  # a recorder's run may be described by anything
        known = {name: own[name] for name, fits in ANCHOR_VALUES.items() if name in own and fits(own[name])}
        return ANCHOR_OPTIONS | known

    @property
    def keeps_anchors(self) -> bool:
        return any("anchors" in line for line in self.record.lines)

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come. A recorder's run says so by the ``epochs`` of its ``config``, or never."""
        if self.is_folder:
            return self.metrics is not None
        return self.path.is_file() or (self.epochs is not None and len(self) >= self.epochs)

    @property
    def seed(self) -> Any:
        return self.config.get("seed")

    def shares_validation(self, other: Run) -> bool:
        """Whether both were judged by the same samples and given labels, as far as they say."""
        pairs = zip(self._validation_set, other._validation_set, strict=True)
        return all(mine is None or theirs is None or mine == theirs for mine, theirs in pairs)

    @functools.cached_property
    def _validation_set(self) -> tuple[str | None, ...]:
        """Hashes of its given labels and of which samples they are, where these are known."""
        parts = (self.val_labels, self.val_ids)
        return tuple(None if p is None else hashlib.sha256(p.astype("<i8").tobytes()).hexdigest() for p in parts)


ANCHOR_OPTIONS: dict[str, Any] = {"tau": 0.0, "order": "accuracy", "weights": "coverage", "smoothing": 1}
ANCHOR_VALUES: dict[str, Callable[[Any], bool]] = {
    "tau": lambda value: isinstance(value, int | float) and 0 <= value < 1,
    "order": lambda value: value in coverage.ORDERS,
    "weights": lambda value: value in teacher.WEIGHTS,
    "smoothing": lambda value: isinstance(value, int) and value >= 1,
}


def read_run(path: str | Path) -> Run:
    """A run's folder, a recorder's folder or a `.npz` of epochs x samples."""
    path = Path(path)
    if path.is_file() and path.suffix == ".npz":
        return _from_npz(path)
    if (path / recorder.DESCRIPTION).is_file():
        return _from_recorder(path)
    return _from_folder(RunFolder.open(path))


NEEDED = (run_folder.DATA, run_folder.ENVIRONMENT, run_folder.LABELS, run_folder.SPLIT)


def _from_folder(folder: RunFolder) -> Run:
    missing = next((name for name in NEEDED if not (folder.path / name).exists()), None)
    if missing is not None:
        raise FileNotFoundError(f"{folder.path} is no whole run: it has no {missing}")
    config, data, record = folder.config(), folder.data(), folder.record()
    if folder.is_finished() and len(record) < config.epochs:
        raise ValueError(
            f"{folder.path} has finished, but its record ends at epoch {len(record)} of {config.epochs}: "
            "it was cut short"
        )
    labels, split = folder.labels(), folder.split()
    return _checked(
        Run(
            name=folder.path.name,
            path=folder.path,
            record=record,
            config=config.to_json(),
            environment=folder.environment(),
            metrics=folder.metrics() if folder.is_finished() else None,
            classes=data.classes,
            val_ids=split.val,
            val_labels=labels.given[split.val],
            val_true=labels.true[split.val],
            samples=len(split.train),
            epochs=config.epochs,
            earlier_seconds=folder.earlier_seconds(),
            is_folder=True,
        )
    )


def _from_recorder(path: Path) -> Run:
    about = recorder.read_description(path)
    begun = (path / EPOCHS).exists()
    planned = about["config"].get("epochs")
    return _checked(
        Run(
            name=path.name,
            path=path,
            record=Record.read(path) if begun else Record({VAL_GIVEN: len(about["val_labels"])}),
            config=about["config"],
            epochs=planned if isinstance(planned, int) else None,
            classes=tuple(about["classes"]),
            val_labels=np.array(about["val_labels"], dtype=np.int64),
            val_true=None if about["true_labels"] is None else np.array(about["true_labels"], dtype=np.int64),
        )
    )


def _from_npz(path: Path) -> Run:
    trajectory = other_tools.read_npz(path)
    return _checked(
        Run(
            name=path.stem,
            path=path,
            record=trajectory.record,
            classes=trajectory.classes,
            val_labels=trajectory.labels,
            val_true=trajectory.true_labels,
        )
    )


def _checked(run: Run) -> Run:
    if VAL_GIVEN not in run.record.sizes:
        raise ValueError(f"{run.path} does not say which validation samples were right against given labels")
    if run.classes is not None:
        _check_classes(run, run.classes)
    if run.val_labels is not None and len(run.val_labels) != run.record.sizes[VAL_GIVEN]:
        raise ValueError(
            f"{run.path} has {len(run.val_labels)} validation labels, but its record has "
            f"{run.record.sizes[VAL_GIVEN]} samples"
        )
    return run


def _check_classes(run: Run, classes: tuple[str, ...]) -> None:
    if len(classes) < 2:
        only = f"one class only ({classes[0]!r})" if classes else "no class names"
        raise ValueError(f"{run.path} has {only}: nothing can be told apart")
    for labels in (run.val_labels, run.val_true):
        if labels is not None and (highest := int(labels.max(initial=-1))) >= len(classes):
            raise ValueError(
                f"{run.path} has {len(classes)} class names, but a validation sample of class {highest}: "
                f"{highest + 1} names are needed"
            )
