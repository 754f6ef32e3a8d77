"""MkDocs hook: copies files that pages link to outside docs/ (RESULTS.md, examples) to the site, under project/."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
AROUND_ERROR = re.compile(r"(?<=\d) (?=±)|(?<=±) (?=\d)")  # in 1.0 ± 0.1, which stays on one line
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
PREFIX = "project"
IN_NAVIGATION = ("CHANGELOG.md", "CONTRIBUTING.md", "RESULTS.md")


def on_files(files: Any, config: Any) -> Any:
    pages = [(f"docs/{file.src_uri}", Path(file.abs_src_path)) for file in files if file.src_uri.endswith(".md")]
    for name in IN_NAVIGATION:
        _add(files, config, name, pages)
    while pages:
        page, path = pages.pop()
        for _, target, _ in LINK.findall(path.read_text(encoding="utf-8")):
            name = resolve_link(page, target)
            if name is None or name.startswith("docs/"):
                continue
            if not (ROOT / name).is_file():
                raise FileNotFoundError(f"{page} links to {target}, but {name} is not a file")
            _add(files, config, name, pages)
    return files


def _add(files: Any, config: Any, name: str, pages: list[tuple[str, Path]]) -> None:
    """Add a file of the repository to the site; a Markdown file's own links are followed, too."""
    if files.get_file_from_path(f"{PREFIX}/{name}") is None:
        files.append(File.generated(config, f"{PREFIX}/{name}", abs_src_path=str(ROOT / name)))
        if name.endswith(".md"):
            pages.append((name, ROOT / name))


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite links between files of the repository as links between files of the site."""
    name = page.file.src_uri
    source = name.removeprefix(f"{PREFIX}/") if name.startswith(f"{PREFIX}/") else f"docs/{name}"

    def rewrite(match: re.Match[str]) -> str:
        target = resolve_link(source, match[2])
        if target is None:
            return match[0]
        on_site = target.removeprefix("docs/") if target.startswith("docs/") else f"{PREFIX}/{target}"
        return match[1] + posixpath.relpath(on_site, posixpath.dirname(name) or ".") + match[3]

    return AROUND_ERROR.sub("\N{NO-BREAK SPACE}", LINK.sub(rewrite, markdown))


def resolve_link(page: str, target: str) -> str | None:
    """Path of a link's target relative to the repository, None for links to other sites."""
    if "://" in target or target.startswith(("mailto:", "/")):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
