"""The command ``vista``. Each command is a module of this package with ``run(argv) -> exit code``.

A module is imported only when its command is called, so ``vista --help`` loads nothing heavy.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence

COMMANDS = {
    "Train": {
        "train": "train one network, or resume an interrupted run",
        "compare": "train several methods over several seeds, and print a table",
        "resume": "resume an interrupted run",
    },
    "Use a trained network": {
        "evaluate": "recompute the metrics of a run's saved weights",
        "predict": "predict the classes of samples, to a CSV file",
        "export": "write a trained network as a plain model file",
    },
    "Inspect": {
        "runs": "list runs and their sizes, or delete some",
        "report": "write a report page of runs, and their figures",
        "labels": "estimate how many labels are wrong, and rank the suspects",
        "review": "go through the labels that look wrong on a local page, and decide",
        "reproduce": "run the paper's tables and figures, and compare the numbers",
    },
    "What is available": {
        "methods": "list the methods, or explain one and its options",
        "models": "list the networks with their sizes",
        "data": "list the data sets and where they are stored, or download one",
    },
}
USAGE = "vista COMMAND [options]"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 (a run failed), 2 (invalid input), 128 + signal (stopped)."""
    # Waiting threads sleep instead of spinning, which makes small networks many times slower on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    _open_closed_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(words)
    except KeyboardInterrupt:  # while the command's module was being imported
        print("\nvista: stopped immediately", file=sys.stderr)
        return 128 + signal.SIGINT


def command_names() -> list[str]:
    """The names of all commands."""
    return [name for group in COMMANDS.values() for name in group]


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        return _print(_help())
    if words[0] == "--version":
        from vista import __version__

        return _print(f"vista {__version__}")
    name, *rest = words
    if name not in command_names():
        from vista.core.validation import suggest

        kind = "option" if name.startswith("-") else "command"
        advice = suggest(name.lstrip("-"), command_names())
        if kind == "option" and not advice.startswith("did"):
            advice = f"a command comes first: {USAGE}"
        print(f"vista: error: {kind} {name!r} is unknown; {advice} (see `vista --help`)", file=sys.stderr)
        return 2
    from vista.cli.errors import report_errors

    return report_errors(lambda: int(importlib.import_module(f"vista.cli.{name}").run(rest)))


def _open_closed_streams() -> None:
    """Open /dev/null for a stream that the caller closed (``>&-``): the next file would get its number otherwise."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, open(number, mode))  # noqa: SIM115 (open until the process ends)


def _print(text: str) -> int:
    """Print the text; the reader may have closed the pipe, and the disk may be full."""
    try:
        print(text, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 128 + signal.SIGPIPE
        print(f"vista: error: {error}", file=sys.stderr)
        return 1
    return 0


def _help() -> str:
    width = max(map(len, command_names()))
    lines = [f"usage: {USAGE}", "", "Train classifiers on labels that cannot be fully trusted."]
    for title, group in COMMANDS.items():
        lines += ["", f"{title}:", *(f"  {name:<{width}}  {text}" for name, text in group.items())]
    lines += [
        "",
        "`vista COMMAND --help` explains a command, `vista --version` prints the version.",
        "Next: vista compare --noise symmetric:0.4 --methods ce,vista --seeds 3",
    ]
    return "\n".join(lines)
