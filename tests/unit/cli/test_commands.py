"""Commands are found by name, listed without being loaded, and fail in one line."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import vista as package
from vista import cli
from vista.cli import errors

from .conftest import Vista

HERE = Path(cli.__file__).parent


def test_help_lists_every_command_without_importing_one(vista: Vista, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    said = vista("--help")
    assert said.code == 0
    for command in cli.command_names():
        assert [line for line in said.out.splitlines() if line.startswith(f"  {command} ")], command
    assert max(map(len, said.out.splitlines())) <= 80 + len("reproduce")
    assert vista().out == said.out


def test_every_command_is_a_module_and_every_module_with_run_is_a_command() -> None:
    modules = [path.stem for path in HERE.glob("*.py") if "\ndef run(argv" in path.read_text()]
    assert sorted(modules) == sorted(cli.command_names())


def test_version(vista: Vista) -> None:
    assert vista("--version").out == f"vista {package.__version__}\n"


@pytest.mark.parametrize(("word", "nearest"), [("trian", "train"), ("compaer", "compare"), ("--methods", "methods")])
def test_an_unknown_command_names_the_nearest(vista: Vista, word: str, nearest: str) -> None:
    said = vista(word)
    assert said.code == 2
    assert repr(word) in said.err
    assert f"did you mean {nearest!r}?" in said.err


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
    assert errors.report_errors(raising(error)) == code
    err = capsys.readouterr().err
    assert "Traceback" not in err
    if isinstance(error, Exception):
        assert err == f"vista: error: {error}\n"


def test_a_bug_is_not_dressed_up_as_a_mistake_of_the_user() -> None:
    with pytest.raises(KeyError):
        errors.report_errors(raising(KeyError("epoch")))


def test_debug_shows_where_it_came_from(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("VISTA_DEBUG", "1")
    assert errors.report_errors(raising(ValueError("x is 3"))) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.endswith("vista: error: x is 3\n")


def test_our_warnings_are_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        warnings.simplefilter("always")
        for _ in range(2):  # two workers find the same
            warnings.warn_explicit("tau is large", UserWarning, str(HERE / "train.py"), 1)
        warnings.warn_explicit("theirs", UserWarning, "/elsewhere/torch.py", 7)
        return 0

    assert errors.report_errors(command) == 0
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first == "vista: note: tau is large"
    assert second == "/elsewhere/torch.py:7: UserWarning: theirs"


@pytest.mark.parametrize("words", ["--help", "--version"])
@pytest.mark.parametrize(("place", "code"), [("| true", 141), ("> /dev/full", 1)], ids=["closed", "full"])
def test_help_that_nobody_can_read_is_no_failure_of_ours(words: str, place: str, code: int) -> None:
    command = f'set -o pipefail; sleep_and() {{ sleep 1; "$@"; }}; sleep_and {sys.executable} -m vista {words} {place}'
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert ended.returncode == code
    assert "Traceback" not in ended.stderr
    assert ("No space left" in ended.stderr) == ("full" in place)


def test_an_option_before_the_command_is_no_command(vista: Vista) -> None:
    said = vista("--foo")
    assert said.code == 2
    assert said.err.startswith(
        "vista: error: option '--foo' is unknown; a command comes first: vista COMMAND [options]"
    )


def test_ctrl_c_while_a_command_is_imported_is_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "command_names", interrupted)
    assert cli.main(["train"]) == 130
    assert capsys.readouterr().err == "\nvista: stopped immediately\n"


def test_an_unknown_data_set_is_reported_before_a_missing_root(vista: Vista, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISTA_DATA", raising=False)
    said = vista("data", "get", "cifar10o")
    assert said.code == 2
    assert "data set 'cifar10o' cannot be downloaded; did you mean" in said.err
