"""The table of suspected labels in docs/reading-a-report.md equals the records in `results/`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from doc_pages import DOCS, ROOT

ROWS = {
    "digits, symmetric 40 %": ("digits", "symmetric:0.4", ""),
    "digits, asymmetric 40 %": ("digits", "asymmetric:0.4", ""),
    "CIFAR-100N, human": ("cifar100", "human", ", 40 epochs"),
}


def auroc(record: dict[str, Any], noise: str, by: str) -> str:
    """The highest AUROC of the rows whose name starts with ``by``."""
    found = [row["auroc"]["mean"] for row in record["rows"] if row["noise"] == noise and row["by"].startswith(by)]
    return f"{max(found):.3f}"


@pytest.mark.parametrize("labels", ROWS)
def test_a_row_equals_its_record(labels: str) -> None:
    data, noise, rest = ROWS[labels]
    record = json.loads((ROOT / "results" / f"suspected_labels_{data}.json").read_text())
    seeds = len(record["seeds"])
    columns = ("vista: ", "vista-light: ", "cleanlab: out-of-fold, best", "cleanlab: own, best")
    cells = [f"{labels}, {seeds} seed{'s' if seeds > 1 else ''}{rest}"]
    cells += [auroc(record, noise, by) for by in columns]
    assert f"| {' | '.join(cells)} |" in (DOCS / "reading-a-report.md").read_text()
