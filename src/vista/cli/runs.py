"""``vista runs``, ``vista runs --json``, ``vista runs delete runs/digits-none-vista-seed0``."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from vista.analysis import recorder
from vista.cli import terminal
from vista.cli.arguments import parse
from vista.cli.removal import delete_run, refuse_to_remove
from vista.core.store import readable
from vista.runs.folder import EARLIER, RunFolder, files_named, find_runs
from vista.runs.record import COVERAGE

MEASURED = 10_000  # columns: more than any table has
HELP = "list runs and their sizes, or delete some"
ABOUT = "List the runs below a folder. `vista runs delete RUN...` deletes runs, after a question."


@dataclass(frozen=True)
class Runs:
    folder: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[DIR]")] = "runs"
    """Folder to look in."""
    json: bool = False
    """Print one JSON object to stdout."""


@dataclass(frozen=True)
class Delete:
    runs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN...")]
    """Folders of the runs."""
    yes: bool = False
    """Do not ask."""


def run(argv: list[str]) -> int:
    if argv[:1] == ["delete"]:
        return _delete(parse(Delete, argv[1:], "runs delete", "Delete runs with everything they saved."))
    return _list(parse(Runs, argv, "runs", ABOUT))


# ---------------------------------------------------------------- list


def _list(flags: Runs) -> int:
    folder = Path(flags.folder)
    if not folder.is_dir() and flags.folder != Runs.folder:
        raise FileNotFoundError(f"{folder} is no folder")
    rows = [row for found in find_runs(folder) if (row := describe(found)) is not None]
    if flags.json:
        print(json.dumps({"folder": str(folder), "runs": rows}))
        return 0
    if not rows:
        recorded = any(files_named(recorder.DESCRIPTION, folder))
        advice = "`vista report` draws the recorded trainings there" if recorded else "`vista train` makes one"
        terminal.say(f"no runs in {folder}; {advice}")
        return 0
    out = terminal.console()
    for parent in dict.fromkeys(Path(row["run"]).parent for row in rows):
        _print(out, parent, [row for row in rows if Path(row["run"]).parent == parent])
    total = readable(sum(row["bytes"] for row in rows))
    count = f"{len(rows)} runs" if len(rows) > 1 else "1 run"
    out.print(f"{count}, {total}; best and last: test accuracy in % at these epochs")
    return 0


def _print(out: Console, parent: Path, rows: list[dict[str, Any]]) -> None:
    """A table, or where that would break names that people copy, the name of each run and the rest below it."""
    names = ("run", "method", "data", "noise", "seed", "status", "best", "last", "size")
    table = Table(title=f"in {parent}", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, overflow="fold", justify="right" if name in ("seed", "best", "last", "size") else "left")
    cells = [_cells(row) for row in rows]
    for values in cells:
        table.add_row(*values)
    if Measurement.get(out, out.options.update(max_width=MEASURED), table).maximum <= out.width:
        out.print(table)
        return
    out.print(f"in {parent}", soft_wrap=True)
    for run, *values in cells:
        out.print(run, soft_wrap=True)
        told = [f"{name} {value}" for name, value in zip(names[1:], values, strict=True) if value]
        out.print(f"  {', '.join(told)}", soft_wrap=True)


def _cells(row: dict[str, Any]) -> list[str]:
    accuracies = ["" if row[key] is None else f"{row[key]:.2f}" for key in ("best", "last")]
    what = [str("" if row[key] is None else row[key]) for key in ("method", "data", "noise", "seed", "status")]
    return [Path(row["run"]).name, *what, *accuracies, readable(row["bytes"])]


def describe(folder: RunFolder) -> dict[str, Any] | None:
    """A run as a row; None if the ``config.json`` there belongs to something else."""
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
        begun = (folder.path / COVERAGE).exists() or not (folder.path / EARLIER).is_dir()  # after what it needs first
        return {**row, "status": f"epoch {len(folder.record()) if begun else 0} of {config.epochs}"}
    except Exception as error:  # whatever is wrong with one run, the others are listed
        return {**row, "status": f"damaged: {error}"}


# ---------------------------------------------------------------- delete


def _delete(flags: Delete) -> int:
    if not flags.runs:
        raise ValueError("no run is named; `vista runs` lists them")
    named: dict[Path, str] = {}  # each once
    for path in flags.runs:
        named.setdefault(Path(path).resolve(), path)
    found = [RunFolder.open(path) for path in named.values()]  # all must be runs before any of them goes
    for folder in found:
        refuse_to_remove(folder)
    kept = 0
    for folder in found:
        if not flags.yes and not _agreed(f"delete {folder.path} ({readable(folder.size())})? [y/N] "):
            terminal.say(f"{folder.path} is kept")
            kept += 1
            continue
        delete_run(folder)
        terminal.say(f"{folder.path} is deleted")
    return 1 if kept else 0


def _agreed(question: str) -> bool:
    terminal.say(question, end="")
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print()
    return answer.strip().lower() in ("y", "yes")
