"""The page: one HTML file with everything in it, no network needed.

Names of classes, files and methods come from outside: they travel as JSON in which no character can end the script
element, and the page only ever sets them as text. Its policy lets no request out and runs only its own script.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from vista.analysis.runs import Run
from vista.files import atomic
from vista.report.payload import payload

SCRIPTS = ("charts.js", "sections.js", "gallery.js")


def write_page(runs: Sequence[Run], path: Path, *, watching: bool = False, refresh_seconds: int = 5) -> None:
    """Write the page of these runs, whole or not at all; while watching it reloads itself."""
    text = page(payload(runs, watching=watching), refresh_seconds if watching else None)
    atomic.write(path, text.encode(errors="backslashreplace"))


def page(data: dict[str, Any], refresh_seconds: int | None = None) -> str:
    """The HTML text around the data."""
    place = files("vista.report")
    style = place.joinpath("page.css").read_text("utf-8")
    script = "\n".join(place.joinpath(name).read_text("utf-8") for name in SCRIPTS)
    policy = f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    refresh = "" if refresh_seconds is None else f'<meta http-equiv="refresh" content="{refresh_seconds}">\n'
    parts = {
        "policy": policy,
        "refresh": refresh,
        "title": html.escape(data["title"]),
        "style": style,
        "data": safe_json(data),
        "script": script,
    }
    pieces = place.joinpath("page.html").read_text("utf-8").split("@")
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def safe_json(value: Any) -> str:
    """JSON that may stand inside a script element: nothing in it can close the element or end a line of script.

    A byte of a path that is no UTF-8 comes as half a surrogate pair; it is shown as its escape.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return re.sub("[\ud800-\udfff]", lambda found: f"\\\\u{ord(found[0]):04x}", text)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
