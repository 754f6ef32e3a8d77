"""``vista runs``, ``vista runs --json``, ``vista runs delete runs/digits-none-vista-seed0``."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from vista.analysis import recorder
from vista.cli import terminal
from vista.cli.arguments import parse
from vista.core.store import readable
from vista.runs.folder import CONFIG, EARLIER, RunFolder, files_named, find_replaced_runs, find_runs
from vista.runs.record import COVERAGE
from vista.training.replace import check_removable, delete_run, describe_set_aside

NAMES = ("run", "method", "data", "noise", "status", "seed", "best", "last", "size")
ABOUT = "List the runs below a folder. `vista runs delete RUN...` deletes runs after confirmation."


@dataclass(frozen=True)
class Runs:
    folder: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[DIR]")] = "runs"
    """Folder to search."""
    json: bool = False
    """Print one JSON object to stdout."""


@dataclass(frozen=True)
class Delete:
    runs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN...", help_behavior_hint="")]
    """Run folders."""
    yes: bool = False
    """Do not ask for confirmation."""


def run(argv: list[str]) -> int:
    if argv[:1] == ["delete"]:
        return _delete(parse(Delete, argv[1:], "runs delete", "Delete runs and everything they saved."))
    return _list(parse(Runs, argv, "runs", ABOUT))


# ---------------------------------------------------------------- list


def _list(flags: Runs) -> int:
    folder = Path(flags.folder)
    if not folder.is_dir() and flags.folder != Runs.folder:
        raise FileNotFoundError(f"{folder} is not a folder")
    rows = [row for found in find_runs(folder) if (row := describe(found)) is not None]
    for aside in find_replaced_runs(folder):
        if (aside / CONFIG).is_file():
            terminal.say(f"vista: note: {describe_set_aside(aside)}", sys.stderr)
    if flags.json:
        print(json.dumps({"folder": str(folder), "runs": rows}))
        return 0
    if not rows:
        recorded = any(files_named(recorder.DESCRIPTION, folder))
        terminal.say(f"No runs in {folder}{', but recorded trainings' if recorded else ''}.")
        terminal.say_next("vista", *(("report", folder, "--open") if recorded else ("train",)))
        return 0
    out = terminal.console()
    for parent in dict.fromkeys(Path(row["run"]).parent for row in rows):
        cells = [_cells(row) for row in rows if Path(row["run"]).parent == parent]
        terminal.print_rows(out, NAMES, cells, NAMES[-4:], f"in {parent}")
    total = readable(sum(row["bytes"] for row in rows))
    count = f"{len(rows)} runs" if len(rows) > 1 else "1 run"
    out.print(f"{count}, {total}. best, last: test accuracy in % at the best-validation and the last epoch")
    _say_next(rows)
    return 0


def _cells(row: dict[str, Any]) -> list[str]:
    accuracies = ["" if row[key] is None else f"{row[key]:.2f}" for key in ("best", "last")]
    values = [str("" if row[key] is None else row[key]) for key in ("method", "data", "noise", "status", "seed")]
    return [Path(row["run"]).name, *values, *accuracies, readable(row["bytes"])]


def _say_next(rows: list[dict[str, Any]]) -> None:
    """Suggest to resume an unfinished run, or else to look at a finished one."""
    unfinished = [row["run"] for row in rows if row["status"].startswith("epoch ")]
    finished = [row["run"] for row in rows if row["status"] == "finished"]
    if unfinished:
        terminal.say(f"Next: {RunFolder(Path(unfinished[0])).resume_command()}")
    elif finished:
        terminal.say_next("vista", "report", Path(finished[0]), "--open")
    else:
        terminal.say_next("vista", "runs", "delete", Path(rows[0]["run"]))


def describe(folder: RunFolder) -> dict[str, Any] | None:
    """A run as a row; None if the folder's ``config.json`` is not that of a run."""
    row: dict[str, Any] = {"run": str(folder.path), "bytes": folder.size()}
    row |= dict.fromkeys(("method", "data", "noise", "seed", "best", "last"))
    try:
        config = folder.config()
    except (ValueError, OSError) as error:
        return {**row, "status": f"damaged: {error}"} if (folder.path / COVERAGE).exists() else None
    row |= {name: getattr(config, name) for name in ("method", "data", "noise", "seed")}
    try:
        if folder.is_finished():
            metrics = folder.metrics()
            best, last = (100 * metrics[which]["test"]["top1"] for which in ("best", "last"))
            return {**row, "status": "finished", "best": best, "last": last}
        started = (folder.path / COVERAGE).exists() or not (folder.path / EARLIER).is_dir()
        return {**row, "status": f"epoch {len(folder.record()) if started else 0} of {config.epochs}"}
    except Exception as error:  # one damaged run must not hide the others
        return {**row, "status": f"damaged: {error}"}


# ---------------------------------------------------------------- delete


def _delete(flags: Delete) -> int:
    if not flags.runs:
        raise ValueError("RUN is missing: name the runs to delete; `vista runs` lists them")
    named: dict[Path, str] = {}  # without repetitions
    for path in flags.runs:
        named.setdefault(Path(path).resolve(), path)
    found = [RunFolder.open(path) for path in named.values()]  # check all of them before deleting any
    for folder in found:
        check_removable(folder)
    kept = 0
    for folder in found:
        if not flags.yes and not _confirmed(f"Delete {folder.path} ({readable(folder.size())})? [y/N] "):
            terminal.say(f"Kept {folder.path}")
            kept += 1
            continue
        delete_run(folder)
        terminal.say(f"Deleted {folder.path}")
    terminal.say_next("vista", "runs")
    return 1 if kept else 0


def _confirmed(question: str) -> bool:
    terminal.say(question, end="")
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print()
    return answer.strip().lower() in ("y", "yes")
