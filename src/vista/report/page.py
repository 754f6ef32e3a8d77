"""The report page: one self-contained HTML file that needs no network.

Names of classes, files and methods are untrusted. They are embedded as JSON that cannot close the script element, and
the script sets them only as text. The content security policy blocks all requests and all other scripts.
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
from vista.report import style
from vista.report.payload import payload

SCRIPTS = ("charts.js", "sections.js", "gallery.js", "open.js")


def write_page(runs: Sequence[Run], path: Path, *, watching: bool = False, refresh_seconds: int = 5) -> None:
    """Write the page of some runs atomically.

    Args:
        runs: Runs from :func:`vista.analysis.read_runs`.
        path: The HTML file.
        watching: Whether the page updates itself in place.
        refresh_seconds: Interval between two updates.
    """
    text = page(payload(runs, watching=watching) | {"refresh_seconds": refresh_seconds})
    atomic.write(path, text.encode(errors="backslashreplace"))


def page(data: dict[str, Any]) -> str:
    """The HTML text of a payload."""
    assets = files("vista.report")
    styles = style.css() + assets.joinpath("page.css").read_text("utf-8")
    script = "\n".join(assets.joinpath(name).read_text("utf-8") for name in SCRIPTS)
    # A page that updates itself reads its own file again in a frame, because a page from a file may not fetch anything.
    frames = "; frame-src file: http: https:" if data["watching"] else ""
    policy = f"default-src 'none'; img-src data:; style-src '{_hash(styles)}'; script-src '{_hash(script)}'{frames}"
    icon = base64.b64encode(assets.joinpath("favicon.svg").read_bytes()).decode()
    parts = {
        "policy": policy,
        "title": html.escape(data["headline"]),
        "description": html.escape(data["detail"] or data["subtitle"]),
        "about": html.escape(data["title"]),
        "icon": f"data:image/svg+xml;base64,{icon}",
        "style": styles,
        "data": safe_json(data),
        "script": script,
    }
    pieces = assets.joinpath("page.html").read_text("utf-8").split("@")
    return "".join(parts[piece] if k % 2 else piece for k, piece in enumerate(pieces))


def safe_json(value: Any) -> str:
    """JSON for a script element: no character can close the element or end a line of script.

    Bytes of a path that are not UTF-8 are lone surrogates here and are written as escapes.

    >>> safe_json({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return re.sub("[\ud800-\udfff]", lambda found: f"\\\\u{ord(found[0]):04x}", text)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
