"""Errors as one line ``vista: error: ...`` and an exit code; tracebacks only with VISTA_DEBUG=1."""

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
    pickle.UnpicklingError,  # from the CIFAR reader, for a file that holds no arrays
)
FAILED = (OSError, MemoryError, RuntimeError, ArithmeticError)
PACKAGE = Path(__file__).parents[1]
_REASONS = {
    signal.SIGINT: "by Ctrl-C",
    signal.SIGHUP: "because the terminal was closed",
    signal.SIGPIPE: "because its output was closed",
}


def report_errors(command: Callable[[], int]) -> int:
    """Run a command and return its exit code; errors that a user can cause become one line on stderr."""
    with warnings.catch_warnings():
        warnings.showwarning = _Notes()
        try:
            return command()
        except SystemExit as error:  # --help
            return error.code if isinstance(error.code, int) else 2 if error.code else 0
        except Interrupted as error:
            return report_stop(error)
        except KeyboardInterrupt:
            print("\nvista: stopped immediately", file=sys.stderr)
            return 128 + signal.SIGINT
        except BrokenPipeError:  # as in `vista runs | head`
            _detach_closed_streams()
            return 128 + signal.SIGPIPE
        except (*BAD_INPUT, *FAILED) as error:
            show(error)
            return exit_code(error)


def exit_code(error: BaseException) -> int:
    """2 for invalid input, 1 for a failure."""
    return 2 if isinstance(error, BAD_INPUT) and not isinstance(error, NotImplementedError) else 1


def message(error: BaseException) -> str:
    """The error's text; its type is named unless it is one that we raise on purpose."""
    text = str(error) or type(error).__name__
    return text if isinstance(error, (*BAD_INPUT, *FAILED)) else f"{type(error).__name__}: {text}"


def show(error: BaseException, prefix: str = "") -> None:
    """Print an error. Of several processes only the first prints invalid input, which they all have in common."""
    if not distributed.is_first_process():
        if exit_code(error) == 2:
            return
        prefix = f"process {os.environ['RANK']}: {prefix}"
    if os.environ.get("VISTA_DEBUG") == "1":
        traceback.print_exception(error)
    terminal.say(f"vista: error: {prefix}{message(error)}", sys.stderr)


def report_failed_job(error: Exception, jobs: list[Job]) -> int:
    """Print which run failed, and return the exit code; an error that belongs to no run is raised."""
    name = next((job.out.name for job in jobs if job.error is error), None)
    if name is None:
        raise error
    show(error, f"{name}: ")
    return exit_code(error)


def report_stop(error: Interrupted, of_several: bool = False) -> int:
    """Print how to resume after a signal, and return the exit code."""
    if distributed.is_first_process():
        can_resume = not of_several and (error.folder / CONFIG).exists()
        command = RunFolder(error.folder).resume_command() if can_resume else "run the same command again"
        state = "progress is saved" if can_resume or of_several else "the training had not started"
        number = signal.Signals(error.signal)
        reason = _REASONS.get(number, f"by {number.name}")
        with suppress(OSError):
            terminal.say(f"vista: stopped {reason}; {state}. To resume: {command}", sys.stderr)
    _detach_closed_streams()
    return 128 + error.signal


def _detach_closed_streams() -> None:
    """Redirect a stream without a reader to /dev/null: otherwise Python fails when it flushes it at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _Notes:
    """Show our own warnings as ``vista: note: ...``, each text once; other warnings as Python does."""

    def __init__(self) -> None:
        self._shown: set[str] = set()

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
        elif distributed.is_first_process() and str(message) not in self._shown:
            self._shown.add(str(message))
            terminal.say(f"vista: note: {message}", out)
