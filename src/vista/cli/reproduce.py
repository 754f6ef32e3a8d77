"""``vista reproduce table1 --root DATA``."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from vista.cli import errors, terminal
from vista.cli.arguments import On, Output, parse
from vista.cli.execute import execute
from vista.files import atomic, shell
from vista.reproduce import ledger, load_study, plan, restore, results_page, study_names
from vista.runs.folder import RunFolder
from vista.training import distributed
from vista.training.events import Interrupted
from vista.training.scheduler import Job

RESULTS_PAGE = Path("RESULTS.md")
ABOUT = """Run what tables and figures of the paper need, and keep a record of each run in the ledger.

Runs that the ledger has are skipped; an interrupted run resumes. Without a name, list the tables and figures.

Every run has a name such as `symmetric 40 %, vista-light, seed 1`. --only "symmetric 40" vista-light "seed 1" selects
this run alone: all terms must match. Repeat --only for alternatives. --dry-run shows what is selected."""


@dataclass(frozen=True)
class ReproduceFlags(Output):
    """What to reproduce."""

    names: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[NAME ...]")] = ()
    """Tables and figures: table1 ... table6, cutmix, ema, ablations, beta, fig1, lifespan, coverage ..."""
    dry_run: bool = False
    """List the runs and an estimate of their hours, without running them."""
    only: Annotated[tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]], tyro.conf.arg(metavar="TERM")] = ()
    """Only runs whose name (setting, method, seed) has all of these terms; repeat --only for alternatives."""
    seeds: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Number of seeds; by default the table's own."""
    at_most: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Run at most this many of the missing runs; all of them by default."""
    at_once: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Concurrent runs; by default 5 on CUDA and 1 on the CPU."""
    on: On = None
    """Train on a cluster: ray, ray:ADDRESS, slurm or slurm:PARTITION. --out and --root must be visible on all nodes;
    --at-once is then per GPU. Without GPUs on this machine, also give --device cuda."""
    root: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder that holds the data sets; by default the environment variable VISTA_DATA."""
    device: str = "auto"
    """cpu, cuda, cuda:1 ...; auto selects CUDA if it is available."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = field(default_factory=lambda: Path("runs/reproduce"))
    """Folder of the runs."""
    results: Annotated[Path, tyro.conf.arg(metavar="DIR")] = field(default_factory=lambda: Path("results"))
    """Folder of the ledger."""
    add: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Add the finished runs below this folder to the ledger, and run nothing."""
    restore: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RECORD")] = ()
    """Recreate the run folders of these ledger records for `vista report`, and run nothing."""
    table: bool = False
    """Write RESULTS.md from the ledger, and run nothing."""


def run(argv: list[str]) -> int:
    flags = parse(ReproduceFlags, argv, "reproduce", ABOUT)
    _check(flags)
    if flags.add is not None:
        return _add(flags.add, flags)
    if flags.restore:
        return _restore(flags)
    if flags.table:
        return _write_table(flags)
    if not flags.names:
        tables = [{"name": name, "title": load_study(name).title} for name in study_names()]
        width = max(len(table["name"]) for table in tables)
        lines = [f"  {table['name']:<{width}}  {table['title']}" for table in tables]
        return _answer(flags, {"tables": tables}, *lines, "Next: vista reproduce NAME --dry-run")
    studies = [load_study(name) for name in flags.names]
    planned = plan.plan_runs(studies, ledger.read(flags.results), flags.seeds, flags.only)
    if flags.at_most is not None:
        postponed = [run for run in planned if run.is_missing][flags.at_most :]
        planned = [run for run in planned if run not in postponed]
    if flags.dry_run:
        return _show_plan(planned, flags, [word for word in argv if word != "--dry-run"])
    return _run_missing(planned, flags)


def _check(flags: ReproduceFlags) -> None:
    """Check the flags that exclude or require each other, and their ranges."""
    actions = {
        "--add": flags.add is not None,
        "--restore": bool(flags.restore),
        "--table": flags.table,
        "--dry-run": flags.dry_run,
    }
    given = [name for name, is_given in actions.items() if is_given]
    if len(given) > 1:
        raise ValueError(f"{given[0]} and {given[1]} cannot be combined; give one of them")
    if given and given != ["--dry-run"] and flags.names:
        raise ValueError(f"{given[0]} runs nothing and takes no name, got {flags.names[0]!r}")
    if (flags.dry_run or flags.only) and not flags.names:
        flag = "--dry-run" if flags.dry_run else "--only"
        raise ValueError(f"{flag} needs the name of a table or figure: {', '.join(study_names())}")
    for name, number in (("at_once", flags.at_once), ("at_most", flags.at_most)):
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")


def _answer(flags: ReproduceFlags, answer: dict[str, Any], *lines: str) -> int:
    """Print one JSON object, or the same as text; of several processes the first prints."""
    if not distributed.is_first_process():
        return 0
    if flags.json:
        print(json.dumps(answer))
        return 0
    for line in lines:
        terminal.console().print(line, soft_wrap=True)
    return 0


def _add(below: Path, flags: ReproduceFlags) -> int:
    finished, others = ledger.find_finished(below)
    added = {str(folder.path): _add_run(folder, flags) for folder in finished}
    unfinished = {str(folder.path): folder.resume_command() for folder in others}
    return _answer(
        flags,
        {"added": added, "unfinished": list(unfinished)},
        *(f"{run} -> {record}" for run, record in added.items()),
        *(f"{run} has not finished and was skipped; resume it with `{resume}`" for run, resume in unfinished.items()),
        *(("Next: vista reproduce --table",) if added else ()),
    )


def _add_run(folder: RunFolder, flags: ReproduceFlags) -> str:
    return str(ledger.add(folder, flags.results, with_bits=plan.needs_trajectory(folder.config())))


def _restore(flags: ReproduceFlags) -> int:
    records = [ledger.read_record(path) for path in flags.restore]
    restored = {str(record.path): str(restore.restore(record, flags.out, flags.root).path) for record in records}
    following = shell.command("vista", "report", *map(Path, restored.values()), "--open")
    lines = [f"{record} -> {run}" for record, run in restored.items()]
    return _answer(flags, {"restored": restored}, *lines, f"Next: {following}")


def _write_table(flags: ReproduceFlags) -> int:
    if not flags.results.is_dir():
        raise FileNotFoundError(f"{flags.results} does not exist; --results must name the folder of the ledger")
    atomic.write(RESULTS_PAGE, results_page.render(flags.results).encode())
    return _answer(flags, {"written": str(RESULTS_PAGE)}, f"Wrote {RESULTS_PAGE}")


def _show_plan(planned: list[plan.PlannedRun], flags: ReproduceFlags, argv: list[str]) -> int:
    """Print the planned runs and an estimate of their hours; ``argv`` are the words that start them."""
    title = "; ".join(f"{name}: {load_study(name).title}" for name in flags.names)
    rows: list[dict[str, Any]] = []
    cells: list[list[str]] = []
    for run in planned:
        cell, seed = run.cell, run.config.seed
        hours = plan.estimate_hours(run.config) if run.is_missing else 0.0
        state = "in the ledger" if run.record else f"with {run.provided_by}" if run.provided_by else "to be run"
        cells.append([cell.setting, cell.method_label, str(seed), state, f"{hours:.2f}" if hours else ""])
        rows.append({"setting": cell.setting, "method": cell.method, "note": cell.note, "seed": seed, "state": state,
                     "hours": hours})  # fmt: skip
    left = sum(row["hours"] for row in rows)
    needed = f"About {left:.1f} hours on one H200, one run after another (an estimate)."
    following = shell.command("vista", "reproduce", *(argv if left else ["--table"]))
    if not flags.json and distributed.is_first_process():
        columns = ("setting", "method", "seed", "state", "hours")
        terminal.print_rows(terminal.console(), columns, cells, ("seed", "hours"), title)
    summary = needed if left else "Every run is in the ledger."
    return _answer(flags, {"runs": rows, "hours": left}, summary, f"Next: {following}")


def _run_missing(planned: list[plan.PlannedRun], flags: ReproduceFlags) -> int:
    """Run what the ledger lacks; each run is added to it when it finishes."""
    records = [str(run.record.path) for run in planned if run.record is not None]
    missing = [
        dataclasses.replace(run.config, root=flags.root, device=flags.device) for run in planned if run.is_missing
    ]
    if not missing:
        lines = ("Every run is in the ledger.", "Next: vista reproduce --table")
        return _answer(flags, {"records": records, "failed": {}}, *lines)
    ledger.check_writable(flags.results)
    jobs = [Job(config, plan.run_path(config, flags.out)) for config in missing]
    try:
        execute(
            jobs,
            flags,
            flags.at_once,
            finished=lambda job: records.append(_add_run(RunFolder(job.out), flags)),
            on=flags.on,
        )
    except Interrupted as error:
        return errors.report_stop(error, of_several=True)
    except Exception as error:
        return errors.report_failed_job(error, jobs)
    failed = [(job.out.name, job.error) for job in jobs if job.error is not None]
    by_reason: dict[str, list[tuple[str, Exception]]] = {}
    for name, reason in failed:
        by_reason.setdefault(errors.message(reason), []).append((name, reason))
    for same in by_reason.values():
        more = f" and {len(same) - 1} more runs" if len(same) > 1 else ""
        errors.show(same[0][1], f"{same[0][0]}{more}: ")
    answer = {"records": records, "failed": {name: errors.message(reason) for name, reason in failed}}
    _answer(flags, answer, *(() if failed else ("Next: vista reproduce --table",)))
    return max((errors.exit_code(reason) for _, reason in failed), default=0)
