"""Our reading of the results quotes the ledger and the paper, and what can be subtracted from them."""

from __future__ import annotations

import json
import re
from itertools import product
from typing import Any

import pytest
from doc_pages import DOCS, ROOT

from vista.reproduce.table1 import PAPER as TABLE1
from vista.reproduce.table1 import SETTINGS

AT_40 = list(SETTINGS).index("symmetric 40 %")
PAGE = (DOCS / "reproduction.md").read_text()
PLAIN: dict[str, Any] = {"validation": 0.1, "rotation": 0.0, "nesterov": False, "lr_schedule": "restarts"}
ROWS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "`ce`": ("ce", {}, {}),
    "`vista` (Basic)": ("vista", {"record": "train"}, {}),
    "`vista-light` (τ = 0.01)": ("vista-light", {"record": "train", "tau": 0.01}, {}),
    "`vista-light` (τ = 0.002)": ("vista-light", {"record": "train", "tau": 0.002}, {}),
    "`vista`, `record=eval`": ("vista", {"record": "eval"}, {}),
    "`vista-light`, `record=eval`": ("vista-light", {"record": "eval", "tau": 0.01}, {}),
    "as the noisy preset has it: validation 10 %, restarts every 40 epochs": ("ce", {}, {}),
    "validation 5 %": ("ce", {}, {"validation": 0.05}),
    "validation 2 %": ("ce", {}, {"validation": 0.02}),
    "validation 1 %": ("ce", {}, {"validation": 0.01}),
    "rotation by 15°": ("ce", {}, {"rotation": 15.0}),
    "Nesterov": ("ce", {}, {"nesterov": True}),
    "one cosine over all epochs": ("ce", {}, {"lr_schedule": "cosine"}),
}


@pytest.fixture(scope="module")
def ledger() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((ROOT / "results" / "runs").glob("*.json"))]


def result(run: dict[str, Any], which: str) -> float:
    return 100 * float(run["metrics"][which]["test"]["top1"])


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_that_of_its_run(row: str, ledger: list[dict[str, Any]]) -> None:
    method, options, changes = ROWS[row]
    settings = PLAIN | changes | {"method": method, "noise": "symmetric:0.4", "seed": 0}
    (run,) = [
        run
        for run in ledger
        if settings.items() <= run["config"].items() and options.items() <= run["config"]["options"].items()
    ]
    cells = [row, f"{result(run, 'best'):.2f}", f"{result(run, 'last'):.2f}"]
    if "`" in row:
        cells += [
            str(run["metrics"]["anchors_max"] or ""),
            f"{100 * run['metrics']['deviation_gap']['val_true']:.2f} %",
        ]
    assert re.sub(r" +", " ", f"| {' | '.join(cells)} |") in PAGE


def test_every_figure_is_measured_or_the_papers_or_a_difference_of_two(ledger: list[dict[str, Any]]) -> None:
    paper = {method: numbers[AT_40] for method, numbers in TABLE1.items() if numbers[AT_40]}
    figures: set[float] = {10.60, 2.97, *(figure for number in paper.values() if number for figure in number)}
    (plain,) = [run for run in ledger if (PLAIN | {"method": "ce"}).items() <= run["config"].items()]
    for run, which in product(ledger, ("best", "last")):
        theirs = paper.get(run["config"]["method"])
        figures |= {result(run, which), result(run, which) - result(plain, which)}
        figures |= {abs(result(run, which) - theirs[0])} if theirs else set()
        figures |= {100 * gap for gap in run["metrics"]["deviation_gap"].values()}
        figures |= {100 * line["test_accuracy"] for line in run["epochs"]}
    for theirs in paper.values():
        figures |= {theirs[0] - paper["ce"][0]} if theirs and paper["ce"] else set()
    written = re.findall(r"(?<![\d.])\d+\.\d\d(?!\d)", PAGE.replace("τ = 0.01", ""))
    assert written
    assert [number for number in written if number not in {f"{figure:.2f}" for figure in figures}] == []
