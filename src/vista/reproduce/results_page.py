"""RESULTS.md, written from the ledger: our numbers beside the paper's."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vista.metrics import mean_and_error
from vista.reproduce import grid, ledger, load_study, protocol, study_names
from vista.reproduce.grid import Cell, Paper, Study
from vista.reproduce.ledger import LedgerRecord, cell_key
from vista.runs.config import TrainConfig
from vista.training.resolve import differences

HEAD = """# Results

Written by `vista reproduce --table` from the records in `results/runs/`; we interpret it in
[docs/reproduction.md](docs/reproduction.md). *Last* is the last epoch, which needs no selection; *best* the epoch
with the highest accuracy on the given validation labels (the first on ties). Nothing is selected on the test set. `n`
is the number of seeds, ± the standard error over them. Knowledge fusion trains with cross-entropy alone: where the
ledger has no plain run of a seed, the network of its knowledge fusion run is used. A gain is the difference from
plain training with the same labels, split and initial weights, averaged over the seeds that both have, ± its standard
error. The paper's number is compared with *best*: a difference is in bold where it exceeds two standard errors of
both numbers combined. One seed alone cannot show this, and two seeds give only a rough estimate of the error.
"""

COLUMNS = (
    "setting", "method", "measure", "n", "ours, last", "ours, best", "paper", "gain, last", "gain, best", "gain, paper",
    "difference",
)  # fmt: skip


@dataclass(frozen=True)
class Mean:
    """A mean over ``n`` seeds with its standard error, which one seed does not have."""

    mean: float
    error: float | None
    n: int

    @classmethod
    def over(cls, values: Sequence[float]) -> Mean | None:
        """The mean over seeds, or None without values."""
        return cls(*mean_and_error(values), len(values)) if values else None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + (f" ± {self.error:.2f}" if self.error is not None else "")


def average(records: list[LedgerRecord], measure: str, which: str) -> Mean | None:
    """Average a measure over the seeds of a cell.

    Args:
        records: The seeds.
        measure: A key of :data:`vista.reproduce.grid.MEASURES`.
        which: ``best`` or ``last``.

    Returns:
        The mean, or None without records.
    """
    return Mean.over(list(_by_seed(records, measure, which).values()))


def average_gain(records: list[LedgerRecord], plain: list[LedgerRecord], measure: str, which: str) -> Mean | None:
    """Average the gain over plain training, seed by seed, over the seeds that both have.

    Args:
        records: The seeds of a cell.
        plain: The seeds of plain training in the same setting.
        measure: A key of :data:`vista.reproduce.grid.MEASURES`.
        which: ``best`` or ``last``.

    Returns:
        The mean gain, or None without a common seed.
    """
    ours, theirs = _by_seed(records, measure, which), _by_seed(plain, measure, which)
    return Mean.over([value - theirs[seed] for seed, value in ours.items() if seed in theirs])


def _by_seed(records: list[LedgerRecord], measure: str, which: str) -> dict[int, float]:
    return {record.config.seed: grid.MEASURES[measure][1](record.metrics, which) for record in records}


def render(results: Path) -> str:
    """Render RESULTS.md.

    Args:
        results: Folder of the ledger.

    Returns:
        The page, in Markdown.
    """
    records = ledger.read(results)
    by_cell = ledger.group_by_cell(records)
    tables = ["\n".join(_section(name, load_study(name), by_cell)) for name in study_names()]
    sections = [HEAD, protocol.describe() + "\n", _machines(records), *tables, "\n".join(_others(by_cell))]
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
    runs = {cell_key(cell.config()) for cell in table.cells}
    done = sum(1 for cell in runs if cell in by_cell)
    if not rows:
        yield f"None of {len(runs)} settings has been run yet.\n"
        return
    yield f"{done} of {len(runs)} settings have been run.\n"
    if table.shown_in:
        yield f"The results are in [{table.shown_in}]({table.shown_in}).\n"
        return
    if table.is_drawn and not any(cell.paper for cell in table.cells):
        return
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|" + "---|" * len(COLUMNS)
    yield from rows
    yield ""


def _row(cell: Cell, table: Study, by_cell: dict[str, list[LedgerRecord]]) -> str | None:
    records = by_cell.get(cell_key(cell.config()), [])
    best, last = average(records, cell.measure, "best"), average(records, cell.measure, "last")
    if best is None or last is None:
        return None
    at_best, at_last = (_gain(cell, table, by_cell, records, which) for which in ("best", "last"))
    paper_gain = cell.paper if cell.is_gain else _paper_gain(cell, table)
    paper = None if cell.is_gain else cell.paper
    compared = (at_best, paper_gain) if cell.is_gain else (best, paper)
    columns = [
        cell.setting,
        cell.method_label,
        grid.MEASURES[cell.measure][0],
        str(last.n),
        str(last),
        str(best),
        _paper_text(paper),
        format_gain(at_last),
        format_gain(at_best),
        "" if paper_gain is None else f"{paper_gain.value:+.2f}",
        _verdict(*compared),
    ]
    return "| " + " | ".join(columns) + " |"


def _gain(
    cell: Cell, table: Study, by_cell: dict[str, list[LedgerRecord]], records: list[LedgerRecord], which: str
) -> Mean | None:
    """The gain over plain training in the same setting, if the measure has one."""
    if cell.method == table.baseline or cell.measure == "anchors":
        return None
    return average_gain(records, by_cell.get(_baseline_key(cell, table.baseline), []), cell.measure, which)


def _paper_gain(cell: Cell, table: Study) -> Paper | None:
    """The paper's gain over its plain training in the same setting, taken from this table or else another one."""
    if cell.paper is None or cell.method == table.baseline or cell.measure == "anchors":
        return None
    where = _baseline_key(cell, table.baseline), cell.measure
    plain = _baselines([table], table.baseline).get(where) or _paper_baselines(table.baseline).get(where)
    if plain is None:
        return None
    return Paper(cell.paper.value - plain.value)  # shown without an error and not compared


@functools.cache
def _paper_baselines(method: str) -> dict[tuple[str, str], Paper]:
    return _baselines(map(load_study, study_names()), method)


def _baselines(tables: Iterable[Study], method: str) -> dict[tuple[str, str], Paper]:
    """The paper's plain training by run and measure; where two tables differ, the first one's."""
    found: dict[tuple[str, str], Paper] = {}
    for table in tables:
        for cell in table.cells:
            if cell.method == method and cell.paper is not None and "cutmix" not in cell.changes:
                found.setdefault((_baseline_key(cell, method), cell.measure), cell.paper)
    return found


def _baseline_key(cell: Cell, method: str) -> str:
    """The run of the baseline in a cell's setting; gains under CutMix too are over training without it."""
    changes = {key: value for key, value in cell.changes.items() if key != "cutmix"}
    return cell_key(protocol.make_config(method, changes, 0))


def _paper_text(paper: Paper | None) -> str:
    if paper is None:
        return ""
    return f"{paper.value:.2f}" + (f" ± {paper.error:.2f}" if paper.error is not None else "")


def format_gain(value: Mean | None) -> str:
    """Format a gain for a table; empty for None."""
    if value is None:
        return ""
    return f"{value.mean:+.2f}" + (f" ± {value.error:.2f}" if value.error is not None else "")


def _verdict(ours: Mean | None, paper: Paper | None) -> str:
    if ours is None or paper is None:
        return ""
    difference = ours.mean - paper.value
    if ours.error is None:
        return f"{difference:+.2f}, one seed"
    error = math.hypot(ours.error, paper.error or 0.0)
    return f"**{difference:+.2f}**" if abs(difference) > 2 * error else f"{difference:+.2f}, within two SE"


def _others(by_cell: dict[str, list[LedgerRecord]]) -> Iterator[str]:
    """Runs that belong to no table, and the settings in which they differ from the protocol."""
    known = {cell_key(cell.config()) for name in study_names() for cell in load_study(name).cells}
    others = [records for cell, records in by_cell.items() if cell not in known]
    if not others:
        return
    yield "## Runs under another protocol\n"
    yield "These runs belong to no table above. Each row names its differences from the protocol.\n"
    yield "| data, noise | method | differs in | n | last | best |"
    yield "|---|---|---|---|---|---|"
    for group in others:
        config = group[0].config
        best, last = average(group, "accuracy", "best"), average(group, "accuracy", "last")
        assert best is not None
        texts = (f"{config.data}, {config.noise}", config.method, _differences(config))
        yield f"| {' | '.join(map(_escape, texts))} | {best.n} | {last} | {best} |"


def _escape(text: str) -> str:
    """Escape text of a record for a Markdown table."""
    return " ".join(re.sub(r"([\\`*<>|])", r"\\\1", text).split())


def _differences(config: TrainConfig) -> str:
    """The settings in which a run differs from the protocol of its data and noise."""
    usual = protocol.make_config(config.method, {"data": config.data, "noise": config.noise}, config.seed)
    return ", ".join(f"{name} {ours}" for name, ours, _ in differences(config, usual)) or "the method alone"
