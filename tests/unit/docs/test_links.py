"""Links between pages and to files are valid, also those of README, CONTRIBUTING and CHANGELOG."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from doc_pages import DOCS, PAGES, ROOT, anchors_of, links_of, name_of

MAX_IMAGE_BYTES = 150_000


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_are_valid(page: Path) -> None:
    for target in links_of(page):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{name_of(page)} links to {target}, which does not exist"
        assert linked.is_relative_to(ROOT)
        if anchor and linked.suffix == ".md":
            assert anchor in anchors_of(linked), f"{name_of(page)} links to {target}, but the heading does not exist"


def test_every_image_is_small_and_used() -> None:
    shown = {(page.parent / target).resolve() for page in PAGES for target in links_of(page)}
    for image in (DOCS / "images").iterdir():
        assert image in shown, f"{image.name} is on no page"
        assert image.stat().st_size <= MAX_IMAGE_BYTES


def test_every_example_is_linked() -> None:
    linked = {(page.parent / target).resolve() for page in DOCS.rglob("*.md") for target in links_of(page)}
    assert [path.name for path in (ROOT / "examples").glob("*.py") if path not in linked] == []


def test_every_record_named_is_in_the_ledger() -> None:
    """A record is named by the last part of its file, as in `9399fa7bcb7df4c8`."""
    from re import findall

    ledger = {path.stem.rpartition("-")[2] for path in (ROOT / "results" / "runs").glob("*.json")}
    named = {name for page in PAGES for name in findall(r"\b[0-9a-f]{16}\b", page.read_text(encoding="utf-8"))}
    assert named <= ledger
    assert all(json.loads(path.read_text()) for path in (ROOT / "results").glob("*.json"))
