"""The command ``vista``. A command is a file here with a line ``HELP = "..."`` and ``run(argv) -> exit code``.

Files are found by name and imported only when their command is called; for ``vista --help`` their line of help is read
from the source, so nothing heavy is loaded.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

GROUPS = {
    "Train": ("train", "compare", "resume"),
    "Use a trained network": ("evaluate", "predict", "export"),
    "Look at what happened": ("runs", "report", "labels", "reproduce"),
    "What there is": ("methods", "models", "data"),
}
USAGE = "vista COMMAND [options]"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 (a run failed), 2 (bad input), 128 + signal (stopped)."""
    # Threads that wait for each other sleep: on a busy machine, spinning makes small networks many times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _answer(words)
    except KeyboardInterrupt:  # while the command was still being imported
        print("\nvista: stopped at once", file=sys.stderr)
        return 128 + signal.SIGINT


def _answer(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        return _tell(_help())
    if words[0] == "--version":
        from vista import __version__

        return _tell(f"vista {__version__}")
    name, *rest = words
    known = _commands()
    if name not in known:
        is_option = name.startswith("-")
        nearest = difflib.get_close_matches(name.lstrip("-"), known, n=1, cutoff=0.6 if is_option else 0.0)
        advice = f"did you mean `vista {nearest[0]}`?" if nearest else f"a command comes first: {USAGE}"
        print(f"vista: error: {'option' if is_option else 'command'} {name!r} is unknown; {advice}", file=sys.stderr)
        print("`vista --help` lists all commands.", file=sys.stderr)
        return 2
    from vista.cli.failures import reported

    return reported(lambda: int(importlib.import_module(f"vista.cli.{name}").run(rest)))


def _tell(text: str) -> int:
    """Print it; whoever reads it may have enough, and the place it goes to may be full."""
    try:
        print(text, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 128 + signal.SIGPIPE
        print(f"vista: error: {error}", file=sys.stderr)
        return 1
    return 0


def _commands() -> dict[str, str]:
    """Every command and its line of help."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        line = _help_line(path)
        if line is not None:
            found[path.stem] = line
    return found


def _help_line(path: Path) -> str | None:
    """The text that the file assigns to ``HELP``, without running the file; None if it is no command."""
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        first = targets[0] if isinstance(targets, list) else targets
        value = getattr(statement, "value", None)
        if isinstance(first, ast.Name) and first.id == "HELP" and isinstance(value, ast.Constant):
            return str(value.value)
    return None


def _help() -> str:
    known = _commands()
    width = max(map(len, known))
    grouped = {name for names in GROUPS.values() for name in names}
    sections = {**GROUPS, "More": tuple(name for name in known if name not in grouped)}
    lines = [f"usage: {USAGE}", "", "Train classifiers on labels that cannot be fully trusted."]
    for title, names in sections.items():
        shown = [name for name in names if name in known]
        if shown:
            lines += ["", f"{title}:", *(f"  {name:<{width}}  {known[name]}" for name in shown)]
    lines += [
        "",
        "`vista COMMAND --help` explains a command, `vista --version` tells the version.",
        "To begin: vista compare --data digits --noise symmetric:0.4 --methods ce,vista --seeds 3",
    ]
    return "\n".join(lines)
