"""A training to analyse, read from a run folder, a recorder folder or an `.npz` file."""

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
from vista.analysis import recorder, trajectory, trajectory_npz
from vista.analysis.trajectory import Floats, Matrix
from vista.core import coverage, teacher
from vista.runs import folder as run_folder
from vista.runs.folder import RunFolder
from vista.runs.record import EPOCHS, TEST, VAL_GIVEN, VAL_TRUE, Record

Against = Literal["given", "true", "test"]
SETS: dict[Against, str] = {"given": VAL_GIVEN, "true": VAL_TRUE, "test": TEST}
LINES: dict[Against, str] = {"given": "val_accuracy", "true": "val_true_accuracy", "test": "test_accuracy"}
TRUTH_KNOWN = ("symmetric", "asymmetric", "pairflip", "human")  # a label file does not say which labels are right


@dataclass(frozen=True, eq=False)
class Run:
    """The record of one training and its description."""

    name: str
    path: Path
    record: Record
    config: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] | None = None  # only of a finished run
    classes: tuple[str, ...] | None = None
    val_ids: NDArray[np.int64] | None = None  # their positions in the original data [m]
    val_labels: NDArray[np.int64] | None = None  # given labels [m]
    val_true: NDArray[np.int64] | None = None
    samples: int | None = None  # size of the training part
    epochs: int | None = None  # planned
    earlier_seconds: float = 0.0  # duration of the runs it depends on
    is_folder: bool = False  # a run folder of vista, which may hold labels and a teacher

    def __len__(self) -> int:
        return len(self.record)

    def has(self, against: Against) -> bool:
        return SETS[against] in self.record.sizes

    def correct(self, against: Against = "given") -> Matrix:
        """Bool ``[E, m]``: validation samples against given or true labels, or test samples."""
        if not self.has(against):
            raise ValueError(f"{self.path} has no record of correctness against {against} labels")
        return self.record.correct(SETS[against])

    def accuracy(self, against: Against = "given") -> Floats | None:
        """Accuracy after each epoch: from the samples, or from the lines of a record that has none; None if unknown."""
        if self.has(against):
            return trajectory.intermediate_accuracy(self.correct(against))
        found = [line.get(LINES[against]) for line in self.record.lines]
        return None if None in found else np.array(found, dtype=np.float64)

    @property
    def has_samples(self) -> bool:
        """Whether the record says which samples were right; the ledger keeps only accuracies of some runs."""
        return self.has("given")

    @property
    def best_labels(self) -> Against:
        """The labels to measure forgetting against: the true labels where they are known, else the given ones."""
        kind = noise.parse(self.config["noise"]).kind if self.is_folder else None
        known = self.accuracy("true") is not None and (kind in TRUTH_KNOWN or not self.is_folder)
        return "true" if known else "given"

    @property
    def options(self) -> dict[str, Any]:
        """Options of a method that keeps anchors; those of VISTA Basic for every other method."""
        own = self.config.get("options")
        own = own if isinstance(own, dict) else {}  # a recorder accepts any description
        known = {name: own[name] for name, fits in ANCHOR_VALUES.items() if name in own and fits(own[name])}
        return ANCHOR_OPTIONS | known

    @property
    def keeps_anchors(self) -> bool:
        return any("anchors" in line for line in self.record.lines)

    @functools.cached_property
    def anchor_weights(self) -> Floats:
        """Weights of the anchors after each epoch, before smoothing, ``[E, E]``: row t - 1, column s - 1 for state s.

        They are read from the record. A record without them (of a method that keeps no anchors, or written before
        they were recorded) is replayed by Algorithm 2 with :attr:`options`.
        """
        lines = self.record.lines
        if not all("anchor_weights" in line for line in lines):
            correct, options = self.correct("given"), self.options
            table = trajectory.credit(correct, options["tau"], options["order"])
            return trajectory.anchor_weights(correct, table, options["weights"])
        weights = np.zeros((len(lines), len(lines)))
        for epoch, line in enumerate(lines, 1):
            try:
                found = {int(state): float(weight) for state, weight in line["anchor_weights"].items()}
            except (AttributeError, TypeError, ValueError):
                found = {0: 0.0}
            if not all(1 <= state <= epoch and 0 <= weight <= 1 for state, weight in found.items()):
                raise ValueError(
                    f"{self.path} is damaged: anchor_weights of epoch {epoch} must be weights by epoch 1 to {epoch}, "
                    f"got {line['anchor_weights']!r}"
                )
            weights[epoch - 1, [state - 1 for state in found]] = list(found.values())
        return weights

    @property
    def is_over(self) -> bool:
        """Whether the training is complete; a recorder needs ``epochs`` in its ``config`` to be ever complete."""
        if self.is_folder:
            return self.metrics is not None
        return self.path.is_file() or (self.epochs is not None and len(self) >= self.epochs)

    @property
    def seed(self) -> Any:
        return self.config.get("seed")

    def shares_validation(self, other: Run) -> bool:
        """Whether both use the same validation samples and given labels, as far as both are known."""
        pairs = zip(self._validation_set, other._validation_set, strict=True)
        return all(mine is None or theirs is None or mine == theirs for mine, theirs in pairs)

    @functools.cached_property
    def _validation_set(self) -> tuple[str | None, ...]:
        """Hashes of the given validation labels and of their positions, where known."""
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
    """Read one training.

    Args:
        path: A run folder, the folder of a :class:`TrajectoryRecorder`, or an `.npz` file of epochs x samples.

    Returns:
        The run with its record.

    >>> read_run("runs/digits-symmetric-0.4-vista-seed0").correct("given").shape    # doctest: +SKIP
    (30, 129)
    """
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
        raise FileNotFoundError(f"{folder.path} is an incomplete run: it has no {missing}")
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
    read = trajectory_npz.read_npz(path)
    return _checked(
        Run(
            name=path.stem,
            path=path,
            record=read.record,
            classes=read.classes,
            val_labels=read.labels,
            val_true=read.true_labels,
        )
    )


def _checked(run: Run) -> Run:
    if VAL_GIVEN not in run.record.sizes:
        raise ValueError(f"{run.path} has no record of correctness against given labels")
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
        got = f"only {classes[0]!r}" if classes else "none"
        raise ValueError(f"{run.path} must have at least 2 class names, got {got}")
    for labels in (run.val_labels, run.val_true):
        if labels is not None and (highest := int(labels.max(initial=-1))) >= len(classes):
            raise ValueError(
                f"{run.path} must have at least {highest + 1} class names (a validation sample has class {highest}), "
                f"got {len(classes)}"
            )
