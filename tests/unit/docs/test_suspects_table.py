"""The comparison of suspected labels with cleanlab equals the records."""

from __future__ import annotations

import json

import pytest
from doc_pages import DOCS, ROOT

ROWS = {  # of the page: the record and its noise
    "digits, symmetric 40 %, 3 seeds": ("digits", "symmetric:0.4", 3),
    "digits, asymmetric 40 %, 3 seeds": ("digits", "asymmetric:0.4", 3),
    "CIFAR-100N, human, 1 seed, 40 epochs": ("cifar100", "human", 1),
}
COLUMNS = ("vista: ", "vista-light: ", "cleanlab: out-of-fold, ", "cleanlab: own, best, ")


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_the_best_score_of_each_approach(row: str) -> None:
    data, noise, seeds = ROWS[row]
    record = json.loads((ROOT / "results" / f"suspected_labels_{data}.json").read_text())
    assert len(record["seeds"]) == seeds
    auroc = {way["by"]: way["auroc"]["mean"] for way in record["rows"] if way["noise"] == noise}
    best = [max(value for by, value in auroc.items() if by.startswith(column)) for column in COLUMNS]
    shown = (DOCS / "reading-a-report.md").read_text()
    assert f"| {row} | {' | '.join(f'{value:.3f}' for value in best)} |" in shown
    assert min(best[:2]) > best[2], "ours are ahead of out-of-fold predictions"
