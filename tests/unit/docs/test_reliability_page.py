"""Figures on the page about reliability are those of the record that the fault tests write."""

from __future__ import annotations

import json

from doc_pages import DOCS, ROOT


def test_figures_are_those_of_the_record() -> None:
    page, tests = (
        (DOCS / "reliability.md").read_text(),
        json.loads((ROOT / "results/reliability.json").read_text())["tests"],
    )
    flips = tests["bit flips in a finished run"]
    assert f"{flips['flips']} flips over {flips['files']} files, {flips['commands']} calls" in page
    assert f"{flips['noticed']} of {flips['commands']} calls" in page
    moves = [counts for name, counts in tests.items() if name.startswith("moved folder")]
    assert f"{len(moves)} moves" in page
    assert f"{sum(counts['resumed'] for counts in moves)} of {len(moves)} stopped" in page
