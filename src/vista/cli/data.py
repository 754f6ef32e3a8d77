"""``vista data``, ``vista data get cifar100 --root DIR``."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from vista.cli import terminal
from vista.cli.arguments import parse
from vista.core.store import readable
from vista.data import source
from vista.data.download import ARCHIVES, get
from vista.files import shell

HELP = "list the data sets and where they are, or download one"
ABOUT = "List the data sets. `vista data get NAME` downloads one and checks it."


@dataclass(frozen=True)
class Data:
    root: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder that holds the data sets; the environment variable VISTA_DATA if not given."""
    json: bool = False
    """Print one JSON object to stdout."""


@dataclass(frozen=True)
class Get:
    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """cifar10, cifar100, cifar100n or tinyimagenet."""
    root: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder to put it in; the environment variable VISTA_DATA if not given."""
    mirror: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Download from here instead of the official place; the files are checked all the same."""


def run(argv: list[str]) -> int:
    if argv[:1] == ["get"]:
        return _get(parse(Get, argv[1:], "data get", "Download a data set; one that broke off goes on where it was."))
    return _list(parse(Data, argv, "data", ABOUT))


def _list(flags: Data) -> int:
    root = _root(flags)
    rows = [{"name": "digits", "there": True, "place": "comes with scikit-learn"}]
    for name, archive in ARCHIVES.items():
        place = Path(root, archive.result) if root else None
        is_there = place is not None and place.exists()
        where = str(place) if is_there else _how_to_get(name, root)
        rows.append({"name": name, "there": is_there, "place": where})
    if flags.json:
        print(json.dumps({"root": root, "data": rows, "names": list(source.names())}))
        return 0
    table = Table()
    table.add_column("data set")
    table.add_column("there")
    table.add_column("where, or how to get it", overflow="fold")
    for row in rows:
        table.add_row(str(row["name"]), "yes" if row["there"] else "no", str(row["place"]))
    for name in source.names():
        if name.endswith(":PATH"):
            kinds = {"folder": "your folder of class folders", "npz": "your file of arrays x and y"}
            table.add_row(name, "", kinds.get(name.partition(":")[0], "yours"))
    out = terminal.console()
    out.print(table)
    out.print(f"root: {root}" if root else "no root: give --root, or set VISTA_DATA", soft_wrap=True)
    out.print("cifar100n are human labels for cifar100: --data cifar100 --noise human")
    return 0


def _how_to_get(name: str, root: str | None = None) -> str:
    return shell.command("vista", "data", "get", name, "--root", Path(root or "DIR"))


def _root(flags: Data | Get) -> str | None:
    root = flags.root or os.environ.get("VISTA_DATA")
    return str(Path(root).expanduser()) if root else None


def _get(flags: Get) -> int:
    root = _root(flags)
    if flags.name == "digits":
        terminal.say("digits come with scikit-learn: there is nothing to download")
        return 0
    if not root:
        raise ValueError(f"root is not given: {_how_to_get(flags.name)}, or set VISTA_DATA")
    place = _with_bar(flags, root) if sys.stderr.isatty() else _with_lines(flags, root)
    terminal.say(f"{flags.name} is in {place}")
    return 0


def _with_bar(flags: Get, root: str) -> Path:
    name = TextColumn("{task.description}", markup=False)
    columns = (name, BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=terminal.console(sys.stderr), transient=True) as progress:
        task = progress.add_task(terminal.visible(flags.name), total=None)

        def show(done: int, total: int | None) -> None:
            progress.update(task, completed=done, total=total)

        return get(flags.name, root, show, flags.mirror)


def _with_lines(flags: Get, root: str) -> Path:
    last = time.monotonic()

    def show(done: int, total: int | None) -> None:
        nonlocal last
        if done == total or time.monotonic() - last >= terminal.SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            terminal.say(f"{flags.name}: {readable(done)} of {readable(total) if total else '?'}", sys.stderr)

    return get(flags.name, root, show, flags.mirror)
