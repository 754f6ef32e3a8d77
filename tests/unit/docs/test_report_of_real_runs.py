"""The example report shows the records of the ledger, and no paths of the machine that made it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import runpy
from typing import Any

import numpy as np
import pytest
from doc_pages import DOCS, ROOT

from vista.metrics import mean_and_error

PAGE = DOCS / "cifar100-report.html"
RECORDS = runpy.run_path(str(DOCS / "draw_cifar100.py"))["SHOWN"]
METHODS = {"cross-entropy": "ce", "VISTA": "vista", "VISTA Light": "vista-light", "SAT": "sat", "KF": "kf"}
LISTED = "vista-light-seed1-739bce09d6b23ac6"


def metrics(method: str) -> list[dict[str, Any]]:
    paths = [ROOT / f"results/runs/cifar100-symmetric-0.4-{method}-{name}.json" for name in RECORDS[method]]
    return [json.loads(path.read_text())["metrics"] for path in paths]


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', PAGE.read_text(), re.S)
    assert found is not None
    return dict(json.loads(found[1]))


def test_the_browser_accepts_its_script_and_style() -> None:
    """Its security policy names their hashes: after an edit by hand the page would stay empty."""
    page = PAGE.read_text()
    for tag in ("script", "style"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in page, f"{tag}: draw the page again with docs/draw_cifar100.py"


def test_the_table_equals_the_records(shown: dict[str, Any]) -> None:
    assert [METHODS.get(row["name"], row["name"]) for row in shown["table"]["rows"]] == list(RECORDS)
    for row in shown["table"]["rows"]:
        known = metrics(METHODS.get(row["name"], row["name"]))
        assert row["seeds"] == len(known) == 3
        for which in ("best", "last"):
            values = [100 * own[which]["test"]["top1"] for own in known]
            cell = row["cells"][which]
            assert (cell["mean"], cell["se"]) == pytest.approx(mean_and_error(values))
        gaps = [100 * own["deviation_gap"]["val_true"] for own in known]
        assert row["cells"]["gap"]["mean"] == pytest.approx(np.mean(gaps))
        curve = next(p for p in shown["figures"]["accuracy"] if p["name"] == row["name"])["curve"]
        assert len(curve["mean"]) == 200


def test_the_headline_equals_the_records(shown: dict[str, Any]) -> None:
    ours, plain = (np.mean([100 * own["last"]["test"]["top1"] for own in metrics(name)]) for name in ("vista", "ce"))
    assert shown["headline"] == f"With 40 % wrong labels, VISTA ends {ours - plain:.1f} points above cross-entropy"
    assert [tile["value"] for tile in shown["tiles"][:2]] == [f"{ours:.1f} %", f"{ours - plain:+.1f}"]


def test_it_names_what_it_does_not_show(shown: dict[str, Any]) -> None:
    kept = {(m, n) for m, names in RECORDS.items() for n in names
            if (ROOT / f"results/runs/cifar100-symmetric-0.4-{m}-{n}.safetensors").exists()}  # fmt: skip
    assert {method for method, _ in kept} == {"ce", "vista", "vista-light"}
    assert len(kept) == 7
    assert shown["not_shown"].endswith("cross-entropy with seed 0; VISTA with seed 0; SAT; KF; ps-kd-beta.")


def test_the_gallery_equals_the_stored_list(shown: dict[str, Any]) -> None:
    kept = json.loads((ROOT / f"results/suspects/cifar100-symmetric-0.4-{LISTED}.json").read_text())
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
