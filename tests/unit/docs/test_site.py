"""The site builds without a warning, every page of it is within reach, and its options are those of the project."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import DOCS, ROOT


def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="needs vista-distill[docs]")
    pytest.importorskip("material", reason="needs vista-distill[docs]")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=800)
    assert built.returncode == 0, built.stderr
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix("")
        folder = name.parent if name.name in ("index", "README") else name
        assert (tmp_path / "site" / folder / "index.html").is_file(), f"{page.name} is not on the site"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = [line.rpartition(": ")[2] for line in navigation.splitlines() if line.endswith(".md")]
    missing = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - set(listed)
    assert not missing
    assert len(listed) == len(set(listed))
    assert [name for name in listed if not name.startswith("project/") and not (DOCS / name).is_file()] == []
