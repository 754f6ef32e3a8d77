"""Write the package tree of CONTRIBUTING.md from the source: `python docs/package_tree.py`."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, PAGE = ROOT / "src" / "vista", ROOT / "CONTRIBUTING.md"
START, END = "<!-- tree -->\n", "<!-- /tree -->"
WIDTH = 110


def summary(module: Path) -> str:
    """The first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(module.read_text())) or ""
    return text.split("\n\n")[0].replace("\n", " ").partition(". ")[0].rstrip(".")


def tree(folder: Path, indent: str = "  ") -> list[str]:
    """A line per package with its summary, followed by the names of its files."""
    lines = []
    files = sorted(path.name for path in folder.glob("*.py") if path.name != "__init__.py")
    if files:
        lines += textwrap.wrap(" ".join(files), WIDTH - len(indent), initial_indent=indent, subsequent_indent=indent)
    for package in sorted(path.parent for path in folder.glob("*/__init__.py")):
        lines.append(f"{indent}{package.name + '/':<16}{summary(package / '__init__.py')}")
        lines += tree(package, indent + "  ")
    return lines


def page() -> str:
    """CONTRIBUTING.md with the tree of today."""
    before, _, rest = PAGE.read_text().partition(START)
    block = "\n".join(["```", "src/vista/", *tree(PACKAGE), "```", ""])
    return f"{before}{START}{block}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page())
