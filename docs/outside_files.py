"""A hook of the site: what pages link to outside docs/ (RESULTS.md, examples) comes with it, under project/."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
PLACE = "project"


def on_files(files: Any, config: Any) -> Any:
    waiting = [(f"docs/{file.src_uri}", Path(file.abs_src_path)) for file in files if file.src_uri.endswith(".md")]
    while waiting:
        page, path = waiting.pop()
        for _, target, _ in LINK.findall(path.read_text(encoding="utf-8")):
            name = linked(page, target)
            if name and not name.startswith("docs/") and files.get_file_from_path(f"{PLACE}/{name}") is None:
                if not (ROOT / name).is_file():
                    raise FileNotFoundError(f"{page} links to {target}, which is no file")
                files.append(File.generated(config, f"{PLACE}/{name}", abs_src_path=str(ROOT / name)))
                if name.endswith(".md"):
                    waiting.append((name, ROOT / name))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    name = page.file.src_uri
    own = name.removeprefix(f"{PLACE}/") if name.startswith(f"{PLACE}/") else f"docs/{name}"

    def moved(match: re.Match[str]) -> str:
        target = linked(own, match[2])
        if target is None:
            return match[0]
        there = target.removeprefix("docs/") if target.startswith("docs/") else f"{PLACE}/{target}"
        return match[1] + posixpath.relpath(there, posixpath.dirname(name) or ".") + match[3]

    return LINK.sub(moved, markdown)


def linked(page: str, target: str) -> str | None:
    """The file that a link leads to, from the root of the repository; None for links elsewhere."""
    if "://" in target or target.startswith(("mailto:", "/")):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
