"""``vista reproduce table1 --root DATA``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.table import Table

from vista import durable
from vista.cli import failures, terminal
from vista.cli.arguments import Output, parse
from vista.cli.execute import execute
from vista.reproduce import ledger, names, page, restore, runs, study
from vista.training.drive import Job
from vista.training.loop import Interrupted
from vista.training.run_folder import RunFolder

HELP = "run the paper's tables and figures again, and write ours beside theirs"
ABOUT = """Run what tables and figures of the paper need, and keep a record of each run in the ledger.

Runs that the ledger has are not run again; a run that was stopped goes on. Without a name, say what there is."""


@dataclass(frozen=True)
class ReproduceFlags(Output):
    """What to reproduce."""

    names: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[NAME ...]")] = ()
    """Tables and figures: table1 ... table6, cutmix, ema, ablations, beta, fig1, lifespan, coverage ..."""
    dry_run: bool = False
    """List the runs and the hours they would take, and run nothing."""
    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="PART")] = ()
    """Only settings or methods with one of these in their name."""
    seeds: int | None = None
    """How many seeds; the table's own number if not given."""
    at_once: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Runs side by side; 5 on CUDA and 1 on the CPU if not given."""
    root: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder that holds the data sets; the environment variable VISTA_DATA if not given."""
    device: str = "auto"
    """cpu, cuda, cuda:1 ...; auto takes CUDA where there is one."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = field(default_factory=lambda: Path("runs/reproduce"))
    """Folder of the runs."""
    results: Annotated[Path, tyro.conf.arg(metavar="DIR")] = field(default_factory=lambda: Path("results"))
    """Folder of the ledger."""
    add: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Add the finished runs below this folder to the ledger; nothing is run."""
    restore: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RECORD")] = ()
    """Make the folders of these records of the ledger again, for `vista report`; nothing is run."""
    table: bool = False
    """Write RESULTS.md from the ledger; nothing is run."""


def run(argv: list[str]) -> int:
    flags = parse(ReproduceFlags, argv, "reproduce", ABOUT)
    out = terminal.console()
    if flags.add is not None:
        for folder in ledger.finished_below(flags.add):
            kept = ledger.add(folder, flags.results, with_bits=runs.is_drawn(folder.config()))
            out.print(f"{folder.path} -> {kept}", soft_wrap=True)
        return 0
    if flags.restore:
        for path in flags.restore:
            folder = restore.restore(ledger.read_record(path), flags.out, flags.root)
            out.print(f"{path} -> {folder.path}", soft_wrap=True)
        return 0
    if flags.table:
        durable.write(Path("RESULTS.md"), page.write(flags.results).encode())
        out.print("RESULTS.md is written")
        return 0
    if not flags.names:
        for name in names():
            out.print(f"  {name:<14}{study(name).title}")
        return 0
    wanted = runs.wanted([study(name) for name in flags.names], ledger.read(flags.results), flags.seeds, flags.only)
    if flags.dry_run:
        out.print(_plan("; ".join(f"{name}: {study(name).title}" for name in flags.names), wanted))
        return 0
    return _make(wanted, flags)


def _plan(title: str, wanted: list[runs.Wanted]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in ("setting", "method", "seed", "state"):
        table.add_column(column)
    table.add_column("hours", justify="right")
    left = 0.0
    for run in wanted:
        hours = 0.0 if run.record else runs.estimated_hours(run.config)
        left += hours
        state = "in the ledger" if run.record else "to be run"
        table.add_row(run.cell.setting, run.cell.method, str(run.config.seed), state, f"{hours:.2f}" if hours else "")
    table.caption = f"about {left:.1f} hours on one H200, one run after another (an estimate)"
    return table


def _make(wanted: list[runs.Wanted], flags: ReproduceFlags) -> int:
    """Make what is missing; each run enters the ledger when it has finished."""
    configs = [runs.placed(run.config, flags.root, flags.device) for run in wanted if run.record is None]
    if not configs:
        terminal.console().print("Every run is in the ledger; `vista reproduce --table` writes RESULTS.md.")
        return 0
    jobs = [Job(config, runs.out_folder(config, flags.out)) for config in configs]

    def keep(job: Job) -> None:
        ledger.add(RunFolder(job.out), flags.results, with_bits=runs.is_drawn(job.config))

    try:
        execute(jobs, flags, flags.at_once, finished=keep)
    except Interrupted as error:
        return failures.stopped(error, of_several=True)
    failed = [job for job in jobs if job.error is not None]
    for job in failed:
        assert job.error is not None
        failures.show(job.error, f"{job.out.name}: ")
    return 1 if failed else 0
