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

from vista.cli import terminal
from vista.cli.arguments import parse
from vista.core.store import readable
from vista.core.validation import suggest
from vista.data import source
from vista.data.download import ARCHIVES, get
from vista.files import shell

ABOUT = "List the data sets. `vista data get NAME` downloads and verifies one."


@dataclass(frozen=True)
class Data:
    root: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder that contains the data sets; default: the environment variable VISTA_DATA."""
    json: bool = False
    """Print one JSON object to stdout."""


@dataclass(frozen=True)
class Get:
    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """cifar10, cifar100, cifar100n or tinyimagenet."""
    root: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder to store it in; default: the environment variable VISTA_DATA."""
    mirror: Annotated[str | None, tyro.conf.arg(metavar="URL", help_behavior_hint="")] = None
    """Download from this mirror instead of the official site; the files are verified in either case."""


def run(argv: list[str]) -> int:
    if argv[:1] == ["get"]:
        return _get(parse(Get, argv[1:], "data get", "Download a data set, or resume an interrupted download."))
    return _list(parse(Data, argv, "data", ABOUT))


def _list(flags: Data) -> int:
    root = _root(flags)
    rows = [{"name": "digits", "there": True, "place": "part of scikit-learn"}]
    for name, archive in ARCHIVES.items():
        path = Path(root, archive.result) if root else None
        is_there = path is not None and path.exists()
        where = str(path) if is_there else _how_to_get(name, root)
        rows.append({"name": name, "there": is_there, "place": where})
    if flags.json:
        print(json.dumps({"root": root, "data": rows, "names": list(source.names())}))
        return 0
    cells = [(str(row["name"]), "yes" if row["there"] else "no", str(row["place"])) for row in rows]
    kinds = {
        "folder": "your folder of class folders",
        "npz": "your file of arrays x and y",
        "csv": "your table with a label column",
        "parquet": "your table with a label column",
        "hf": "your dataset of Hugging Face, as save_to_disk writes it",
    }
    paths = (name for name in source.names() if name.endswith(":PATH"))
    cells += [(name, "", kinds.get(name.partition(":")[0], "your own data")) for name in paths]
    out = terminal.console()
    terminal.print_rows(out, ("data set", "found", "path or command"), cells)
    out.print(f"root: {root}" if root else "No root folder: give --root, or set VISTA_DATA.", soft_wrap=True)
    out.print("cifar100n: human labels of cifar100, for --data cifar100 --noise human")
    terminal.say_next("vista", "train", "--data", "digits")
    return 0


def _how_to_get(name: str, root: str | None = None) -> str:
    return shell.command("vista", "data", "get", name, "--root", Path(root or "DIR"))


def _root(flags: Data | Get) -> str | None:
    root = flags.root or os.environ.get("VISTA_DATA")
    return str(Path(root).expanduser()) if root else None


def _get(flags: Get) -> int:
    root = _root(flags)
    if flags.name == "digits":
        terminal.say("digits is part of scikit-learn: nothing to download")
        terminal.say_next("vista", "train", "--data", "digits")
        return 0
    if flags.name not in ARCHIVES:
        raise ValueError(f"data set {flags.name!r} cannot be downloaded; {suggest(flags.name, list(ARCHIVES))}")
    if not root:
        raise ValueError(f"root is missing: give it, as in `{_how_to_get(flags.name)}`, or set VISTA_DATA")
    path = _with_bar(flags, root) if sys.stderr.isatty() else _with_lines(flags, root)
    terminal.say(f"{flags.name} is in {path}")
    human = flags.name == "cifar100n"
    words = ("--data", "cifar100" if human else flags.name, *(("--noise", "human") if human else ()))
    terminal.say_next("vista", "train", *words, "--root", Path(root))
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
