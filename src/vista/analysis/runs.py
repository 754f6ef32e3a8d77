"""Runs as analysis sees them: read from a run's folder, a recorder's or a `.npz`, checked, grouped over seeds."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vista import coverage, noise, teacher
from vista.analysis import other_tools, recorder
from vista.analysis.trajectory import Matrix
from vista.training import run_folder
from vista.training.config import INCIDENTAL
from vista.training.record import COVERAGE, EPOCHS, TEST, VAL_GIVEN, VAL_TRUE, Record
from vista.training.run_folder import RunFolder, find_runs

Against = Literal["given", "true", "test"]
SETS: dict[Against, str] = {"given": VAL_GIVEN, "true": VAL_TRUE, "test": TEST}
SEEDS = ("seed", "noise_seed", "split_seed")
TRUTH_KNOWN = ("symmetric", "asymmetric", "human")  # of a label file nobody knows which side is right


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
    val_labels: NDArray[np.int64] | None = None  # given ones [m]
    val_true: NDArray[np.int64] | None = None
    samples: int | None = None  # of the training part
    epochs: int | None = None  # planned
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

    @functools.cached_property
    def validation_set(self) -> str | None:
        """A hash of its given labels; ``None`` where they are not known."""
        if self.val_labels is None:
            return None
        return hashlib.sha256(self.val_labels.astype("<i8").tobytes()).hexdigest()


ANCHOR_OPTIONS: dict[str, Any] = {"tau": 0.0, "order": "accuracy", "weights": "coverage"}
ANCHOR_VALUES: dict[str, Callable[[Any], bool]] = {
    "tau": lambda value: isinstance(value, int | float) and 0 <= value < 1,
    "order": lambda value: value in coverage.ORDERS,
    "weights": lambda value: value in teacher.WEIGHTS,
}


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in their seeds alone."""

    name: str
    runs: tuple[Run, ...]

    @property
    def epochs(self) -> int:
        """How many epochs all of its runs have behind them."""
        return min(len(run) for run in self.runs)


def common_labels(groups: Sequence[Group]) -> Against:
    """What forgetting is judged by where groups stand side by side: true labels where all runs know them."""
    known = all(run.best_labels == "true" for group in groups for run in group.runs)
    return "true" if known else "given"


def read_run(path: str | Path) -> Run:
    """A run's folder, a recorder's folder or a `.npz` of epochs x samples."""
    path = Path(path)
    if path.is_file() and path.suffix == ".npz":
        return _from_npz(path)
    if (path / recorder.DESCRIPTION).is_file():
        return _from_recorder(path)
    return _from_folder(RunFolder.open(path))


def read_runs(paths: Sequence[str | Path]) -> list[Run]:
    """Every run named, and every run below a folder that is none itself; refused where they cannot be compared."""
    if not paths:
        raise ValueError("no run was named: give a run's folder, or a folder with runs below it")
    places: dict[Path, Path] = {}  # by where they really are: a run may be named twice
    for path in paths:
        for place in _places(Path(path)):
            places.setdefault(place.resolve(), place)
    runs = [read_run(place) for place in places.values()]
    check_comparable(runs)
    return runs


def _places(path: Path) -> list[Path]:
    if path.is_file() or not path.exists() or any((path / name).is_file() for name in OWN_FILES):
        return [path]
    below = {run.path for run in find_runs(path)} | {file.parent for file in path.rglob(recorder.DESCRIPTION)}
    if not below:
        raise FileNotFoundError(f"{path} is no run: it has no {run_folder.CONFIG}, and there is no run below it")
    return sorted(below)


OWN_FILES = (run_folder.CONFIG, recorder.DESCRIPTION)


def check_comparable(runs: Sequence[Run]) -> None:
    """Runs of one seed must have one validation set, and every two groups must have one in common."""
    first = runs[0]
    for run in runs[1:]:
        size, own = first.record.sizes[VAL_GIVEN], run.record.sizes[VAL_GIVEN]
        if size != own:
            raise ValueError(f"{first.path} has {size} validation samples, but {run.path} has {own}: {APART}")
        for name in ("data", "noise"):
            if first.config.get(name, run.config.get(name)) != run.config.get(name, first.config.get(name)):
                ours, theirs = first.config[name], run.config[name]
                raise ValueError(f"{first.path} has {name} {ours}, but {run.path} has {theirs}: {APART}")
    groups = grouped(runs)
    for group in groups:
        _refuse_one_twice(group)
    for place, one in enumerate(groups):
        for other in groups[place:]:
            _check_same_validation(one, other)


APART = "they have different validation sets, so report them apart"


def _refuse_one_twice(group: Group) -> None:
    """A copy of a run is no other seed: averaged in, it would make the error smaller than it is."""
    known: dict[tuple[Any, ...], Run] = {}
    for run in group.runs:
        seeds = tuple(run.config.get(name) for name in SEEDS)
        first = known.setdefault(seeds, run)
        if first is not run and run.seed is not None:
            raise ValueError(f"{first.path} and {run.path} are one run twice, with seed {run.seed}: name one of them")


def _check_same_validation(one: Group, other: Group) -> None:
    common = False
    for a in one.runs:
        for b in other.runs:
            mine, theirs = a.validation_set, b.validation_set
            common |= mine is None or theirs is None or mine == theirs
            if a.seed is not None and a.seed == b.seed and None not in (mine, theirs) and mine != theirs:
                raise ValueError(
                    f"{a.path} and {b.path} have seed {a.seed} but other validation samples or labels: {APART}"
                )
    if not common:
        raise ValueError(f"{one.runs[0].path} and {other.runs[0].path} share no validation set: {APART}")


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Runs that differ in seeds alone, in the order they came; names tell the groups apart."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(_key(run), []).append(run)
    groups = list(found.values())
    methods = [str(members[0].config.get("method", members[0].name)) for members in groups]
    configs = [_flat(members[0].config) for members in groups]
    names = []
    for place, method in enumerate(methods):
        rivals = [configs[i] for i, other in enumerate(methods) if other == method]
        names.append(f"{method}{_difference(configs[place], rivals)}")
    for place, name in enumerate(names):
        if names.count(name) > 1:
            names[place] = f"{name} [{groups[place][0].path}]"
    return [Group(name, tuple(members)) for name, members in zip(names, groups, strict=True)]


def _key(run: Run) -> str:
    if not run.config:
        return str(run.path)
    return json.dumps({k: v for k, v in run.config.items() if k not in (*SEEDS, *INCIDENTAL)}, sort_keys=True)


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """What may tell two groups apart, the method's options beside the rest."""
    ignored = (*SEEDS, *INCIDENTAL, "options", "method", "format")
    options = config.get("options")
    return {
        **{name: value for name, value in config.items() if name not in ignored},
        **(options if isinstance(options, dict) else {}),
    }


def _difference(own: dict[str, Any], rivals: list[dict[str, Any]]) -> str:
    names = [n for n in sorted(own) if any(rival.get(n) != own[n] for rival in rivals)]
    return f" ({', '.join(f'{name}={own[name]}' for name in names)})" if names else ""


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
            classes=tuple(data["classes"]),
            val_labels=labels.given[split.val],
            val_true=labels.true[split.val],
            samples=len(split.train),
            epochs=config.epochs,
            is_folder=True,
        )
    )


def _from_recorder(path: Path) -> Run:
    about = recorder.read_description(path)
    begun = any((path / name).exists() for name in (COVERAGE, EPOCHS))
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
    if run.classes is not None and len(run.classes) < 2:
        raise ValueError(f"{run.path} has one class only ({run.classes[0]!r}): nothing can be told apart")
    if run.val_labels is not None and len(run.val_labels) != run.record.sizes[VAL_GIVEN]:
        raise ValueError(
            f"{run.path} has {len(run.val_labels)} validation labels, but its record has "
            f"{run.record.sizes[VAL_GIVEN]} samples"
        )
    return run
