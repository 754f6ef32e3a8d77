"""The comparison table: a row per group of runs, means over its seeds with standard errors, the best of each column."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from vista.analysis import trajectory
from vista.analysis.runs import Group, Run


@dataclass(frozen=True)
class Column:
    key: str
    title: str
    better: Literal["higher", "lower"] | None
    of_run: Callable[[Run], float | None]
    digits: int = 2


@dataclass(frozen=True)
class Cell:
    mean: float
    se: float | None  # standard error of the mean; one run has none
    best: bool = False


@dataclass(frozen=True)
class Row:
    name: str
    seeds: int
    epochs: int  # that all of its runs have behind them
    planned: int | None
    cells: dict[str, Cell | None]


def comparison(groups: Sequence[Group]) -> list[Row]:
    """Accuracies, gaps and calibration in percent, over the runs that have an epoch behind them."""
    rows = [Row(g.name, len(g.runs), g.epochs, g.runs[0].epochs, _cells(g)) for g in groups]
    return [Row(r.name, r.seeds, r.epochs, r.planned, _marked(r, rows)) for r in rows]


def mean_and_error(values: Sequence[float]) -> Cell:
    """Mean and standard error, the sample standard deviation over the root of the number."""
    array = np.asarray(values, dtype=np.float64)
    error = float(array.std(ddof=1) / math.sqrt(len(array))) if len(array) > 1 else None
    return Cell(float(array.mean()), error)


def _cells(group: Group) -> dict[str, Cell | None]:
    cells: dict[str, Cell | None] = {}
    for column in COLUMNS:
        values = [column.of_run(run) if len(run) else None for run in group.runs]
        known = [value for value in values if value is not None]
        cells[column.key] = mean_and_error(known) if len(known) == len(values) else None
    return cells


def _marked(row: Row, rows: list[Row]) -> dict[str, Cell | None]:
    """The best of each column, all of them on ties of what is shown; one row alone is no comparison."""
    cells: dict[str, Cell | None] = {}
    for column in COLUMNS:
        own = row.cells[column.key]
        if own is None or column.better is None or len(rows) == 1:
            cells[column.key] = own
            continue
        shown = [round(c.mean, column.digits) for r in rows if (c := r.cells[column.key]) is not None]
        best = max(shown) if column.better == "higher" else min(shown)
        cells[column.key] = Cell(own.mean, own.se, round(own.mean, column.digits) == best)
    return cells


def _test_top1(which: Literal["best", "last"]) -> Callable[[Run], float | None]:
    def of_run(run: Run) -> float | None:
        if run.metrics is not None:
            return 100 * float(run.metrics[which]["test"]["top1"])
        if not run.has("test"):
            return None
        row = -1 if which == "last" else trajectory.best_epoch(run.correct("given")) - 1
        return 100 * float(run.correct("test")[row].mean())

    return of_run


def _metric(name: str, factor: float) -> Callable[[Run], float | None]:
    def of_run(run: Run) -> float | None:
        return None if run.metrics is None else factor * float(run.metrics["best"]["test"][name])

    return of_run


def _validation(which: Literal["best", "last"]) -> Callable[[Run], float | None]:
    def of_run(run: Run) -> float | None:
        accuracy = trajectory.intermediate_accuracy(run.correct("given"))
        return 100 * float(accuracy.max() if which == "best" else accuracy[-1])

    return of_run


def _gap(run: Run) -> float | None:
    return 100 * float(trajectory.deviation_gap(run.correct(run.best_labels)).mean())


def _anchors(run: Run) -> float | None:
    counts: list[Any] = [line["anchors"] for line in run.record.lines if "anchors" in line]
    return float(max(counts)) if counts else None


def _minutes(run: Run) -> float | None:
    timed = [timing for timing in run.record.timings if "train_seconds" in timing]
    return sum(t["train_seconds"] + t["evaluate_seconds"] for t in timed) / 60 if timed else None


COLUMNS = (
    Column("best", "test, best val. epoch (%)", "higher", _test_top1("best")),
    Column("last", "test, last epoch (%)", "higher", _test_top1("last")),
    Column("val_best", "val., best (%)", None, _validation("best")),
    Column("gap", "mean deviation gap (%)", "lower", _gap),
    Column("ece", "ECE (%)", "lower", _metric("ece", 100)),
    Column("aurc", "AURC (%)", "lower", _metric("aurc", 100)),
    Column("anchors", "most anchors", None, _anchors, 0),
    Column("minutes", "minutes", None, _minutes, 1),
)
