"""The package tree in CONTRIBUTING.md is the package's own."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_tree_in_contributing_equals_the_package() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "package_tree.py"))
    assert made["page"]() == (ROOT / "CONTRIBUTING.md").read_text(), "run `python docs/package_tree.py`"


def test_every_package_has_a_summary() -> None:
    summary = runpy.run_path(str(ROOT / "docs" / "package_tree.py"))["summary"]
    packages = (ROOT / "src" / "vista").rglob("__init__.py")
    assert [str(path) for path in packages if not 10 < len(summary(path)) < 110] == []
