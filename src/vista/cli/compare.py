"""``vista compare --data digits --noise symmetric:0.4 --methods ce,vista,vista-light --seeds 3``."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table
from rich.text import Text

from vista.cli import failures, terminal
from vista.cli.arguments import (
    Output,
    Preset,
    SharedFlags,
    method_name,
    parse,
    place_name,
    preset_values,
    train_config,
)
from vista.cli.execute import execute
from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.training import distributed
from vista.training.compare import Entry, plan, summary
from vista.training.events import Interrupted
from vista.training.preflight import check_same_run
from vista.training.resolve import resolve
from vista.training.scheduler import Job

HELP = "train several methods over several seeds, and print a table"
ABOUT = """Train every method with every seed on the same labels, and compare them.

Runs that have finished are used again, runs that were stopped go on: the same command always continues."""


@dataclass(frozen=True)
class CompareFlags(Output):
    """What is compared."""

    methods: str = "ce,vista,vista-light"
    """Methods, separated by commas, or all; options may follow a name, as in vista:tau=0.02."""
    seeds: int = 3
    """How many seeds: 3 means 0, 1 and 2."""
    preset: Preset = "auto"
    """Values for all options not given: auto takes digits for the digits, otherwise the paper's clean or noisy."""
    out: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder of the runs; runs/compare-DATA-NOISE if not given."""
    at_once: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Runs side by side. If not given: 5 on CUDA; on the CPU one per core where batches are small, otherwise 1."""


@dataclass(frozen=True)
class Compare:
    compare: CompareFlags = field(default_factory=CompareFlags)
    training: SharedFlags = field(default_factory=SharedFlags)


def run(argv: list[str]) -> int:
    default = Compare(training=SharedFlags(**preset_values(argv)))
    read = parse(Compare, argv, "compare", ABOUT, default)
    flags, base = read.compare, train_config(read.training)
    if flags.at_once is not None and flags.at_once < 1:
        raise ValueError(f"at_once is {flags.at_once}, but at least 1 is needed")
    out = Path(flags.out or Path("runs") / f"compare-{place_name(base.data, base.noise)}").expanduser()
    methods = [method.strip() for method in flags.methods.split(",") if method.strip()]
    entries = plan(base, methods, flags.seeds, out, method_name)
    jobs = [job for entry in entries for job in entry.jobs]
    if not flags.fresh:
        for job in jobs:  # before anything is trained
            check_same_run(resolve(job.config).config, RunFolder(job.out))
    try:
        execute(jobs, flags, flags.at_once)
    except Interrupted as error:
        return failures.stopped(error, of_several=True)
    except Exception as error:
        return failures.ended(error, jobs)
    common = _common_error(jobs)
    if common is not None:
        raise common
    _print(entries, base, flags)
    failed = [job for job in jobs if job.error is not None]
    for job in failed:
        assert job.error is not None
        failures.show(job.error, f"{job.out.name}: ")
    return 1 if failed else 0


def _common_error(jobs: list[Job]) -> Exception | None:
    """The error, if all runs failed for one and the same reason: a data set that is not there, most of the time."""
    messages = {failures.sentence(job.error) for job in jobs if job.error is not None}
    return jobs[0].error if len(messages) == 1 and all(job.error is not None for job in jobs) else None


def _print(entries: list[Entry], base: TrainConfig, flags: CompareFlags) -> None:
    if not distributed.is_first_process():
        return
    rows = [summary(entry) for entry in entries]
    if flags.json:
        shared = {k: v for k, v in base.to_json().items() if k not in ("method", "options", "seed")}
        config = {**shared, "methods": [entry.method for entry in entries], "seeds": flags.seeds}
        print(json.dumps({"config": config, "rows": rows}, allow_nan=False))
        return
    out = terminal.console()
    out.print(comparison_table(rows, base, flags.seeds))
    if any(row["reconstruction"] for row in rows):
        out.print("† reconstructed from a description: its source gives no formula or code")
    errors = ", mean ± standard error over the seeds" if flags.seeds > 1 else ""
    out.print(
        f"test accuracy in %{errors}, at the epoch with the best validation accuracy and at the last; the gap is the "
        "mean deviation gap on the given validation labels"
    )


def comparison_table(rows: list[dict[str, Any]], base: TrainConfig, seeds: int) -> Table:
    """A row per method, the highest accuracies in bold."""
    table = Table(title=f"{base.data}, noise {base.noise}, {base.epochs} epochs", title_justify="left")
    table.add_column("method", overflow="fold")
    for name in ("seeds", "best epoch", "last epoch", "gap %", "anchors", "s/run"):  # short: 80 columns are few
        table.add_column(name, justify="right", overflow="fold")
    top = {key: max((row[key]["mean"] for row in rows if row["seeds"]), default=None) for key in ("best", "last")}
    for row in rows:
        counted = str(row["seeds"]) if row["seeds"] == seeds else f"{row['seeds']} of {seeds}"
        accuracies = [_accuracy(row[key], row[key]["mean"] == top[key]) for key in ("best", "last")]
        table.add_row(
            row["method"] + (" †" if row["reconstruction"] else ""),
            counted,
            *accuracies,
            _number(row["deviation_gap"], 2),
            _number(row["anchors_max"], 0),
            _number(row["seconds"], 1),
        )
    return table


def _accuracy(value: dict[str, float | None], is_top: bool) -> Text:
    if value["mean"] is None:
        return Text("failed", style="red")
    error = f" ± {value['se']:.2f}" if value["se"] is not None else ""
    return Text(f"{value['mean']:.2f}{error}", style="bold" if is_top else "")


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
