"""Numbers in the captions of docs/how-it-works.md are those of the runs that the figures were drawn from."""

from __future__ import annotations

import numpy as np
from doc_pages import DOCS
from ledger_bits import right

from vista import functional

PLAIN, BASIC, LIGHT = "ecd15291fc0ccb11", "7fa0468258edcbaa", "739bce09d6b23ac6"
TEXT = " ".join((DOCS / "how-it-works.md").read_text().split())


def test_caption_of_marginal_coverage() -> None:
    correct = right(PLAIN)
    count, added = correct.sum(axis=1), functional.marginal_coverage(correct)
    first, second = np.argsort(-count, kind="stable")[:2]
    assert count[first] - count[second] == 1
    said = f"epoch {second + 1} has one sample fewer right than epoch {first + 1}, yet still adds {added[second]} of"
    assert f"{said} {correct.shape[1]:,}." in TEXT


def test_caption_of_contributing_set() -> None:
    seeds = {0.01: (LIGHT, "d61ba0a65d36d1c8", "3a82a74b5945b2b5"), 0.0: (BASIC, "4968d7afbdb5f909")}
    most = [
        max(len(anchors) for run in runs for anchors in functional.light_coverage(right(run), tau))
        for tau, runs in seeds.items()
    ]
    assert f"Light keeps at most {most[0]} where Basic keeps {most[1]}" in TEXT
    for run in (PLAIN, BASIC, LIGHT):
        assert 0.4 < len(functional.light_coverage(right(run), 0.0)[-1]) / 200 < 0.6, "about half of all states"
