"""Text from outside in files that people open in a spreadsheet."""

from __future__ import annotations

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for a formula at the beginning of a cell


def cell(text: str) -> str:
    """A class name as a spreadsheet will show it, never as a formula it would run."""
    return f"'{text}" if text.startswith(FORMULA) else text
