"""``vista methods``, ``vista methods elr``."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import textwrap
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich import box
from rich.table import Table
from rich.text import Text

from vista.cli import terminal
from vista.cli.arguments import method_flag, parse
from vista.methods import Chosen, Method, available, choose

HELP = "list the methods: what they do, cost and keep; or explain one"


@dataclass(frozen=True)
class Methods:
    name: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[NAME]")] = None
    """Explain this method and its options."""
    json: bool = False
    """Print one JSON object to stdout."""


def run(argv: list[str]) -> int:
    flags = parse(Methods, argv, "methods", "List every method that `--method` and `--methods` take.")
    if flags.name is not None:
        return _explain(choose(flags.name), flags.json)
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
    out.print("`vista methods NAME` shows a method's options.")
    return 0


def _explain(chosen: Chosen, as_json: bool) -> int:
    """One method, its options with the values that its name stands for."""
    row = {**describe(chosen.method.name, chosen.method), "options": chosen.options}
    if as_json:
        print(json.dumps({"methods": [row]}))
        return 0
    out = terminal.console()
    of = f" (a variant of {row['name']})" if chosen.name != row["name"] else ""
    out.print(Text(f"{chosen.name}{of}: {row['summary']}", style="bold"), soft_wrap=True)
    if row["reconstruction"]:
        out.print("† reconstructed from a description: its source gives no formula or code")
    about = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    about.add_column(no_wrap=True)
    about.add_column(overflow="fold")
    for title, text in (("per step", row["cost"]), ("keeps", row["keeps"]), ("source", row["source"])):
        about.add_row(title, text)
    for variant, options in row["variants"].items():
        about.add_row("variant", f"{variant}: " + ", ".join(f"{key}={value}" for key, value in options.items()))
    out.print(about)
    if not chosen.options:
        out.print("It has no options.")
        return 0
    table = Table(box=box.SIMPLE_HEAD)
    for title in ("option", "default", ""):
        table.add_column(title, overflow="fold", no_wrap=title == "option")
    told = explanations(chosen.method.Config)
    for name, value in chosen.options.items():
        table.add_row(f"--{method_flag(chosen, name)}", str(value), told.get(name, ""))
    out.print(table)
    return 0


def explanations(kind: type) -> dict[str, str]:
    """The line below each field of a dataclass and of those it extends."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        except (OSError, TypeError):  # a class without a file: its options stand without a line
            continue
        statements = body.body if isinstance(body, ast.ClassDef) else []
        for line, below in itertools.pairwise(statements):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                match below:
                    case ast.Expr(value=ast.Constant(value=str() as text)):
                        found[line.target.id] = " ".join(text.split())
    return found


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
