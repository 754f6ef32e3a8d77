"""``vista methods``, ``vista methods elr``."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich import box
from rich.table import Table
from rich.text import Text

from vista.cli import terminal
from vista.cli.arguments import explanations, method_flag, parse
from vista.methods import Chosen, Method, available, choose


@dataclass(frozen=True)
class Methods:
    name: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[NAME]", help_behavior_hint="")] = None
    """Explain this method and its options."""
    json: bool = False
    """Print one JSON object to stdout."""


def run(argv: list[str]) -> int:
    flags = parse(Methods, argv, "methods", "List the methods, or explain one with its cost and options.")
    if flags.name is not None:
        return _explain(choose(flags.name), flags.json)
    rows = [describe(name, method) for name, method in available().items() if name == method.name]
    if flags.json:
        print(json.dumps({"methods": rows}))
        return 0
    out = terminal.console()
    for family in dict.fromkeys(row["family"] for row in rows):
        out.print(Text(family, style="bold"))
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column(no_wrap=True, min_width=max(len(name) for name in available()) + 2)
        table.add_column()
        for row in (row for row in rows if row["family"] == family):
            table.add_row("  " + row["name"] + (" †" if row["reconstruction"] else ""), row["summary"])
            for variant, options in row["variants"].items():
                table.add_row(f"  {variant}", f"{row['name']} with {_in_words(options)}")
        out.print(table)
    if any(row["reconstruction"] for row in rows):
        out.print(terminal.RECONSTRUCTED)
    terminal.say_next("vista", "methods", "NAME")
    return 0


def _explain(chosen: Chosen, as_json: bool) -> int:
    """Print one method with its options and their defaults."""
    row = {**describe(chosen.method.name, chosen.method), "options": chosen.options}
    if as_json:
        print(json.dumps({"methods": [row]}))
        return 0
    out = terminal.console()
    of = f" (a variant of {row['name']})" if chosen.name != row["name"] else ""
    out.print(Text(f"{chosen.name}{of}: {row['summary']}", style="bold"))
    if row["reconstruction"]:
        out.print(terminal.RECONSTRUCTED)
    about = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    about.add_column(no_wrap=True)
    about.add_column()
    for title, text in (("per step", row["cost"]), ("keeps", row["keeps"]), ("source", row["source"])):
        about.add_row(title, text)
    for variant, options in row["variants"].items():
        about.add_row("variant", f"{variant}: {_in_words(options)}")
    out.print(about)
    if not chosen.options:
        out.print("No options.")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("option", "default", ""):
        table.add_column(title, no_wrap=bool(title))
    texts = explanations(chosen.method.Config)
    for name, value in chosen.options.items():
        table.add_row(f"--{method_flag(chosen, name)}", str(value), texts.get(name, ""))
    if chosen.options:
        out.print(table)
    terminal.say_next("vista", "train", "--method", chosen.name)
    return 0


def _in_words(options: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in options.items())


def describe(name: str, method: type[Method]) -> dict[str, Any]:
    """A method as a row of the JSON output."""
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
