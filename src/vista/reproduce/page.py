"""RESULTS.md from the ledger: ours beside the paper's, nothing typed by hand."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vista.metrics import mean_and_error
from vista.reproduce import grid, ledger, names, protocol, study
from vista.reproduce.grid import Cell, Paper, Study
from vista.reproduce.ledger import LedgerRecord, cell_of
from vista.reproduce.runs import run_of
from vista.runs.config import TrainConfig
from vista.training.resolve import differences

HEAD = """# Results

Written by `vista reproduce --table` from the records in `results/runs/`; our reading of it is
[docs/reproduction.md](docs/reproduction.md). *Best* is the epoch with the highest accuracy on the given validation
labels (the first on ties), *last* the last epoch; the test set chooses nothing. `n` is the number of seeds, ± the
standard error over them. Knowledge fusion trains plainly: where no plain run of a seed is on record, the network of its
run stands for it. A gain is one over plain training with the same labels, split and initial weights, seed by
seed: its mean over the seeds that both have, ± the standard error of that. The paper's number is compared with *best*:
a difference is called one only where it exceeds two standard errors of both together, which one seed alone cannot show
and of which two seeds give a rough idea.
"""


COLUMNS = (
    "setting", "method", "measure", "n", "ours, best", "ours, last", "paper", "gain, best", "gain, last", "gain, paper",
    "difference",
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """A mean over seeds."""

    mean: float
    error: float | None
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + (f" ± {self.error:.2f}" if self.error is not None else "")


def measured(records: list[LedgerRecord], measure: str, which: str) -> Measured | None:
    """Mean and standard error of a measure over the seeds of one cell."""
    return _over_seeds(list(_by_seed(records, measure, which).values()))


def gain(records: list[LedgerRecord], plain: list[LedgerRecord], measure: str, which: str) -> Measured | None:
    """Of runs over plain ones, seed by seed, over the seeds that both have."""
    ours, theirs = _by_seed(records, measure, which), _by_seed(plain, measure, which)
    return _over_seeds([value - theirs[seed] for seed, value in ours.items() if seed in theirs])


def _by_seed(records: list[LedgerRecord], measure: str, which: str) -> dict[int, float]:
    return {record.config.seed: grid.MEASURES[measure][1](record.metrics, which) for record in records}


def _over_seeds(values: list[float]) -> Measured | None:
    if not values:
        return None
    return Measured(*mean_and_error(values), len(values))


def write(results: Path) -> str:
    """The whole page."""
    records = ledger.read(results)
    by_cell = ledger.by_cell(records)
    tables = ["\n".join(_section(name, study(name), by_cell)) for name in names()]
    sections = [HEAD, protocol.in_words() + "\n", _machines(records), *tables, "\n".join(_others(by_cell))]
    return "\n".join(section for section in sections if section).rstrip() + "\n"


def _machines(records: list[LedgerRecord]) -> str:
    if not records:
        return "The ledger is empty.\n"
    devices = sorted({str(record.environment["device"]) for record in records})
    versions = sorted({str(record.environment["torch"]) for record in records})
    commits = sorted({str(record.environment["commit"]) for record in records})
    runs = len({record.path for record in records})
    return f"{runs} runs on {', '.join(devices)}; torch {', '.join(versions)}; commits {', '.join(commits)}.\n"


def _section(name: str, table: Study, by_cell: dict[str, list[LedgerRecord]]) -> Iterator[str]:
    rows = [row for cell in table.cells if (row := _row(cell, table, by_cell)) is not None]
    yield f"## {name}: {table.title}\n"
    if table.about:
        yield f"{table.about}\n"
    runs = {run_of(cell) for cell in table.cells}
    done = sum(1 for cell in runs if cell in by_cell)
    if not rows:
        yield f"None of its {len(runs)} settings has been run yet.\n"
        return
    yield f"{done} of {len(runs)} settings have been run.\n"
    if table.is_drawn and not any(cell.paper for cell in table.cells):
        return
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|" + "---|" * len(COLUMNS)
    yield from rows
    yield ""


def _row(cell: Cell, table: Study, by_cell: dict[str, list[LedgerRecord]]) -> str | None:
    records = by_cell.get(run_of(cell), [])
    best, last = measured(records, cell.measure, "best"), measured(records, cell.measure, "last")
    if best is None or last is None:
        return None
    is_gain = cell.note == "gain"
    at_best, at_last = (_gain(cell, table, by_cell, records, which) for which in ("best", "last"))
    paper_gain = cell.paper if is_gain else _paper_gain(cell, table)
    paper = None if is_gain else cell.paper
    compared = (at_best, paper_gain) if is_gain else (best, paper)
    columns = [
        cell.setting,
        cell.method + (f" ({cell.note})" if cell.note and not is_gain else ""),
        grid.MEASURES[cell.measure][0],
        str(best.n),
        str(best),
        str(last),
        _paper_text(paper),
        signed(at_best),
        signed(at_last),
        "" if paper_gain is None else f"{paper_gain.value:+.2f}",
        _verdict(*compared),
    ]
    return "| " + " | ".join(columns) + " |"


def _gain(
    cell: Cell, table: Study, by_cell: dict[str, list[LedgerRecord]], records: list[LedgerRecord], which: str
) -> Measured | None:
    """Over what plain training came to in the same setting, at the same epoch, seed by seed."""
    if cell.method == table.baseline or cell.measure == "anchors":
        return None
    return gain(records, by_cell.get(_unmixed(cell, table.baseline), []), cell.measure, which)


def _paper_gain(cell: Cell, table: Study) -> Paper | None:
    """Over the paper's plain training in the same setting: this table's own, or else another one's."""
    if cell.paper is None or cell.method == table.baseline or cell.measure == "anchors":
        return None
    where = _unmixed(cell, table.baseline), cell.measure
    plain = _baselines([table], table.baseline).get(where) or _paper_baselines(table.baseline).get(where)
    if plain is None:
        return None
    return Paper(cell.paper.value - plain.value)  # shown without an error, and compared with nothing


@functools.cache
def _paper_baselines(method: str) -> dict[tuple[str, str], Paper]:
    return _baselines(map(study, names()), method)


def _baselines(tables: Iterable[Study], method: str) -> dict[tuple[str, str], Paper]:
    """The paper's numbers of plain training, by run and measure; where two tables differ, the first one's."""
    found: dict[tuple[str, str], Paper] = {}
    for table in tables:
        for cell in table.cells:
            if cell.method == method and cell.paper is not None and "cutmix" not in cell.changes:
                found.setdefault((_unmixed(cell, method), cell.measure), cell.paper)
    return found


def _unmixed(cell: Cell, method: str) -> str:
    """The run of a method in a cell's setting, without CutMix: a gain is one over plain training on plain pictures."""
    changes = {key: value for key, value in cell.changes.items() if key != "cutmix"}
    return cell_of(protocol.configuration(method, changes, 0))


def _paper_text(paper: Paper | None) -> str:
    if paper is None:
        return ""
    return f"{paper.value:.2f}" + (f" ± {paper.error:.2f}" if paper.error is not None else "")


def signed(value: Measured | None) -> str:
    """A gain as a table has it."""
    if value is None:
        return ""
    return f"{value.mean:+.2f}" + (f" ± {value.error:.2f}" if value.error is not None else "")


def _verdict(ours: Measured | None, paper: Paper | None) -> str:
    if ours is None or paper is None:
        return ""
    difference = ours.mean - paper.value
    if ours.error is None:
        return f"{difference:+.2f}, one seed"
    error = math.hypot(ours.error, paper.error or 0.0)
    return f"**{difference:+.2f}**" if abs(difference) > 2 * error else f"{difference:+.2f}, within two SE"


def _others(by_cell: dict[str, list[LedgerRecord]]) -> Iterator[str]:
    """Runs that are in no table, and in which setting they differ from one that is: they are not averaged in."""
    known = {run_of(cell) for name in names() for cell in study(name).cells}
    others = [records for cell, records in by_cell.items() if cell not in known]
    if not others:
        return
    yield "## Runs under another protocol\n"
    yield "In no table above, and not averaged into any; a row says how it differs.\n"
    yield "| data, noise | method | differs in | n | best | last |"
    yield "|---|---|---|---|---|---|"
    for group in others:
        config = group[0].config
        best, last = measured(group, "accuracy", "best"), measured(group, "accuracy", "last")
        assert best is not None
        words = (f"{config.data}, {config.noise}", config.method, _how(config))
        yield f"| {' | '.join(map(_plain, words))} | {best.n} | {best} | {last} |"


def _plain(text: str) -> str:
    """Text from a record as it may stand in a cell of a table."""
    return " ".join(re.sub(r"([\\`*<>|])", r"\\\1", text).split())


def _how(config: TrainConfig) -> str:
    """The settings in which a run differs from the protocol of its data and noise."""
    usual = protocol.configuration(config.method, {"data": config.data, "noise": config.noise}, config.seed)
    return ", ".join(f"{name} {ours}" for name, ours, _ in differences(config, usual)) or "the method alone"
