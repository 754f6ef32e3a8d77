"""Commands that people are told to paste."""

import shlex
from pathlib import Path


def command(*words: str | Path) -> str:
    """The words as a shell takes them, each quoted where it must be; a path that begins with a dash is no option."""
    return " ".join(shlex.quote(_word(word)) for word in words)


def _word(word: str | Path) -> str:
    return f"./{word}" if isinstance(word, Path) and str(word).startswith("-") else str(word)
