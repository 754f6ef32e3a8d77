"""What went wrong, as a line for people and an exit code; tracebacks only with VISTA_DEBUG=1."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from vista.cli import terminal
from vista.runs.folder import CONFIG, RunFolder
from vista.training import distributed
from vista.training.events import Interrupted
from vista.training.scheduler import Job

BAD_INPUT = (
    ValueError,
    FileNotFoundError,
    NotADirectoryError,
    IsADirectoryError,
    PermissionError,
    ImportError,
    pickle.UnpicklingError,  # the CIFAR reader meets something that is no array
)
FAILED = (OSError, MemoryError, RuntimeError, ArithmeticError)
PACKAGE = Path(__file__).parents[1]
_BY = {
    signal.SIGINT: "by Ctrl-C",
    signal.SIGHUP: "by the end of its terminal",
    signal.SIGPIPE: "because nobody reads its output any more",
}


def reported(command: Callable[[], int]) -> int:
    """The exit code of a command; errors that a user can cause become one line on stderr."""
    with warnings.catch_warnings():
        warnings.showwarning = _Notes()
        try:
            return command()
        except SystemExit as error:  # the option parser has said what it has to say
            return error.code if isinstance(error.code, int) else 2 if error.code else 0
        except Interrupted as error:
            return stopped(error)
        except KeyboardInterrupt:
            print("\nvista: stopped at once", file=sys.stderr)
            return 128 + signal.SIGINT
        except BrokenPipeError:  # whoever read our output has enough, as in `vista runs | head`
            _leave_what_nobody_reads()
            return 128 + signal.SIGPIPE
        except (*BAD_INPUT, *FAILED) as error:
            show(error)
            return exit_code(error)


def exit_code(error: BaseException) -> int:
    return 2 if isinstance(error, BAD_INPUT) and not isinstance(error, NotImplementedError) else 1


def sentence(error: BaseException) -> str:
    """What the error says; its kind is named where it is none that we raise on purpose."""
    text = str(error) or type(error).__name__
    return text if isinstance(error, (*BAD_INPUT, *FAILED)) else f"{type(error).__name__}: {text}"


def show(error: BaseException, where: str = "") -> None:
    """Print it, of several processes the first alone, unless it may be the other one's own."""
    if not distributed.is_first_process():
        if exit_code(error) == 2:
            return
        where = f"process {os.environ['RANK']}: {where}"
    if os.environ.get("VISTA_DEBUG") == "1":
        traceback.print_exception(error)
    terminal.say(f"vista: error: {where}{sentence(error)}", sys.stderr)


def ended(error: Exception, jobs: list[Job]) -> int:
    """A run that failed in one of several processes has ended them all: say which run it was."""
    name = next((job.out.name for job in jobs if job.error is error), None)
    if name is None:
        raise error
    show(error, f"{name}: ")
    return exit_code(error)


def stopped(error: Interrupted, of_several: bool = False) -> int:
    """Say how to go on after a signal, to whoever still reads it."""
    if distributed.is_first_process():
        can_resume = not of_several and (error.folder / CONFIG).exists()
        advice = (
            f"Go on with: {RunFolder(error.folder).resume_command()}" if can_resume else "The same command goes on."
        )
        number = signal.Signals(error.signal)
        reason = _BY.get(number, f"by {number.name}")
        with suppress(OSError):
            terminal.say(f"vista: stopped {reason}; what was done is saved. {advice}", sys.stderr)
    _leave_what_nobody_reads()
    return 128 + error.signal


def _leave_what_nobody_reads() -> None:
    """A stream whose other end is gone leads nowhere from now on: Python would fail on it when it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _Notes:
    """Our own warnings as a sentence each, told once however many processes find it; others as Python shows them."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __call__(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        out = file or sys.stderr
        if not Path(filename).is_relative_to(PACKAGE):
            print(warnings.formatwarning(message, category, filename, lineno, line), end="", file=out)
        elif distributed.is_first_process() and str(message) not in self._told:
            self._told.add(str(message))
            terminal.say(f"vista: note: {message}", out)
