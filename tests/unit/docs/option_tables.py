"""Generates the tables of options in docs/command-line.md from the option classes of the parser.

python tests/unit/docs/option_tables.py     # rewrites the tables
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from vista.cli.methods import explanations
from vista.runs.config import PRESETS

PAGE = Path(__file__).parents[3] / "docs" / "command-line.md"
TABLE = re.compile(r"(?P<open><!-- options: (?P<call>[a-z ]+) -->\n)(?P<table>.*?)(?P<close><!-- end -->)", re.DOTALL)
BY_PRESET = {name for values in PRESETS.values() for name in values}
# Fields whose options are shown in another section of the page.
ELSEWHERE = {"compare": ("training",), "train": ("vista",)}


class Asked(BaseException):
    """Carries the arguments of a call of the parser."""


def asked(call: str) -> tuple[type, Any]:
    """The option class of a command (``runs``, ``runs delete``) and its default."""

    def parse(kind: type, argv: Any, command: str, about: str, default: Any = None) -> Any:
        raise Asked(kind, default)

    name, *words = call.split()
    module = importlib.import_module(f"vista.cli.{name}")
    with mock.patch.object(module, "parse", parse):
        try:
            module.run(words)
        except Asked as found:
            return found.args
    raise AssertionError(f"vista {call} read no options")


def table(call: str) -> str:
    kind, default = asked(call)
    rows = rows_of(kind, default, ELSEWHERE.get(call, ()))
    return "\n".join(["| option | default | |", "|---|---|---|", *rows]) + "\n"


def rows_of(kind: type, default: Any, left_out: tuple[str, ...] = ()) -> Iterator[str]:
    hints, help_texts = typing.get_type_hints(kind, include_extras=True), explanations(kind)
    for field in dataclasses.fields(kind):
        hint, marks = hints[field.name], getattr(hints[field.name], "__metadata__", ())
        plain = hint.__origin__ if marks else hint
        value = getattr(default, field.name, default_of(field))
        if dataclasses.is_dataclass(plain) and isinstance(plain, type):
            if field.name not in left_out:
                yield from rows_of(plain, value)
        elif not any("Suppress" in repr(mark) for mark in marks):
            yield row(field.name, plain, marks, value, help_texts[field.name])


def row(name: str, plain: Any, marks: tuple[Any, ...], value: Any, help_text: str) -> str:
    flag = "--" + name.replace("_", "-")
    metavar = next((mark.metavar for mark in marks if getattr(mark, "metavar", None)), name.upper().replace("_", "-"))
    short = [alias for mark in marks for alias in getattr(mark, "aliases", None) or ()]
    if any("Positional" in repr(mark) for mark in marks):
        shown = metavar
    elif plain is bool:
        shown = f"{flag}`, `{flag.replace('--', '--no-', 1)}" if value else flag
    else:
        several = "..." if typing.get_origin(plain) is tuple else ""
        shown = f"{', '.join([*short, flag])} {metavar}{several}"
    return f"| `{shown}` | {usual(name, plain, value)} | {help_text}{choices(plain)} |"


def usual(name: str, plain: Any, value: Any) -> str:
    if name in BY_PRESET:
        return "the preset's"
    if value is dataclasses.MISSING:
        return "needed"
    if plain is bool:
        return "on" if value else ""
    if value is None or value in ("", ()):
        return ""
    return f"`{' '.join(map(str, value)) if isinstance(value, tuple) else value}`"


def choices(plain: Any) -> str:
    several = typing.get_origin(plain) is tuple
    one = typing.get_args(plain)[0] if several else plain
    if typing.get_origin(one) is not typing.Literal:
        return ""
    return f" {'Any' if several else 'One'} of {', '.join(f'`{choice}`' for choice in typing.get_args(one))}."


def default_of(field: dataclasses.Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def renewed(page: str) -> str:
    """The page with all tables up to date."""
    return TABLE.sub(lambda match: match["open"] + "\n" + table(match["call"]) + "\n" + match["close"], page)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
