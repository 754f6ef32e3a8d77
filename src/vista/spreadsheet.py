"""Text from outside in files that people open in a spreadsheet."""

from __future__ import annotations

import re

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for a formula at the beginning of a cell


def cell(text: str) -> str:
    """A class name as a spreadsheet will show it, never as a formula it would run; a number is none."""
    return f"'{text}" if text.startswith(FORMULA) and not re.fullmatch(r"[+-][0-9]+(\.[0-9]+)?", text) else text
