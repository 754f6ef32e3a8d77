"""``vista reproduce table1 --root DATA``."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from vista.cli import failures, terminal
from vista.cli.arguments import Output, parse
from vista.cli.execute import execute
from vista.files import atomic
from vista.reproduce import ledger, names, page, restore, runs, study
from vista.runs.folder import RunFolder
from vista.training import distributed
from vista.training.events import Interrupted
from vista.training.scheduler import Job

RESULTS_PAGE = Path("RESULTS.md")
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
    """Only settings or methods in whose name a word begins with one of these: symmetric leaves asymmetric out."""
    seeds: int | None = None
    """How many seeds; the table's own number if not given."""
    at_most: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Make so many of the missing runs and leave the rest for another time; all of them if not given."""
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
    _refuse_two_wishes(flags)
    if flags.add is not None:
        return _add(flags.add, flags)
    if flags.restore:
        return _restore(flags)
    if flags.table:
        return _write_table(flags)
    if not flags.names and (flags.only or flags.dry_run):
        raise ValueError(
            "no table or figure is named, so there is nothing to choose from; `vista reproduce` lists them"
        )
    if not flags.names:
        tables = [{"name": name, "title": study(name).title} for name in names()]
        return _answer(flags, {"tables": tables}, *(f"  {table['name']:<14}{table['title']}" for table in tables))
    wanted = runs.wanted([study(name) for name in flags.names], ledger.read(flags.results), flags.seeds, flags.only)
    if flags.at_most is not None:
        put_off = [run for run in wanted if run.is_missing][flags.at_most :]
        wanted = [run for run in wanted if run not in put_off]
    if flags.dry_run:
        return _plan(wanted, flags)
    return _make(wanted, flags)


def _refuse_two_wishes(flags: ReproduceFlags) -> None:
    """Adding, restoring, writing the table and running are commands of their own."""
    wishes = {
        "--add": flags.add is not None,
        "--restore": bool(flags.restore),
        "--table": flags.table,
        "--dry-run": flags.dry_run,
    }
    wished = [name for name, is_wished in wishes.items() if is_wished]
    if len(wished) > 1:
        raise ValueError(f"{wished[0]} and {wished[1]} are two commands: give one of them at a time")
    if wished and wished != ["--dry-run"] and flags.names:
        raise ValueError(f"{wished[0]} runs nothing, but {flags.names[0]!r} is given too: leave one of them out")
    if flags.dry_run and not flags.names:
        raise ValueError(f"--dry-run needs the name of a table or figure: {', '.join(names())}")
    for name, number in (("at_once", flags.at_once), ("at_most", flags.at_most)):
        if number is not None and number < 1:
            raise ValueError(f"{name} is {number}, but at least 1 is needed")


def _answer(flags: ReproduceFlags, answer: dict[str, Any], *said: str | Table) -> int:
    """One JSON object, or the same for people; of several processes the first says it."""
    if not distributed.is_first_process():
        return 0
    if flags.json:
        print(json.dumps(answer))
        return 0
    for each in said:
        terminal.console().print(each, soft_wrap=isinstance(each, str))
    return 0


def _add(below: Path, flags: ReproduceFlags) -> int:
    finished, others = ledger.finished_below(below)
    added = {
        str(folder.path): str(ledger.add(folder, flags.results, with_bits=runs.is_drawn(folder.config())))
        for folder in finished
    }
    left = {str(folder.path): folder.resume_command() for folder in others}
    return _answer(
        flags,
        {"added": added, "unfinished": list(left)},
        *(f"{run} -> {record}" for run, record in added.items()),
        *(f"{run} has not finished and is left out: `{resume}` goes on with it" for run, resume in left.items()),
    )


def _restore(flags: ReproduceFlags) -> int:
    records = [ledger.read_record(path) for path in flags.restore]
    restored = {str(record.path): str(restore.restore(record, flags.out, flags.root).path) for record in records}
    return _answer(flags, {"restored": restored}, *(f"{record} -> {run}" for record, run in restored.items()))


def _write_table(flags: ReproduceFlags) -> int:
    if not flags.results.is_dir():
        raise FileNotFoundError(f"{flags.results} does not exist: --results names the folder of the ledger")
    atomic.write(RESULTS_PAGE, page.write(flags.results).encode())
    return _answer(flags, {"written": str(RESULTS_PAGE)}, f"{RESULTS_PAGE} is written")


def _plan(wanted: list[runs.Wanted], flags: ReproduceFlags) -> int:
    """What would be run, and how long it would take."""
    title = "; ".join(f"{name}: {study(name).title}" for name in flags.names)
    table = Table(title=title, title_justify="left")
    for column in ("setting", "method", "seed", "state"):
        table.add_column(column)
    table.add_column("hours", justify="right")
    rows: list[dict[str, Any]] = []
    for run in wanted:
        method = run.cell.method + (f" ({run.cell.note})" if run.cell.note not in ("", "gain") else "")
        hours = runs.estimated_hours(run.config) if run.is_missing else 0.0
        state = "in the ledger" if run.record else f"with {run.comes_with}" if run.comes_with else "to be run"
        table.add_row(run.cell.setting, method, str(run.config.seed), state, f"{hours:.2f}" if hours else "")
        place = {"setting": run.cell.setting, "method": run.cell.method, "note": run.cell.note}
        rows.append({**place, "seed": run.config.seed, "state": state, "hours": hours})
    left = sum(row["hours"] for row in rows)
    needed = f"about {left:.1f} hours on one H200, one run after another (an estimate)"
    table.caption = needed if left else "every run is in the ledger"
    return _answer(flags, {"runs": rows, "hours": left}, table)


def _make(wanted: list[runs.Wanted], flags: ReproduceFlags) -> int:
    """Make what is missing; each run enters the ledger when it has finished."""
    configs = [runs.placed(run.config, flags.root, flags.device) for run in wanted if run.is_missing]
    if not configs:
        there = [str(run.record.path) for run in wanted if run.record is not None]
        word = "Every run is in the ledger; `vista reproduce --table` writes RESULTS.md."
        return _answer(flags, {"records": there, "failed": {}}, word)
    ledger.check_place(flags.results)
    jobs = [Job(config, runs.out_folder(config, flags.out)) for config in configs]
    records = [str(run.record.path) for run in wanted if run.record is not None]

    def keep(job: Job) -> None:
        folder = RunFolder(job.out)
        records.append(str(ledger.add(folder, flags.results, with_bits=runs.is_drawn(job.config))))

    try:
        execute(jobs, flags, flags.at_once, finished=keep)
    except Interrupted as error:
        return failures.stopped(error, of_several=True)
    except Exception as error:
        return failures.ended(error, jobs)
    failed = [(job.out.name, job.error) for job in jobs if job.error is not None]
    by_reason: dict[str, list[tuple[str, Exception]]] = {}
    for name, reason in failed:
        by_reason.setdefault(failures.sentence(reason), []).append((name, reason))
    for same in by_reason.values():
        more = f" and {len(same) - 1} more runs" if len(same) > 1 else ""
        failures.show(same[0][1], f"{same[0][0]}{more}: ")
    _answer(flags, {"records": records, "failed": {name: failures.sentence(reason) for name, reason in failed}})
    return max((failures.exit_code(reason) for _, reason in failed), default=0)
