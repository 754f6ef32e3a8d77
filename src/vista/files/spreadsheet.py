"""Tables with text from outside, in files that people open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for a formula at the beginning of a cell


def cell(text: str) -> str:
    """A name as a spreadsheet will show it, never as a formula it would run; a number is none."""
    return f"'{text}" if text.startswith(FORMULA) and not re.fullmatch(r"[+-][0-9]+(\.[0-9]+)?", text) else text


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """CSV, its text quoted as CSV needs it, and never a formula."""
    text = io.StringIO(newline="")
    safe = [[cell(value) if isinstance(value, str) else value for value in row] for row in rows]
    # Python quotes a line feed by itself, but a carriage return not in every version.
    returns = any("\r" in value for row in safe for value in row if isinstance(value, str))
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL)
    writer.writerow(header)
    writer.writerows(safe)
    return text.getvalue().encode()
