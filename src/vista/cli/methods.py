"""``vista methods``."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from vista.cli import terminal
from vista.cli.arguments import parse
from vista.methods import Method, available

HELP = "list the methods: what they do, cost and keep"


@dataclass(frozen=True)
class Methods:
    json: bool = False
    """Print one JSON object to stdout."""


def run(argv: list[str]) -> int:
    flags = parse(Methods, argv, "methods", "List every method that `--method` and `--methods` take.")
    rows = [describe(name, method) for name, method in available().items() if name == method.name]
    if flags.json:
        print(json.dumps({"methods": rows}))
        return 0
    out = terminal.console()
    table = Table(box=box.SIMPLE_HEAD, expand=True)
    for title, ratio in (("name", None), ("what it does", 5), ("per step", 3), ("keeps", 3), ("source", 3)):
        table.add_column(title, ratio=ratio, no_wrap=ratio is None, overflow="fold")
    for family in dict.fromkeys(row["family"] for row in rows):
        table.add_section()
        table.add_row(Text(family.upper(), style="bold"))
        for row in rows:
            if row["family"] != family:
                continue
            name = row["name"] + (" †" if row["reconstruction"] else "")
            table.add_row(name, row["summary"], row["cost"], row["keeps"], row["source"])
            for variant, options in row["variants"].items():
                table.add_row(f"  {variant}", ", ".join(f"{key}={value}" for key, value in options.items()))
    out.print(table)
    if any(row["reconstruction"] for row in rows):
        out.print("† reconstructed from a description: its source gives no formula or code")
    out.print("`vista train --method NAME --help` shows a method's options.")
    return 0


def describe(name: str, method: type[Method]) -> dict[str, Any]:
    """A method as a row."""
    return {
        "name": name,
        "family": method.family,
        "summary": method.summary,
        "cost": method.cost,
        "keeps": method.keeps,
        "source": method.source,
        "reconstruction": method.reconstruction,
        "variants": method.variants,
        "options": dataclasses.asdict(method.Config()),
    }
