"""Commands in messages can be pasted into a shell."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

import vista
from vista import cli
from vista.files.shell import command

HOUSE = Path(vista.__file__).parent


@pytest.mark.parametrize(
    ("path", "shown"),
    [("runs/a-seed0", "runs/a-seed0"), ("a b", "'a b'"), ("-d x", "'./-d x'"), ("-d/x", "./-d/x"), ("$PWD", "'$PWD'")],
)
def test_a_path_is_one_word_and_no_option(path: str, shown: str) -> None:
    said = command("vista", "resume", Path(path), "--network", "-m:f g")
    assert said == f"vista resume {shown} --network '-m:f g'"
    _, _, read, *_ = shlex.split(said)
    assert Path(read) == Path(path)


def test_no_message_puts_a_value_into_a_command_by_itself() -> None:
    found, begun = [], re.compile(rf"\bvista ({'|'.join(cli.command_names())}) ([^`]* )?$")
    for path in sorted(HOUSE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            parts = node.values[:-1] if isinstance(node, ast.JoinedStr) else []
            texts = [str(part.value) for part in parts if isinstance(part, ast.Constant)]
            found += [f"{path.name}: {text}" for text in texts if begun.search(text)]
    assert found == []
