"""Reads the documentation pages: fenced blocks, links, headings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG"))])

# `<!-- blocks: alone -->` or `<!-- blocks: need lightning -->` starts a new namespace for the Python blocks below it.
MARK = re.compile(r"<!-- blocks: (?:alone|need (?P<extra>[a-z-]+)) -->")
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[a-z]*)")
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block; ``line`` is the line number of its first line of text."""

    page: Path
    language: str
    line: int
    text: str
    group: int  # blocks of the same group share a namespace
    extra: str | None  # the extra that the block needs


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    lines, position, group = page.read_text(encoding="utf-8").splitlines(), 0, 0
    extra: str | None = None
    while position < len(lines):
        mark, fence = MARK.fullmatch(lines[position].strip()), FENCE.match(lines[position])
        position += 1
        if mark:
            group, extra = group + 1, mark["extra"]
        if fence:
            first = position
            while lines[position].strip() != "```":
                position += 1
            text = "\n".join(line.removeprefix(fence["indent"]) for line in lines[first:position])
            found.append(Block(page, fence["language"], first + 1, text, group, extra))
            position += 1
    return found


def without_blocks(page: Path) -> str:
    """The text of a page outside fenced blocks and `code`."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def links_of(page: Path) -> list[str]:
    """The targets of all links and images."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return [match["target"] for match in LINK.finditer(text)]


def anchors_of(page: Path) -> set[str]:
    """The anchors that headings get on the site and on code hosts."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading.lower())).strip("-") for heading in headings}
