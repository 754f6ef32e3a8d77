"""A table of the paper as data: which run stands in which place, and what the paper has there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Metric = Callable[[dict[str, Any], str], float]  # of a run's metrics, at "best" or "last"


@dataclass(frozen=True)
class Paper:
    """The paper's number, and its error where it gives one."""

    value: float
    error: float | None = None


@dataclass(frozen=True)
class Cell:
    """One place of a table: a setting, a method, the run that fills it, and the paper's number."""

    setting: str
    method: str  # as ``vista.methods.choose`` takes it
    changes: dict[str, Any]  # of the protocol: data, noise, network ...
    paper: Paper | None = None
    measure: str = "accuracy"
    note: str = ""


@dataclass(frozen=True)
class Study:
    """A table or figure: its cells, and the method that gains are measured against."""

    title: str
    cells: tuple[Cell, ...]
    about: str = ""
    baseline: str = "ce"
    seeds: int = 3
    is_drawn: bool = False  # a figure needs the trajectories of its runs


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
