"""The comparison table: a row per group of runs with means, standard errors and the best value of each column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from vista.analysis import trajectory
from vista.analysis.groups import Group, common_labels
from vista.analysis.runs import SETS, Against, Run
from vista.metrics import mean_and_error


@dataclass(frozen=True)
class Shown:
    """A run as its row shows it: cut to the epochs that its whole group has completed."""

    run: Run
    epochs: int
    labels: Against  # that all groups are compared by
    is_over: bool  # every run of the group has its final metrics

    def correct(self, against: Against) -> trajectory.Matrix:
        return self.run.correct(against)[: self.epochs]


@dataclass(frozen=True)
class Column:
    key: str
    title: str
    better: Literal["higher", "lower"] | None
    of_run: Callable[[Shown], float | None]
    digits: int = 2


@dataclass(frozen=True)
class Cell:
    mean: float
    se: float | None  # standard error of the mean; None for a single run
    best: bool = False


@dataclass(frozen=True)
class Row:
    name: str
    seeds: int
    epochs: int  # completed by all of its runs
    planned: int | None
    cells: dict[str, Cell | None]


def comparison(groups: Sequence[Group]) -> list[Row]:
    """The rows of the table; accuracies, gaps and calibration errors in percent.

    Args:
        groups: Groups of runs.

    Returns:
        One row per group, in the same order; a cell is None where a run of the group lacks the value.
    """
    labels = common_labels(groups)
    rows = [Row(g.name, len(g.runs), g.epochs, g.runs[0].epochs, _cells(g, labels)) for g in groups]
    return [Row(r.name, r.seeds, r.epochs, r.planned, _marked(r, rows)) for r in rows]


def _cells(group: Group, labels: Against) -> dict[str, Cell | None]:
    cells: dict[str, Cell | None] = {}
    is_over = all(run.metrics is not None for run in group.runs)
    shown = [Shown(run, group.epochs, labels, is_over) for run in group.runs]
    for column in COLUMNS:
        values = [column.of_run(run) if group.epochs else None for run in shown]
        known = [value for value in values if value is not None]
        cells[column.key] = Cell(*mean_and_error(known)) if len(known) == len(values) else None
    return cells


def _marked(row: Row, rows: list[Row]) -> dict[str, Cell | None]:
    """Mark the best value of each column: all of them on ties after rounding, none in a column with one value."""
    cells: dict[str, Cell | None] = {}
    for column in COLUMNS:
        own = row.cells[column.key]
        shown = [round(c.mean, column.digits) for r in rows if (c := r.cells[column.key]) is not None]
        if own is None or column.better is None or len(shown) == 1:
            cells[column.key] = own
            continue
        best = max(shown) if column.better == "higher" else min(shown)
        cells[column.key] = Cell(own.mean, own.se, round(own.mean, column.digits) == best)
    return cells


def _test_top1(which: Literal["best", "last"]) -> Callable[[Shown], float | None]:
    def of_run(shown: Shown) -> float | None:
        if shown.is_over:
            return 100 * float(_metrics(shown)[which]["test"]["top1"])
        if not shown.run.has("test"):
            return None
        row = -1 if which == "last" else trajectory.best_epoch(shown.correct("given")) - 1
        return 100 * float(shown.correct("test")[row].mean())

    return of_run


def _metric(name: str, factor: float) -> Callable[[Shown], float | None]:
    def of_run(shown: Shown) -> float | None:
        known = _metrics(shown)["best"]["test"].get(name) if shown.is_over else None
        return None if known is None else factor * float(known)

    return of_run


def _calibrated(name: str, factor: float) -> Callable[[Shown], float | None]:
    """A metric with the temperature that was fitted after training; None in older runs and with too few labels."""

    def of_run(shown: Shown) -> float | None:
        known = _metrics(shown)["best"].get("calibrated") if shown.is_over else None
        value = None if known is None else known["test"].get(name)
        return None if value is None else factor * float(value)

    return of_run


def _metrics(shown: Shown) -> dict[str, Any]:
    assert shown.run.metrics is not None
    return shown.run.metrics


def _validation(which: Literal["best", "last"]) -> Callable[[Shown], float | None]:
    def of_run(shown: Shown) -> float | None:
        accuracy = shown.run.accuracy("given")
        if accuracy is None:
            return None
        accuracy = accuracy[: shown.epochs]
        return 100 * float(accuracy.max() if which == "best" else accuracy[-1])

    return of_run


def _gap(shown: Shown) -> float | None:
    if not shown.run.has(shown.labels):
        known = _metrics(shown)["deviation_gap"].get(SETS[shown.labels]) if shown.is_over else None
        return None if known is None else 100 * float(known)
    return 100 * float(trajectory.deviation_gap(shown.correct(shown.labels)).mean())


def _anchors(shown: Shown) -> float | None:
    lines = shown.run.record.lines[: shown.epochs]
    counts: list[Any] = [line["anchors"] for line in lines if "anchors" in line]
    return float(max(counts)) if counts else None


def _minutes(shown: Shown) -> float | None:
    return (shown.run.record.seconds(shown.epochs) + shown.run.earlier_seconds) / 60 or None


COLUMNS = (
    Column("best", "test, best val. epoch (%)", "higher", _test_top1("best")),
    Column("last", "test, last epoch (%)", "higher", _test_top1("last")),
    Column("val_best", "val., best (%)", None, _validation("best")),
    Column("gap", "mean deviation gap (%)", "lower", _gap),
    Column("ece", "ECE (%)", "lower", _metric("ece", 100)),
    Column("ece_calibrated", "ECE, calibrated (%)", "lower", _calibrated("ece", 100)),
    Column("nll", "NLL", "lower", _metric("nll", 1), 3),
    Column("nll_calibrated", "NLL, calibrated", "lower", _calibrated("nll", 1), 3),
    Column("aurc", "AURC (%)", "lower", _metric("aurc", 100)),
    Column("anchors", "most anchors", None, _anchors, 0),
    Column("minutes", "minutes", None, _minutes, 1),
)
