"""The tables of docs/label-issues.md equal their records in results/."""

from __future__ import annotations

import json
import runpy
from typing import Any

import pytest
from doc_pages import DOCS, ROOT

RECORD: dict[str, Any] = json.loads((ROOT / "results" / "label_issues_digits.json").read_text())
METHODS = {"vista": "VISTA", "ce": "cross-entropy"}


def run_rows() -> list[str]:
    """One row per noise and method: truth, then estimate and interval of each seed."""
    rows = []
    for noise, method in dict.fromkeys((run["noise"], run["method"]) for run in RECORD["runs"]):
        same = [run for run in RECORD["runs"] if (run["noise"], run["method"]) == (noise, method)]
        assert [run["seed"] for run in same] == RECORD["seeds"]
        assert {(run["samples"], run["unjudged"]) for run in same} == {(1797, 0)}
        cells = [f"{run['estimated']} ({run['interval'][0]} to {run['interval'][1]})" for run in same]
        assert len({run["wrong"] for run in same}) == 1
        rows.append(f"| {noise} | {METHODS[method]} | {same[0]['wrong']} | {' | '.join(cells)} |")
    return rows


def simulated_rows() -> list[str]:
    """One row per data set and noise: coverage, and AUROC of both rankings."""
    rows = []
    for row in RECORD["simulated"]:
        ours, margin = row["auroc"]["vista"], row["auroc"]["cleanlab: normalized margin"]
        share = f"{row['covered']} of {row['cases']}"
        rows.append(f"| {row['data']} | {row['noise']} | {share} | {ours:.4f} | {margin:.4f} |")
    return rows


def sentences() -> list[str]:
    """Numbers in the text."""
    cases = RECORD["simulated_per_seed"]
    good = [row for row in cases if row["accuracy"] >= 0.9]
    vista = [run["training_samples"] for run in RECORD["runs"] if run["method"] == "vista"]
    teacher, training = (
        sum(each[kind]["auroc"]["vista"] for each in vista) / len(vista) for kind in ("teacher", "training predictions")
    )
    gap = min(row["auroc"]["vista"] - row["auroc"]["cleanlab: normalized margin"] for row in RECORD["simulated"])
    return [
        f"covers the truth in {sum(run['covered'] for run in RECORD['runs'])} of {len(RECORD['runs'])} runs",
        f"in {sum(row['covered'] for row in cases)} of {len(cases)} simulated cases",
        f"{sum(row['covered'] for row in good)} of {len(good)} where the classifier is right for at least 90 %",
        f"{teacher:.4f} by the teacher and {training:.4f} by the mean training prediction",
        f"at most {-gap:.4f} behind",
    ]


def test_the_page_shows_the_record() -> None:
    page = (DOCS / "label-issues.md").read_text()
    flowing = " ".join(page.split())
    for row in (*run_rows(), *simulated_rows()):
        assert row in page
    for sentence in sentences():
        assert sentence in flowing


def test_cautions_name_the_overtrained_runs() -> None:
    for run in RECORD["runs"]:
        assert (run["caution"] is not None) == (run["method"] == "ce")


def test_the_table_of_estimates_is_that_of_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    record = json.loads((ROOT / "results" / "label_coverage.json").read_text())
    table = runpy.run_path(str(ROOT / "benchmarks" / "label_coverage.py"))["table"](record)
    assert f"<!-- coverage -->\n{table}<!-- /coverage -->" in (DOCS / "label-issues.md").read_text()
    for case in record["cases"]:
        low, high = case["interval"]
        assert case["covered"] == (low <= case["wrong"] <= high)
        assert f"{case['estimated']:,} ({low:,} to {high:,})" in table
        assert not case["trained_on"]["commit"].endswith("dirty")


def test_the_table_of_a_review_is_that_of_its_record() -> None:
    record = json.loads((ROOT / "results" / "review_loop_cifar100n.json").read_text())
    table = runpy.run_path(str(ROOT / "benchmarks" / "review_loop.py"))["table"](record)
    assert f"<!-- review -->\n{table}<!-- /review -->" in (DOCS / "label-issues.md").read_text()
    assert [row["seed"] for row in record["rows"]] == record["seeds"]
    for row in record["rows"]:
        assert row["suggestion_right"] <= row["wrong"] <= row["reviewed"]
        assert not row["trained_on"]["commit"].endswith("dirty")


def test_the_text_about_cifar_100_and_the_review_is_that_of_the_records() -> None:
    flowing = " ".join((DOCS / "label-issues.md").read_text().split())
    cases = json.loads((ROOT / "results" / "label_coverage.json").read_text())["cases"]
    weak = [case for case in cases if case["network"] == "quick_cnn:build"]
    ratios = [case["estimated"] / case["wrong"] for case in weak]
    assert f"the estimate is {min(ratios):.1f} to {max(ratios):.1f} times too high" in flowing
    missed = sum(not case["covered"] for case in weak)
    assert f"the interval misses the truth in {missed} of {len(weak)} runs" in flowing
    assert all("undertrained" in case["caution"] for case in weak)
    ahead: dict[str, list[float]] = {}
    for case in weak:
        auroc = case["training_samples"]["training predictions"]["auroc"]
        ahead.setdefault(case["noise"], []).append(auroc["vista"] - auroc["cleanlab: normalized margin"])
    assert f"by {min(ahead['symmetric:0.4']):.2f} for symmetric noise" in flowing
    assert f"{min(ahead['human']):.2f} for human labels, and up to" in flowing
    assert f"up to {-min(ahead['asymmetric:0.4']):.3f} behind for asymmetric noise" in flowing
    rows = json.loads((ROOT / "results" / "review_loop_cifar100n.json").read_text())["rows"]
    wrong, right = (round(sum(row[name] for row in rows) / len(rows)) for name in ("wrong", "suggestion_right"))
    assert f"{wrong} are wrong on average" in flowing
    assert f"the suggested class is the true one for {right}." in flowing
    assert f"{1000 * rows[0]['wrong_labels'] / rows[0]['labels']:.0f} would be" in flowing
    before = json.loads((ROOT / "results" / "review_loop_cifar100n_5_epochs.json").read_text())
    table = runpy.run_path(str(ROOT / "benchmarks" / "review_loop.py"))["table"](before)
    *_, mean = table.splitlines()
    wrong, best, last = (mean.split(" | ")[place] for place in (2, 5, 7))
    assert f"found {wrong} wrong labels among the 1,000" in flowing
    assert f"a gain of {best} at the best and {last.removesuffix(' |')} at the last epoch" in flowing
