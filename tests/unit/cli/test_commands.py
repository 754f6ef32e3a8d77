"""Commands are found by name, listed without being loaded, and fail in one line."""

from __future__ import annotations

import importlib
import pickle
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import vista as package
from vista import cli
from vista.cli import failures

from .conftest import Vista

HERE = Path(cli.__file__).parent


def test_help_lists_every_command_file_without_importing_one(vista: Vista, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    commands = [path.stem for path in HERE.glob("*.py") if "\nHELP = " in path.read_text()]
    said = vista("--help")
    assert said.code == 0
    assert {"train", "compare", "resume", "evaluate", "predict", "methods", "data", "runs"} <= set(commands)
    lines = said.out.splitlines()
    for command in commands:
        assert [line for line in lines if line.startswith(f"  {command} ")], command
    assert vista().out == said.out


def test_a_new_file_is_a_new_command(vista: Vista, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "greet.py").write_text('HELP: str = "say hello"\n')
    (tmp_path / "shared.py").write_text("import nothing_of_this_name\n")
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "__init__.py"))
    greet = types.ModuleType("vista.cli.greet")
    monkeypatch.setattr(greet, "run", lambda argv: print("hello", *argv) or 3, raising=False)
    monkeypatch.setitem(sys.modules, "vista.cli.greet", greet)
    assert "More:\n  greet  say hello" in vista("--help").out
    assert "shared" not in vista("--help").out
    said = vista("greet", "you", "--all")
    assert (said.code, said.out) == (3, "hello you --all\n")


def test_version(vista: Vista) -> None:
    assert vista("--version").out == f"vista {package.__version__}\n"


@pytest.mark.parametrize(("word", "nearest"), [("trian", "train"), ("compaer", "compare"), ("--methods", "methods")])
def test_an_unknown_command_names_the_nearest(vista: Vista, word: str, nearest: str) -> None:
    said = vista(word)
    assert said.code == 2
    assert repr(word) in said.err
    assert f"`vista {nearest}`" in said.err


def raising(error: BaseException) -> Callable[[], int]:
    def command() -> int:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("x is 3"), 2),
        (FileNotFoundError("no such run"), 2),
        (pickle.UnpicklingError("not an array"), 2),
        (OSError("disk is full"), 1),
        (MemoryError("8 GB needed"), 1),
        (RuntimeError("in use"), 1),
        (FloatingPointError("the loss is not finite"), 1),
        (KeyboardInterrupt(), 130),
        (SystemExit(2), 2),
    ],
)
def test_errors_become_a_line_and_an_exit_code(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failures.reported(raising(error)) == code
    err = capsys.readouterr().err
    assert "Traceback" not in err
    if isinstance(error, Exception):
        assert err == f"vista: error: {error}\n"


def test_a_bug_is_not_dressed_up_as_a_mistake_of_the_user() -> None:
    with pytest.raises(KeyError):
        failures.reported(raising(KeyError("epoch")))


def test_debug_shows_where_it_came_from(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("VISTA_DEBUG", "1")
    assert failures.reported(raising(ValueError("x is 3"))) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.endswith("vista: error: x is 3\n")


def test_our_warnings_are_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        warnings.simplefilter("always")
        warnings.warn_explicit("tau is large", UserWarning, str(HERE / "train.py"), 1)
        warnings.warn_explicit("theirs", UserWarning, "/elsewhere/torch.py", 7)
        return 0

    assert failures.reported(command) == 0
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first == "vista: note: tau is large"
    assert second == "/elsewhere/torch.py:7: UserWarning: theirs"
