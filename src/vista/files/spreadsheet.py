"""CSV files with third-party text that are safe to open in a spreadsheet: no cell becomes a formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

# Start of the text, or after a character that some spreadsheet takes for a separator; then a character that starts a
# formula (the last four are its full-width forms).
_FORMULA = re.compile("(?:^|(?<=[,;|\t\r\n]))(?=[=+\\-@\t\r\uff1d\uff0b\uff0d\uff20])")
_NUMBER = re.compile(r"[+-][0-9]+(\.[0-9]+)?")


def cell(text: str) -> str:
    """Quote text by an apostrophe wherever a spreadsheet, with any separator, would read a formula; numbers are kept.

    >>> cell("=1+1"), cell("a;=1+1"), cell("-2.5")
    ("'=1+1", "a;'=1+1", '-2.5')
    """
    return text if _NUMBER.fullmatch(text) else _FORMULA.sub("'", text)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """Encode a table as CSV whose text is never read as a formula."""
    text = io.StringIO(newline="")
    safe = [[cell(value) if isinstance(value, str) else value for value in row] for row in (header, *rows)]
    # Python always quotes a line feed, but a carriage return not in every version.
    returns = any("\r" in value for row in safe for value in row if isinstance(value, str))
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL)
    writer.writerows(safe)
    return text.getvalue().encode()
