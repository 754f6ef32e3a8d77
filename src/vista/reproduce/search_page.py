"""The results of the search for a recipe, written from the ledger into docs/recipe.md."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from vista.reproduce.ledger import LedgerRecord, cell_key, group_by_cell
from vista.reproduce.results_page import Mean, format_gain
from vista.reproduce.studies.recipe import ADDITIONS, CANDIDATES, SCHEDULES, STUDIES, TUNING, search_cell

LAST_EPOCHS = 5  # whose accuracy on the validation labels is averaged: the criterion
WEIGHTS = {"average": "", "plain": "plain_"}  # evaluated weights, and what their fields in an epoch's line begin with
COVERAGE, LAST_STATE, REFERENCE = "vista-light", "ps-kd-beta", "ce"
WITHOUT_RESTARTS = tuple(schedule for schedule in SCHEDULES if schedule != "restarts")
BY_SEED = dict[int, float]


@dataclass(frozen=True)
class Row:
    """A cell of the factorial in one setting: the values of its seeds, in percent."""

    setting: str
    method: str
    schedule: str
    weights: str
    criterion: BY_SEED
    test: BY_SEED
    ece: BY_SEED = field(default_factory=dict)
    calibrated: BY_SEED = field(default_factory=dict)
    is_symmetric: bool = False  # a run was calibrated by the symmetric model alone, as earlier versions did

    @property
    def name(self) -> str:
        return f"`{self.method}`, `{self.schedule}`, {self.weights} weights"


def rows_of(records: list[LedgerRecord]) -> list[Row]:
    """The cells of the screening that have a run, in the order of the plan.

    Args:
        records: The ledger. Runs of other protocols, or of seeds that are not for tuning, are left out.

    Returns:
        Two rows per run: the average of the weights, and the plain weights.
    """
    study, by_cell, rows = STUDIES["recipe-search"], group_by_cell(records), []
    seeds = range(study.first_seed, study.first_seed + study.seeds)
    for setting in TUNING:
        for method in (*CANDIDATES, *ADDITIONS):
            for schedule in SCHEDULES:
                found = by_cell.get(cell_key(search_cell(setting, method, schedule).config()), [])
                runs = {run.config.seed: run for run in found if run.config.seed in seeds}
                rows += [_row(runs, setting, method, schedule, weights) for weights in WEIGHTS if runs]
    return rows


def _row(runs: dict[int, LedgerRecord], setting: str, method: str, schedule: str, weights: str) -> Row:
    def by_seed(value: Callable[[LedgerRecord], float | None]) -> BY_SEED:
        values = ((seed, value(run)) for seed, run in sorted(runs.items()))
        return {seed: 100.0 * value for seed, value in values if value is not None}

    prefix = WEIGHTS[weights]
    criterion = by_seed(
        lambda run: statistics.fmean(line[f"{prefix}val_accuracy"] for line in run.epochs[-LAST_EPOCHS:])
    )
    test = by_seed(lambda run: float(run.epochs[-1][f"{prefix}test_accuracy"]))
    if weights == "plain":  # the logits of these weights are not kept
        return Row(setting, method, schedule, weights, criterion, test)
    ece = by_seed(lambda run: float(run.metrics["last"]["test"]["ece"]))
    calibrated = by_seed(_calibrated_ece)
    fits = (run.metrics.get("calibration", {}).get("last") for run in runs.values())
    is_symmetric = any(fit is not None and "noise" not in fit for fit in fits)
    return Row(setting, method, schedule, weights, criterion, test, ece, calibrated, is_symmetric)


def _calibrated_ece(run: LedgerRecord) -> float | None:
    """``None`` where the validation labels did not allow a fit."""
    calibrated = run.metrics["last"].get("calibrated")
    return None if calibrated is None else float(calibrated["test"]["ece"])


def difference(one: Row, other: Row) -> Mean | None:
    """The difference of the criterion, seed by seed, over the seeds that both have."""
    return Mean.over(
        [value - other.criterion[seed] for seed, value in one.criterion.items() if seed in other.criterion]
    )


def counts(value: Mean) -> bool:
    """Whether a difference exceeds two standard errors; that of one seed has none, and does not count."""
    return value.error is not None and abs(value.mean) > 2 * value.error


def references(rows: list[Row]) -> dict[str, Row]:
    """In each setting the cell of cross-entropy with the highest criterion."""
    plain = [row for row in rows if row.method == REFERENCE]
    found = {setting: [row for row in plain if row.setting == setting] for setting in TUNING}
    return {setting: max(cells, key=_criterion) for setting, cells in found.items() if cells}


def _criterion(row: Row) -> float:
    return statistics.fmean(row.criterion.values())


def render(records: list[LedgerRecord]) -> str:
    """Render the section.

    Args:
        records: The ledger, as :func:`vista.reproduce.ledger.read` returns it.

    Returns:
        Markdown, without a heading.
    """
    rows = rows_of(records)
    if not rows:
        return "No run of the search is in the ledger yet.\n"
    reference = references(rows)
    parts = [_about_coverage(rows), _about_runs(rows, reference), *_ranking(rows, reference), *_cells(rows, reference)]
    return "\n".join(parts)


def _about_coverage(rows: list[Row]) -> str:
    """The plan's question: whether past states are useful without restarts."""
    without = {(row.setting, row.schedule, row.weights, row.method): row for row in rows}
    compared = []
    for (*place, method), row in without.items():
        last_state = without.get((*place, LAST_STATE))  # type: ignore[arg-type]
        if method == COVERAGE and row.schedule in WITHOUT_RESTARTS and last_state is not None:
            found = difference(row, last_state)
            compared += [(row, found)] if found is not None else []
    if not compared:
        return (
            "Whether past states are useful without restarts is open: the runs to be compared are not in the ledger.\n"
        )
    several = all(found.error is not None for _, found in compared)
    shown = "; ".join(
        f"{row.setting}, `{row.schedule}`, {row.weights} weights: {format_gain(found)}" for row, found in compared
    )
    what = f"Difference of the criterion between coverage (`{COVERAGE}`) and the last state alone (`{LAST_STATE}`)"
    better = sum(counts(found) and found.mean > 0 for _, found in compared)
    worse = sum(counts(found) and found.mean < 0 for _, found in compared)
    if not several:
        verdict = "Whether past states are useful without restarts is open: one seed has no standard error."
    elif better == worse == 0:
        verdict = "Without restarts, the last state alone equals coverage: no difference exceeds two standard errors."
    else:
        verdict = (
            f"Without restarts, coverage is better than the last state alone in {better} of {len(compared)} "
            f"comparisons and worse in {worse}."
        )
    return f"**{verdict}** {what}, in points: {shown}.\n"


def _about_runs(rows: list[Row], reference: dict[str, Row]) -> str:
    study = STUDIES["recipe-search"]
    plain = [row for row in rows if row.weights == "plain"]
    screened, added = (
        sum(len(row.criterion) for row in plain if row.method in methods) for methods in (CANDIDATES, ADDITIONS)
    )
    text = f"{screened} of {len(study.cells) * study.seeds} runs of the screening are in the ledger"
    text += f", and {added} with additions. " if added else ". "
    if any(len(row.criterion) == 1 for row in rows):
        text += (
            "Cells with `n` = 1 have one seed: they have no standard error, and by the rule of the plan none of their "
            "differences counts. They say what to repeat, not what is better. "
        )
    if reference:
        cells = "; ".join(
            f"{setting}: {row.name} ({Mean.over([*row.criterion.values()])})" for setting, row in reference.items()
        )
        text += f"The reference is cross-entropy at its best, over schedules and weights: {cells}. "
    return text + "Everything is in percent.\n"


def _ranking(rows: list[Row], reference: dict[str, Row]) -> Iterator[str]:
    """Every method with the schedule and weights that have the highest mean difference from the reference."""
    settings = [setting for setting in TUNING if setting in reference]
    cells: dict[tuple[str, str, str], dict[str, Mean]] = {}
    for row in rows:
        found = difference(row, reference[row.setting]) if row.setting in reference else None
        if found is not None:
            cells.setdefault((row.method, row.schedule, row.weights), {})[row.setting] = found
    complete = {key: found for key, found in cells.items() if len(found) == len(settings)}
    if not settings or not complete:
        return
    means = {key: statistics.fmean(found[setting].mean for setting in settings) for key, found in complete.items()}
    best = {key[0]: key for key in sorted(means, key=lambda key: means[key])}  # the last, and highest, of each method
    yield "Each method with the schedule and weights of its highest mean difference from the reference:\n"
    heads = ["method", "schedule", "weights", *(f"difference, {setting}" for setting in settings), "mean", "verdict"]
    yield _line(heads)
    yield "|" + "---|" * len(heads)
    for key in sorted(best.values(), key=lambda key: -means[key]):
        differences = [complete[key][setting] for setting in settings]
        method, schedule, weights = key
        shown = [_difference_text(each) for each in differences]
        yield _line([f"`{method}`", f"`{schedule}`", weights, *shown, f"{means[key]:+.2f}", _verdict(differences)])
    yield ""


def _verdict(found: list[Mean]) -> str:
    if any(each.error is None for each in found):
        return "one seed"
    if any(counts(each) and each.mean < 0 for each in found):
        return "dropped: worse than the reference in a setting"
    error = math.sqrt(sum((each.error or 0.0) ** 2 for each in found)) / len(found)
    mean = Mean(statistics.fmean(each.mean for each in found), error, min(each.n for each in found))
    return "better" if counts(mean) and mean.mean > 0 else "no difference that counts"


def _difference_text(value: Mean) -> str:
    return f"**{format_gain(value)}**" if counts(value) else format_gain(value)


def _cells(rows: list[Row], reference: dict[str, Row]) -> Iterator[str]:
    yield (
        "All cells. *Criterion*: accuracy on the noisy validation labels, mean of the last five epochs; *difference*: "
        "from the reference, seed by seed, in bold where it exceeds two standard errors; *test* and ECE of the last "
        "epoch. The logits of the plain weights are not kept, so that they have no ECE.\n"
    )
    if any(row.is_symmetric for row in rows):
        yield (
            "Runs marked * were calibrated for symmetric noise alone, as all runs were before the "
            "[choice of the model](calibration.md): with asymmetric noise this can raise the ECE.\n"
        )
    heads = [
        "labels",
        "method",
        "schedule",
        "weights",
        "n",
        "criterion",
        "difference",
        "test",
        "ECE",
        "ECE, calibrated",
    ]
    yield _line(heads)
    yield "|" + "---|" * len(heads)
    for row in rows:
        found = difference(row, reference[row.setting]) if row.setting in reference else None
        is_reference = row is reference.get(row.setting)
        shown = "reference" if is_reference else "" if found is None else _difference_text(found)
        numbers = [Mean.over([*values.values()]) or "" for values in (row.criterion, row.test, row.ece, row.calibrated)]
        place = [row.setting, f"`{row.method}`", f"`{row.schedule}`", row.weights, len(row.criterion)]
        marked = f"{numbers[3]}{' *' if row.is_symmetric else ''}"
        yield _line([*place, numbers[0], shown, *numbers[1:3], marked])
    yield ""


def _line(cells: list[object] | list[str]) -> str:
    return " ".join(f"| {' | '.join(map(str, cells))} |".split())
