"""Numbers on the pages that explain VISTA equal the records, to the last digit."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator
from itertools import product

import pytest
from doc_pages import DOCS, ROOT, without_blocks

from vista.reproduce import ledger, results_page

EXPLAINING = (
    "index.md",
    "how-it-works.md",
    "questions.md",
    "frameworks/plain-loop.md",
    "frameworks/text-and-tables.md",
)


@pytest.fixture(scope="module")
def measured() -> set[str]:
    """Accuracies, gaps and losses of the ledger and the examples as pages write them, and anchor sizes in GB."""
    percents: set[float] = set()
    others: set[float] = set()
    for path in (ROOT / "results" / "runs").glob("*.json"):
        run = json.loads(path.read_text())
        metrics = run["metrics"]
        percents |= {100 * metrics[which]["test"][name] for which in ("best", "last") for name in ("top1", "ece")}
        percents |= {100 * gap for gap in metrics["deviation_gap"].values()}
        percents |= {100 * line["test_accuracy"] for line in run["epochs"]}
        state = 2 * run["data"]["samples"]["train"] * len(run["data"]["classes"])
        others.add((metrics["anchors_max"] or 0) * state / 1e9)
        others |= {line["train_loss"] for line in run["epochs"]}
        others |= {metrics[which]["test"]["nll"] for which in ("best", "last")}
    percents |= set(over_seeds())
    for path in (ROOT / "results" / "examples").glob("*.json"):
        cells = [row[which] for row in json.loads(path.read_text())["rows"] for which in ("best", "last")]
        percents |= {cell[name] for cell in cells for name in ("mean", "se")}
    return {f"{value:.2f}" for value in percents | others}


def over_seeds() -> Iterator[float]:
    """Means over the seeds of each setting, and their standard errors."""
    cells = ledger.group_by_cell(ledger.read(ROOT / "results")).values()
    for records, measure, which in product(cells, ("accuracy", "gap_true"), ("best", "last")):
        measured = results_page.average(records, measure, which)
        assert measured is not None
        yield measured.mean
        yield measured.error or 0.0


@pytest.mark.parametrize("name", EXPLAINING)
def test_numbers_are_measured(name: str, measured: set[str]) -> None:
    text = without_blocks(DOCS / name).replace("τ = 0.01", "")
    numbers = re.findall(r"(?<![\d.])\d+\.\d\d(?!\d)", text)
    assert [number for number in numbers if number not in measured] == []


def test_correlation_of_given_and_true_validation_accuracy() -> None:
    said = " ".join((DOCS / "questions.md").read_text().split())
    for identities, words in (
        (("ef5d26469f7f541a", "7a5b975f2ccc616c"), "{} in plain training and {} in VISTA with symmetric noise"),
        (("c4a69ac6e56d1f90", "a8468212b11fe409"), "people made in CIFAR-100N, {} and {}"),
    ):
        shown = []
        for identity in identities:
            (path,) = (ROOT / "results" / "runs").glob(f"*-{identity}.json")
            epochs = json.loads(path.read_text())["epochs"]
            given, true = ([line[name] for line in epochs] for name in ("val_accuracy", "val_true_accuracy"))
            shown.append(f"{statistics.correlation(given, true):.3f}")
        assert words.format(*shown) in said
