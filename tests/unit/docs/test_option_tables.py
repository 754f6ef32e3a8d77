"""The command-line page has a section for every command and lists every option as the parser defines it."""

from __future__ import annotations

import importlib
import re

import pytest
from option_tables import PAGE, TABLE, renewed

from vista import cli

TEXT = PAGE.read_text(encoding="utf-8")


def test_every_command_has_a_section() -> None:
    sections = re.findall(r"^## vista (\w+)$", TEXT, flags=re.MULTILINE)
    assert sorted(sections) == sorted(cli.command_names())


def test_tables_equal_the_parser() -> None:
    assert renewed(TEXT) == TEXT, "run `python tests/unit/docs/option_tables.py`"
    assert {match["call"].split()[0] for match in TABLE.finditer(TEXT)} == set(cli.command_names())


@pytest.mark.parametrize("call", [match["call"] for match in TABLE.finditer(TEXT)])
def test_the_parser_knows_every_option_shown(call: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, *words = call.split()
    with pytest.raises(SystemExit):
        importlib.import_module(f"vista.cli.{name}").run([*words, "--help"])
    printed = capsys.readouterr().out
    shown = re.findall(
        r"^\| `.*?(--[a-z-]+)", next(m["table"] for m in TABLE.finditer(TEXT) if m["call"] == call), re.M
    )
    assert [flag for flag in shown if flag not in printed] == []
