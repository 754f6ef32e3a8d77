"""A table of the paper as data: the run behind each cell, and the paper's number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vista.reproduce import protocol
from vista.runs.config import TrainConfig

Metric = Callable[[dict[str, Any], str], float]  # (metrics of a run, "best" or "last") -> number


@dataclass(frozen=True)
class Paper:
    """A number of the paper, and its standard error if the paper gives one."""

    value: float
    error: float | None = None


@dataclass(frozen=True)
class Cell:
    """One cell of a table: setting, method, measure and the paper's number.

    Args:
        setting: Name of the setting, shown in the table.
        method: Method with options, as ``vista.methods.choose`` accepts it.
        changes: Configuration fields that differ from the protocol: data, noise, network ...
        paper: The paper's number.
        measure: A key of :data:`MEASURES`.
        note: Shown in parentheses after the method.
        is_gain: The paper's number is a gain over plain training.
    """

    setting: str
    method: str
    changes: dict[str, Any]
    paper: Paper | None = None
    measure: str = "accuracy"
    note: str = ""
    is_gain: bool = False

    @property
    def method_label(self) -> str:
        """The method as tables show it."""
        return f"{self.method} ({self.note})" if self.note else self.method

    def run_name(self, seed: int) -> str:
        """The name that ``vista reproduce --only`` searches, such as ``symmetric 40 %, vista-light, seed 1``."""
        return f"{self.setting}, {self.method_label}, seed {seed}"

    def config(self, seed: int = 0) -> TrainConfig:
        """The configuration of the run."""
        return protocol.make_config(self.method, self.changes, seed)


@dataclass(frozen=True)
class Study:
    """A table or figure.

    Args:
        title: Heading in RESULTS.md.
        cells: Its cells, in the order of the table's rows.
        about: Text below the heading.
        baseline: Method that gains are measured against.
        seeds: Number of seeds to run by default.
        is_drawn: A figure, which needs the trajectories of its runs.
        first_seed: The first of its seeds, which count up from there.
        shown_in: The page that shows its results in place of RESULTS.md.
    """

    title: str
    cells: tuple[Cell, ...]
    about: str = ""
    baseline: str = "ce"
    seeds: int = 3
    is_drawn: bool = False
    first_seed: int = 0
    shown_in: str = ""


def _accuracy(metrics: dict[str, Any], which: str) -> float:
    return 100.0 * float(metrics[which]["test"]["top1"])


def _error(metrics: dict[str, Any], which: str) -> float:
    return 100.0 - _accuracy(metrics, which)


def _top5_error(metrics: dict[str, Any], which: str) -> float:
    return 100.0 - 100.0 * float(metrics[which]["test"]["top5"])


def _aurc(metrics: dict[str, Any], which: str) -> float:
    return 1000.0 * float(metrics[which]["test"]["aurc"])


def _anchors(metrics: dict[str, Any], which: str) -> float:
    return float(metrics["anchors_max"] or 0)


def _gap(part: str) -> Metric:
    return lambda metrics, _which: 100.0 * float(metrics["deviation_gap"][part])


MEASURES: dict[str, tuple[str, Metric]] = {
    "accuracy": ("test accuracy, %", _accuracy),
    "error": ("test error, %", _error),
    "top5_error": ("test top-5 error, %", _top5_error),
    "aurc": ("AURC x 1000", _aurc),
    "anchors": ("most anchors at once", _anchors),
    "gap_given": ("mean deviation gap, given validation labels, %", _gap("val_given")),
    "gap_true": ("mean deviation gap, true validation labels, %", _gap("val_true")),
    "gap_test": ("mean deviation gap, test labels, %", _gap("test")),
}
