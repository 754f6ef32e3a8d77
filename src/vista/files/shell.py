"""Shell commands that messages tell users to paste."""

import shlex
from pathlib import Path


def command(*words: str | Path) -> str:
    """Join words to a shell command, quoted where necessary; a path that starts with a dash is written as ``./-x``."""
    return " ".join(shlex.quote(_protect(word)) for word in words)


def _protect(word: str | Path) -> str:
    return f"./{word}" if isinstance(word, Path) and str(word).startswith("-") else str(word)
