"""Our reading of the results quotes the ledger and the paper, and what can be subtracted from them."""

from __future__ import annotations

import json
import re
from itertools import product
from typing import Any

import numpy as np
import pytest
from doc_pages import DOCS, ROOT

from vista import functional
from vista.reproduce.protocol import VALIDATION
from vista.reproduce.table1 import PAPER as TABLE1
from vista.reproduce.table1 import SETTINGS, papers
from vista.training import record

PLAIN_IN_THE_PAPER = {percent: papers("ce", f"symmetric {percent} %") for percent in (20, 40, 60)}
AT_40 = list(SETTINGS).index("symmetric 40 %")
PAGE = (DOCS / "reproduction.md").read_text()
PLAIN: dict[str, Any] = {"validation": 0.1, "rotation": 0.0, "nesterov": False, "lr_schedule": "restarts"}
TWO_PERCENT = {"validation": 0.02}
LIGHT, LIGHTER = {"record": "train", "tau": 0.002}, {"record": "train", "tau": 0.01}
EVAL = {"record": "eval"}
Row = tuple[str, str, dict[str, Any], dict[str, Any]]  # name, method, options, settings
FORGETTING: list[Row] = [
    ("`ce`", "ce", {}, TWO_PERCENT),
    ("`vista` (Basic)", "vista", {"record": "train"}, TWO_PERCENT),
    ("`vista-uniform`", "vista-uniform", {}, TWO_PERCENT),
    ("`ps-kd-beta`", "ps-kd-beta", {}, TWO_PERCENT),
    ("`ce`", "ce", {}, {}),
    ("`vista` (Basic)", "vista", {"record": "train", "tau": 0.0}, {}),
    ("`vista-light` (τ = 0.01)", "vista-light", LIGHTER, {}),
    ("`vista-light` (τ = 0.002)", "vista-light", LIGHT, {}),
    ("`vista`, `record=eval`", "vista", EVAL | {"tau": 0.0}, {}),
    ("`vista-light` (τ = 0.01), `record=eval`", "vista-light", EVAL | {"tau": 0.01}, {}),
    ("`vista-light` (τ = 0.002), `record=eval`", "vista", EVAL | {"tau": 0.002}, {}),
]
CALIBRATION: list[Row] = [
    ("validation 10 %, as the noisy preset has it", "ce", {}, {}),
    ("validation 5 %", "ce", {}, {"validation": 0.05}),
    ("validation 2 %", "ce", {}, TWO_PERCENT),
    ("validation 1 %", "ce", {}, {"validation": 0.01}),
    ("validation 10 %, rotation by 15°", "ce", {}, {"rotation": 15.0}),
    ("validation 10 %, Nesterov", "ce", {}, {"nesterov": True}),
    ("validation 10 %, one cosine over all epochs", "ce", {}, {"lr_schedule": "cosine"}),
]


@pytest.fixture(scope="module")
def ledger() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((ROOT / "results" / "runs").glob("*.json"))]


def result(run: dict[str, Any], which: str) -> float:
    return 100 * float(run["metrics"][which]["test"]["top1"])


def found(
    ledger: list[dict[str, Any]], method: str, options: dict[str, Any], changes: dict[str, Any], percent: int = 40
) -> dict[str, Any]:
    settings = PLAIN | changes | {"method": method, "noise": f"symmetric:{percent / 100:g}", "seed": 0}
    (run,) = [
        run
        for run in ledger
        if settings.items() <= run["config"].items() and options.items() <= run["config"]["options"].items()
    ]
    return run


def line(*cells: str) -> str:
    return re.sub(r" +", " ", f"| {' | '.join(cells)} |")


@pytest.mark.parametrize("row", [*FORGETTING, *CALIBRATION], ids=str)
def test_a_row_is_that_of_its_run(row: Row, ledger: list[dict[str, Any]]) -> None:
    name, *what = row
    run = found(ledger, *what)
    cells = [name, f"{result(run, 'best'):.2f}", f"{result(run, 'last'):.2f}"]
    if row in FORGETTING:
        gap = f"{100 * run['metrics']['deviation_gap']['val_true']:.2f} %"
        cells += [str(run["metrics"]["anchors_max"] or ""), gap]
    assert line(*cells) in PAGE


@pytest.mark.parametrize("percent", PLAIN_IN_THE_PAPER)
def test_the_protocol_is_the_one_of_two_that_is_nearer_to_the_paper(percent: int, ledger: list[dict[str, Any]]) -> None:
    paper = PLAIN_IN_THE_PAPER[percent]
    usual, frozen = (result(found(ledger, "ce", {}, {"validation": v}, percent), "best") for v in (0.1, VALIDATION))
    row = line(f"{percent} %", f"{paper.value:.2f} ± {paper.error:.2f}", f"{usual:.2f}", f"{frozen:.2f}")
    assert row in PAGE
    assert abs(frozen - paper.value) < abs(usual - paper.value)


@pytest.mark.parametrize("tau", [0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02])
def test_what_a_tolerance_would_keep_is_computed_from_the_basic_runs_bits(tau: float) -> None:
    (bits,) = (ROOT / "results" / "runs").glob("*-vista-seed0-9399fa7bcb7df4c8.safetensors")
    rows, about = record.artefact.read(bits, record.FORMAT, record.VERSION)
    correct = np.unpackbits(rows["val_given"], axis=1)[:, : about["sizes"]["val_given"]].astype(bool)
    history = functional.light_coverage(correct, tau)
    kept = sum(history[-1].values()) / int(correct.any(axis=0).sum())
    assert line(f"{tau:g}", str(max(map(len, history))), f"{100 * kept:.1f} %") in PAGE


def test_the_readme_says_of_the_control_what_the_ledger_says(ledger: list[dict[str, Any]]) -> None:
    control, ours = (found(ledger, method, {}, TWO_PERCENT) for method in ("ps-kd-beta", "vista"))
    said = " ".join((ROOT / "README.md").read_text().split())
    assert f"({result(control, 'best'):.2f} beside VISTA's {result(ours, 'best'):.2f}, both with" in said
    assert f"({result(control, 'last'):.2f} beside {result(ours, 'last'):.2f} at the last)" in said


def test_every_figure_is_measured_or_the_papers_or_a_difference_of_two(ledger: list[dict[str, Any]]) -> None:
    paper = {method: numbers[AT_40] for method, numbers in TABLE1.items() if numbers[AT_40]}
    after_restart = functional.beta(160, 200)
    figures: set[float] = {
        10.60,
        2.97,
        after_restart,
        *(figure for number in paper.values() if number for figure in number),
    }
    for number in PLAIN_IN_THE_PAPER.values():
        figures |= {number.value, number.error or 0.0}
    for run, which in product(ledger, ("best", "last")):
        theirs = TABLE1.get(run["config"]["method"])
        alike = [other for other in ledger if other["data"]["split_hash"] == run["data"]["split_hash"]]
        figures |= {result(run, which), *(result(run, which) - result(other, which) for other in alike)}
        figures |= {abs(result(run, which) - number[0]) for number in theirs if number} if theirs else set()
        figures |= {100 * gap for gap in run["metrics"]["deviation_gap"].values()}
        figures |= {100 * epoch["test_accuracy"] for epoch in run["epochs"]}
    for theirs in paper.values():
        figures |= {theirs[0] - paper["ce"][0]} if theirs and paper["ce"] else set()
    written = re.findall(r"(?<![\d.])\d+\.\d\d(?!\d)", re.sub(r"τ = 0\.01|\| 0\.0\d \|", "", PAGE))
    assert written
    assert [number for number in written if number not in {f"{figure:.2f}" for figure in figures}] == []
