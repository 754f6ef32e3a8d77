"""Every command shown on a page is accepted by the command line; nothing is run."""

from __future__ import annotations

import importlib
import re
import shlex
from typing import Any

import pytest
from doc_pages import PAGES, blocks_of, name_of

from vista.cli import arguments, main, train
from vista.methods import choose

SHELLS = ("", "sh", "bash", "console", "shell")
CODE = re.compile(r"`(vista [a-z]+ [^`\n]*--[^`\n]+)`")  # in the text: those with options


def shown() -> list[Any]:
    """Commands in shell blocks, with continued lines joined, and commands with options in the text."""
    found = {}
    for page in PAGES:
        for block in blocks_of(page):
            if block.language in SHELLS:
                for line in block.text.replace("\\\n", " ").splitlines():
                    command = line.strip().removeprefix("$ ")
                    if re.match(r"(torchrun .* -m )?vista ", command):
                        found[command[command.index("vista ") :]] = name_of(page)
        for command in CODE.findall(page.read_text(encoding="utf-8")):
            found.setdefault(command.replace("--method NAME", "--method ce").replace(" a,b,c", " ce"), name_of(page))
    return [pytest.param(command, id=f"{page}: {command}") for command, page in found.items()]


class Parsed(BaseException):
    """Raised after the options were parsed, so that the command does not run."""


@pytest.fixture
def only_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = arguments.parse

    def parse(*args: Any, **kwargs: Any) -> Any:
        raise Parsed(real(*args, **kwargs))

    for name in commands():
        monkeypatch.setattr(importlib.import_module(f"vista.cli.{name}"), "parse", parse)
    monkeypatch.setattr(train, "parse", real)  # its options are validated further


def commands() -> list[str]:
    from vista import cli

    return [name for name in cli.command_names() if hasattr(importlib.import_module(f"vista.cli.{name}"), "parse")]


def read(command: str) -> None:
    """Parse a command as the command line does, and stop before it runs; invalid commands raise."""
    name, *words = shlex.split(command, comments=True)[1:]
    if name.startswith("-"):
        assert main([name, *words]) == 0
        return
    if name not in commands():
        raise ValueError(f"`{name}` is not a command")
    options = parsed(name, words)
    if hasattr(options, "compare"):
        arguments.train_config(options)
        for method in options.compare.methods.split(","):
            choose(method)


def parsed(name: str, words: list[str]) -> Any:
    """The options of a command; None if it only prints help."""
    try:
        if name == "train":
            return train.read(words)
        importlib.import_module(f"vista.cli.{name}").run(words)
    except Parsed as read:
        return read.args[0]
    except SystemExit as end:
        if end.code != 0:
            raise ValueError(f"`vista {name} {' '.join(words)}` is rejected") from end
    return None


@pytest.mark.usefixtures("only_parsed")
@pytest.mark.parametrize("command", shown())
def test_command_is_accepted(command: str) -> None:
    read(command)


@pytest.mark.usefixtures("only_parsed")
@pytest.mark.parametrize(
    "command",
    ["vista trian", "vista report RUN --figure x", "vista train --method elr --tau 0.1", "vista compare --methods cee"],
)
def test_an_invalid_command_is_rejected(command: str) -> None:
    with pytest.raises(ValueError):
        read(command)
