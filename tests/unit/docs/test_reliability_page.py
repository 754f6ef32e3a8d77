"""Figures on the page about reliability are those of the record that the fault tests write."""

from __future__ import annotations

import json
import runpy

import pytest
from doc_pages import DOCS, ROOT


def test_figures_are_those_of_the_record() -> None:
    made = runpy.run_path(str(DOCS / "reliability_table.py"))
    assert made["page"]() == (DOCS / "reliability.md").read_text(), "run `python docs/reliability_table.py`"


def test_every_entry_of_the_record_has_a_row() -> None:
    rows = runpy.run_path(str(DOCS / "reliability_table.py"))["rows"]
    tests = json.loads((ROOT / "results/reliability.json").read_text())["tests"]
    with pytest.raises(ValueError, match="add rows for a new test"):
        rows({**tests, "a new test": {"tried": 1}})


def test_the_record_counts_no_failure() -> None:
    tests = json.loads((ROOT / "results/reliability.json").read_text())["tests"].values()
    for counts in tests:
        assert counts.get("harmed", 0) == 0
        assert counts.get("noticed") == counts.get("commands")
        for tried in ("kills", "stops", "faults", "moves"):
            assert counts.get(tried, counts.get("resumed")) == counts.get("resumed")
        assert counts.get("kept") == counts.get("losses")
