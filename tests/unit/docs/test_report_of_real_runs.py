"""The example report shows the records of the ledger, and no paths of the machine that made it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from doc_pages import DOCS, ROOT

PAGE = DOCS / "cifar100-report.html"
RECORDS = {
    "ce": "ce-seed1-ecd15291fc0ccb11",
    "vista": "vista-seed1-7fa0468258edcbaa",
    "vista-light": "vista-light-seed1-739bce09d6b23ac6",
}


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', PAGE.read_text(), re.S)
    assert found is not None
    return dict(json.loads(found[1]))


def test_the_table_equals_the_records(shown: dict[str, Any]) -> None:
    assert [row["name"] for row in shown["table"]["rows"]] == list(RECORDS)
    for row in shown["table"]["rows"]:
        record = json.loads((ROOT / f"results/runs/cifar100-symmetric-0.4-{RECORDS[row['name']]}.json").read_text())
        for which in ("best", "last"):
            assert row["cells"][which]["mean"] == pytest.approx(100 * record["metrics"][which]["test"]["top1"])
        assert row["cells"]["gap"]["mean"] == pytest.approx(100 * record["metrics"]["deviation_gap"]["val_true"])
        assert len(next(p for p in shown["figures"]["forgetting"] if p["name"] == row["name"])["gap"]["mean"]) == 200


def test_the_gallery_equals_the_stored_list(shown: dict[str, Any]) -> None:
    kept = json.loads((ROOT / f"results/suspects/cifar100-symmetric-0.4-{RECORDS['vista-light']}.json").read_text())
    rows = shown["suspects"]["rows"]
    assert [(row["id"], row["score"]) for row in rows] == [(row["id"], row["score"]) for row in kept["suspects"]]
    assert all(row["image"].startswith("data:image/png;base64,") for row in rows)
    wrong = sum(row["given"] != row["true"] for row in rows)
    right = sum(row["suggested"] == row["true"] for row in rows)
    said = " ".join((ROOT / "README.md").read_text().split())
    assert f"Of the {len(rows)} labels that VISTA Light suspects most, all {wrong} are wrong" in said
    assert f"for {right} the suggestion is the true class" in said


def test_it_is_small_and_contains_no_local_paths(shown: dict[str, Any]) -> None:
    assert PAGE.stat().st_size < 5_000_000
    assert {run["config"]["root"] for run in shown["runs"]} == {None}
    assert all(not run["path"].startswith("/") for run in shown["runs"])
    assert not re.search(r'"/(tmp|home|root|work|Users)/', PAGE.read_text())
