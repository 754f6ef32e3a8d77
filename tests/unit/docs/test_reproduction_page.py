"""Every number of docs/reproduction.md comes from the ledger, the paper, or a difference of both."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import statistics
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doc_pages import DOCS, ROOT
from ledger_bits import right

from vista import functional, methods
from vista.reproduce import protocol
from vista.reproduce.protocol import VALIDATION
from vista.reproduce.studies import recipe
from vista.reproduce.studies.ablations import PAPER as ABLATIONS
from vista.reproduce.studies.beta import PAPER as SCHEDULES
from vista.reproduce.studies.table1 import PAPER as TABLE1
from vista.reproduce.studies.table1 import SETTINGS, paper_number
from vista.reproduce.studies.table4 import PAPER as ERRORS
from vista.runs.config import INCIDENTAL, TrainConfig

PLAIN_IN_THE_PAPER = {percent: paper_number("ce", f"symmetric {percent} %") for percent in (20, 40, 60)}
AT_40 = list(SETTINGS).index("symmetric 40 %")
PAGE = (DOCS / "reproduction.md").read_text()
PLAIN: dict[str, Any] = {"validation": 0.1, "rotation": 0.0, "nesterov": False, "lr_schedule": "restarts"}
TWO_PERCENT = {"validation": 0.02}
LIGHT, LIGHTER = {"record": "train", "tau": 0.002}, {"record": "train", "tau": 0.01}
EVAL = {"record": "eval"}
Row = tuple[str, str, dict[str, Any], dict[str, Any]]  # name, method, options, settings
FROZEN = {  # at 40 % symmetric noise, under the frozen protocol
    "ce": "`ce`",
    "sat": "`sat`",
    "kf": "`kf`",
    "vista": "`vista` (Basic)",
    "vista-light": "`vista-light` (τ = 0.01)",
    "vista-uniform": "`vista-uniform`",
    "ps-kd-beta": "`ps-kd-beta`",
}
HEADLINE = {
    "ce": "cross-entropy",
    "sat": "SAT",
    "kf": "KF, several networks at once",
    "vista": "VISTA",
    "vista-light": "VISTA Light (τ = 0.01)",
    "ps-kd-beta": "only the last state teaches",
}
WHICH = ("best", "last")
COLUMNS = ("last", "best")  # of tables: the last epoch needs no selection
FORGETTING: list[Row] = [
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
    """The records but those of the recipe search; configuration fields and options added later have their defaults."""
    every = [json.loads(path.read_text()) for path in sorted((ROOT / "results" / "runs").glob("*.json"))]
    records = [kept for kept in every if kept["config"]["seed"] < recipe.FIRST_SEED]
    configs = [TrainConfig.from_json(kept["config"]) for kept in records]
    options = [methods.choose(config.method, config.options).options for config in configs]
    return [
        kept | {"config": config.to_json() | {"options": values}}
        for kept, config, values in zip(records, configs, options, strict=True)
    ]


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


def of_seeds(ledger: list[dict[str, Any]], method: str, setting: str = "symmetric 40 %") -> dict[int, dict[str, Any]]:
    """The runs of a method under the frozen protocol, by seed; a KF run's network replaces a missing plain run."""
    wanted = protocol.make_config(method, SETTINGS[setting], 0).to_json()
    left_out = ("seed", *INCIDENTAL)
    same = [run for run in ledger if all(run["config"][key] == wanted[key] for key in wanted if key not in left_out)]
    own = {run["config"]["seed"]: run for run in same}
    fused = of_seeds(ledger, "kf", setting) if method == "ce" else {}
    alone = {seed: run["metrics"].get("network") for seed, run in fused.items() if seed not in own}
    other = {seed: fused[seed] | {"metrics": fused[seed]["metrics"] | alone[seed]} for seed in alone if alone[seed]}
    return dict(sorted((own | other).items()))


def over_seeds(values: list[float]) -> tuple[float, ...]:
    """The mean and, for several values, its standard error."""
    error = [statistics.stdev(values) / math.sqrt(len(values))] if len(values) > 1 else []
    return (statistics.fmean(values), *error)


def format_mean(values: list[float], sign: str = "") -> str:
    mean, *error = over_seeds(values)
    return f"{mean:{sign}.2f}" + "".join(f" ± {each:.2f}" for each in error)


def gains(ours: dict[int, dict[str, Any]], over: dict[int, dict[str, Any]], which: str) -> list[float]:
    return [result(run, which) - result(over[seed], which) for seed, run in ours.items() if seed in over]


def headline(name: str, runs: dict[int, dict[str, Any]]) -> str:
    accuracies = [format_mean([result(run, which) for run in runs.values()]) for which in COLUMNS]
    gap = format_mean([100 * run["metrics"]["deviation_gap"]["val_true"] for run in runs.values()])
    return line(name, str(len(runs)), *accuracies, anchors(runs), f"{gap} %")


def anchors(runs: dict[int, dict[str, Any]]) -> str:
    return ", ".join(str(run["metrics"]["anchors_max"]) for run in runs.values() if run["metrics"]["anchors_max"])


def line(*cells: str) -> str:
    return re.sub(r" +", " ", f"| {' | '.join(cells)} |")


@pytest.mark.parametrize("row", [*FORGETTING, *CALIBRATION], ids=str)
def test_a_row_matches_its_run(row: Row, ledger: list[dict[str, Any]]) -> None:
    name, *what = row
    run = found(ledger, *what)
    cells = [name, f"{result(run, 'last'):.2f}", f"{result(run, 'best'):.2f}"]
    if row in FORGETTING:
        gap = f"{100 * run['metrics']['deviation_gap']['val_true']:.2f} %"
        cells += [str(run["metrics"]["anchors_max"] or ""), gap]
    assert line(*cells) in PAGE


@pytest.mark.parametrize("method", FROZEN)
def test_a_row_of_the_frozen_protocol_matches_its_seeds(method: str, ledger: list[dict[str, Any]]) -> None:
    runs, plain = of_seeds(ledger, method), of_seeds(ledger, "ce")
    accuracies = [format_mean([result(run, which) for run in runs.values()]) for which in COLUMNS]
    gain = ["" if method == "ce" else format_mean(gains(runs, plain, which), "+") for which in COLUMNS]
    assert line(FROZEN[method], str(len(runs)), *accuracies, *gain, anchors(runs)) in PAGE


@pytest.mark.parametrize("setting", [setting for setting in SETTINGS if setting != "symmetric 40 %"])
def test_a_row_of_other_labels_matches_its_runs(setting: str, ledger: list[dict[str, Any]]) -> None:
    plain, place = of_seeds(ledger, "ce", setting), list(SETTINGS).index(setting)
    shown = [row for row in PAGE.splitlines() if row.startswith(f"| {setting} | `")]
    expected = []
    for method in FROZEN:
        runs, theirs = of_seeds(ledger, method, setting), TABLE1.get(method, [None] * len(SETTINGS))[place]
        accuracies = [format_mean([result(run, which) for run in runs.values()]) for which in COLUMNS] if runs else []
        gain = (
            ["" if method == "ce" else format_mean(gains(runs, plain, which), "+") for which in COLUMNS] if runs else []
        )
        paper = f"{theirs[0]:.2f} ± {theirs[1]:.2f}" if theirs else ""
        paper_gain = f"{theirs[0] - TABLE1['ce'][place][0]:+.2f}" if theirs and method != "ce" else ""  # type: ignore[index]
        if runs:
            cells = [*accuracies, *gain, paper, paper_gain, anchors(runs)]
            expected.append(line(setting, FROZEN[method], str(len(runs)), *cells))
    assert shown == expected


def test_the_tables_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("reproduction_tables", DOCS / "reproduction_tables.py")
    assert spec
    assert spec.loader
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    for path, text in tables.pages(tables.Ledger(ROOT / "results")).items():
        assert text == path.read_text(), "run `python docs/reproduction_tables.py`"


@pytest.mark.parametrize("method", FROZEN)
def test_a_row_of_forgetting_matches_its_runs(method: str, ledger: list[dict[str, Any]]) -> None:
    gaps = [run["metrics"]["deviation_gap"] for run in of_seeds(ledger, method).values()]
    shown = [format_mean([100 * gap[part] for gap in gaps]) for part in ("val_given", "val_true", "test")]
    assert line(FROZEN[method], *shown) in PAGE


@pytest.mark.parametrize("percent", PLAIN_IN_THE_PAPER)
def test_the_frozen_protocol_is_nearer_to_the_paper(percent: int, ledger: list[dict[str, Any]]) -> None:
    paper = PLAIN_IN_THE_PAPER[percent]
    usual, frozen = (result(found(ledger, "ce", {}, {"validation": v}, percent), "best") for v in (0.1, VALIDATION))
    row = line(f"{percent} %", f"{paper.value:.2f} ± {paper.error:.2f}", f"{usual:.2f}", f"{frozen:.2f}")
    assert row in PAGE
    assert abs(frozen - paper.value) < abs(usual - paper.value)


@pytest.mark.parametrize("tau", [0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02])
def test_anchors_of_other_tolerances_match_the_basic_trajectories(tau: float) -> None:
    cells = [f"{tau:g}"]
    for correct in map(right, ("9399fa7bcb7df4c8", "7fa0468258edcbaa")):
        history = functional.light_coverage(correct, tau)
        anchors = [epoch - 1 for epoch in history[-1]]
        kept = correct[anchors].any(axis=0).sum() / correct.any(axis=0).sum()
        cells += [str(max(map(len, history))), f"{100 * kept:.1f} %"]
    assert line(*cells) in PAGE


def test_lifespans_and_first_rank_match_the_trajectories() -> None:
    said = " ".join(PAGE.split())
    seeds = {
        "ce": ("ecd15291fc0ccb11", "ec6739b0e0177b10"),
        "vista": ("7fa0468258edcbaa", "4968d7afbdb5f909"),
        "vista-light": ("739bce09d6b23ac6", "3a82a74b5945b2b5"),
    }
    spans = {m: " and ".join(f"{functional.lifespans(right(run)).mean():.1f}" for run in seeds[m]) for m in seeds}
    assert (
        f"{spans['ce']} epochs for plain training, {spans['vista']} for VISTA and {spans['vista-light']} for Light"
        in said
    )
    earlier = [functional.lifespans(right(identity)).mean() for identity in ("7826d91830e99b52", "9399fa7bcb7df4c8")]
    assert f"with 10 % for validation {earlier[0]:.1f} and {earlier[1]:.1f}" in said
    basic, *others = map(right, (*seeds["vista"], *seeds["vista-light"], "d61ba0a65d36d1c8"))
    count, credit = basic.sum(axis=1), functional.marginal_coverage(basic)
    first = int(np.argmax(credit))
    assert 0.6 < credit[first] / credit.sum() < 0.7
    assert f"this is epoch {first + 1} until the end" in said
    assert f"{count[first]} of 1,000 given validation labels right" in said
    assert f"where the best epoch of the last cycle has {count[160:].max()}" in said
    assert all(np.argmax(functional.marginal_coverage(correct)) >= 160 for correct in others)


def test_validation_accuracy_with_asymmetric_noise(ledger: list[dict[str, Any]]) -> None:
    plain, vista = (of_seeds(ledger, method, "asymmetric 40 %")[0]["epochs"] for method in ("ce", "vista"))
    given, true = ({"vista": 100 * vista[-1][name]} for name in ("val_accuracy", "val_true_accuracy"))
    given["plain"] = 100 * max(epoch["val_accuracy"] for epoch in plain)
    true["plain"] = 100 * plain[-1]["val_true_accuracy"]
    said = " ".join(PAGE.split())
    assert f"with {given['vista']:.1f} % right at 40 %, less than the {given['plain']:.1f} % that plain" in said
    assert f"with {true['vista']:.1f} %, where plain training ends with {true['plain']:.1f} %" in said
    assert given["vista"] < given["plain"]


@pytest.mark.parametrize("setting", ["asymmetric 20 %", "asymmetric 40 %"])
def test_with_asymmetric_noise_only_plain_training_reaches_the_paper(
    setting: str, ledger: list[dict[str, Any]]
) -> None:
    place, short = list(SETTINGS).index(setting), {}
    for method, numbers in TABLE1.items():
        if number := numbers[place]:
            (run,) = of_seeds(ledger, method, setting).values()
            short[method] = number[0] - max(result(run, which) for which in WHICH)
    assert {"ce", "sat", "kf", "vista"} <= short.keys()
    assert short.pop("ce") < 0
    assert min(short.values()) > 0.5


def test_no_epoch_under_asymmetric_noise_reaches_the_paper(ledger: list[dict[str, Any]]) -> None:
    place, highest = list(SETTINGS).index("asymmetric 40 %"), {}
    for method in ("vista", "sat"):
        (run,) = of_seeds(ledger, method, "asymmetric 40 %").values()
        highest[method] = 100 * max(epoch["test_accuracy"] for epoch in run["epochs"])
        assert highest[method] < TABLE1[method][place][0]  # type: ignore[index]
    said = " ".join(PAGE.split())
    assert f"has {highest['vista']:.2f} in VISTA and {highest['sat']:.2f} in SAT, still below the paper" in said


@pytest.mark.parametrize(
    "method", ["vista", "vista-chronological", "vista-smoothing", "vista-accuracy", "vista-uniform"]
)
def test_a_row_of_the_ablations_matches_the_first_seed(method: str, ledger: list[dict[str, Any]]) -> None:
    run, numbers = of_seeds(ledger, method)[0], ABLATIONS[method]
    paper = f"{numbers[0][0]:.2f} ± {numbers[0][1]:.2f}" if numbers else ""
    cells = [f"`{method}`", *(f"{result(run, which):.2f}" for which in COLUMNS), paper]
    assert any(row.endswith(line(*cells)) for row in PAGE.splitlines())


def test_statements_about_the_ablations(ledger: list[dict[str, Any]]) -> None:
    names = ("vista", "vista-chronological", "vista-smoothing", "vista-accuracy")
    run, said = {name: of_seeds(ledger, name)[0] for name in names}, " ".join(PAGE.split())
    tested = [100 * epoch["test_accuracy"] for epoch in run["vista-chronological"]["epochs"]]
    assert max(tested) == tested[159]
    assert f"rises to {tested[159]:.2f} at the end of the fourth cycle" in said
    assert f"the last restart costs {tested[159] - tested[-1]:.2f} of it" in said
    over = {n: [result(run[n], which) - result(run["vista"], which) for which in WHICH] for n in names}
    assert f"at the last epoch it is {over['vista-smoothing'][1]:.2f} above coverage alone" in said
    below = " and ".join(f"{-gap:.2f}" for gap in over["vista-accuracy"])
    theirs = {name: ABLATIONS["vista"][0][0] - ABLATIONS[name][0][0] for name in names}  # type: ignore[index]
    assert f"is {below} below coverage; in the paper {theirs['vista-accuracy']:.2f}." in said
    assert f"reports it {theirs['vista-chronological']:.2f} below coverage" in said


@pytest.mark.parametrize("method", SCHEDULES)
def test_a_row_of_the_schedules_matches_the_first_seed(method: str, ledger: list[dict[str, Any]]) -> None:
    run, number = of_seeds(ledger, method)[0], SCHEDULES[method]
    paper = f"{number[0]:.2f} ± {number[1]:.2f}" if number else ""
    cells = [*(f"{result(run, which):.2f}" for which in COLUMNS), paper, anchors({0: run})]
    assert any(row.endswith(line(*cells)) for row in PAGE.splitlines())


def test_statements_about_the_schedules(ledger: list[dict[str, Any]]) -> None:
    runs, said = {method: of_seeds(ledger, method)[0] for method in SCHEDULES}, " ".join(PAGE.split())
    rising = [
        method for method, run in runs.items() if method != "ce" and run["config"]["options"]["schedule"] != "fixed"
    ]
    ends = sorted(result(runs[method], "last") for method in rising)
    assert len(rising) == 5
    assert f"The five rising schedules end between {ends[0]:.2f} and {ends[-1]:.2f}" in said
    assert f"five schedules end within {ends[-1] - ends[0]:.2f} of each other" in said
    best = {method: result(runs[method], "best") for method in rising}
    assert (min(best, key=best.__getitem__), max(best, key=best.__getitem__)) == ("vista", "vista:schedule=linear")
    chosen = [runs[method]["metrics"]["best"]["epoch"] for method in ("vista", "vista:schedule=linear")]
    assert f"(#vista-baselines-and-two-controls): {chosen[0]} and {chosen[1]}." in said
    tested = {method: [100 * epoch["test_accuracy"] for epoch in run["epochs"]] for method, run in runs.items()}
    half = tested["vista:schedule=fixed:value=0.5"]
    assert f"the first cycle of the learning rate ends at {half[39]:.2f} and the last one at {half[-1]:.2f}" in said
    assert f"0.5 ends {tested['vista'][-1] - half[-1]:.2f} below" in said
    labels_first = tested["vista:schedule=fixed:value=1"]
    assert f"taught: {labels_first[0]:.2f} after the first, {labels_first[-1]:.2f} after the last" in said
    assert f"{tested['vista:schedule=fixed:value=1:start=uniform'][-1]:.2f} % is chance accuracy" in said


def test_the_permutation_does_not_explain_asymmetric_noise(ledger: list[dict[str, Any]]) -> None:
    (run,) = [each for each in ledger if each["config"]["noise"] == "pairflip:0.4"]
    highest = 100 * max(epoch["test_accuracy"] for epoch in run["epochs"])
    both = " and ".join(f"{result(run, which):.2f}" for which in WHICH)
    said = " ".join(PAGE.split())
    assert f"VISTA has {both} at 40 %, and {highest:.2f} at its highest" in said
    assert highest < TABLE1["vista"][list(SETTINGS).index("asymmetric 40 %")][0]  # type: ignore[index]


def test_statements_about_clean_labels(ledger: list[dict[str, Any]]) -> None:
    runs = {method: of_seeds(ledger, method, "clean")[0] for method in ("ce", "vista", "vista-light", "kf", "sat")}
    said, place = " ".join(PAGE.split()), list(SETTINGS).index("clean")
    error = {method: f"{100 * run['metrics']['best']['test']['ece']:.2f} %" for method, run in runs.items()}
    assert (
        f"is {error['vista']} for VISTA and {error['vista-light']} for Light, where plain training has {error['ce']}"
        in said
    )
    aurc = {method: f"{100 * run['metrics']['best']['test']['aurc']:.2f} %" for method, run in runs.items()}
    assert f"AURC of {aurc['vista']} and {aurc['vista-light']} against {aurc['ce']}." in said
    table1 = 100 - TABLE1["ce"][place][0]  # type: ignore[index]
    assert f"an error of {ERRORS['vista'][0]:.2f} % and plain training {ERRORS['ce'][0]:.2f} %" in said  # type: ignore[index]
    assert f"plain training has {table1:.2f} % and {100 - result(runs['ce'], 'best'):.2f} %." in said
    paper, gain = ERRORS["ce"][0] - ERRORS["vista"][0], ERRORS["ce"][0] - table1  # type: ignore[index]
    assert gain / paper > 0.5, "more than half of it"
    assert f"best-validation epoch, {runs['vista']['metrics']['best']['epoch']}, and" in said
    assert f"it ends at {result(runs['sat'], 'last'):.2f}, close to its best" in said
    assert max(epoch["test_accuracy"] for epoch in runs["sat"]["epochs"]) < result(runs["sat"], "last") / 100 + 0.005


def test_the_number_of_runs_matches_the_ledger(ledger: list[dict[str, Any]]) -> None:
    assert f"the ledger holds {len(ledger)} runs" in " ".join(PAGE.split())
    assert {method: len(of_seeds(ledger, method)) for method in FROZEN} == dict.fromkeys(FROZEN, 3)


BEYOND = {  # comparisons on the page, and whether it reports a difference
    ("ce", "best", "paper"): False,
    ("sat", "best", "paper"): False,
    ("kf", "best", "paper"): False,
    ("vista", "best", "paper"): True,
    ("vista", "best", "paper's gain"): False,
    ("vista", "last", "paper's gain"): True,
    ("vista-light", "best", "vista"): False,
    ("vista-light", "last", "vista"): False,
    ("ps-kd-beta", "best", "vista"): True,
    ("ps-kd-beta", "last", "vista"): True,
    ("vista-uniform", "best", "vista"): False,
    ("vista-uniform", "last", "vista"): True,
}


@pytest.mark.parametrize("what", BEYOND, ids=" ".join)
def test_a_reported_difference_exceeds_two_standard_errors(
    what: tuple[str, str, str], ledger: list[dict[str, Any]]
) -> None:
    method, which, other = what
    runs = of_seeds(ledger, method)
    theirs, plain = TABLE1.get(method, TABLE1["ce"])[AT_40], TABLE1["ce"][AT_40]
    assert theirs
    assert plain
    if other == "paper":
        ours, against = [result(run, which) for run in runs.values()], theirs
    elif other == "paper's gain":
        ours = gains(runs, of_seeds(ledger, "ce"), which)
        against = (theirs[0] - plain[0], math.hypot(theirs[1], plain[1]))
    else:
        ours, against = gains(runs, of_seeds(ledger, other), which), (0.0, 0.0)
    mean, error = over_seeds(ours)
    assert (abs(mean - against[0]) > 2 * math.hypot(error, against[1])) == BEYOND[what]


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "index.md"], ids=lambda path: path.name)
def test_the_headline_table_matches_the_ledger(page: Path, ledger: list[dict[str, Any]]) -> None:
    for method, name in HEADLINE.items():
        assert headline(name, of_seeds(ledger, method)) in page.read_text()


def test_the_readme_quotes_the_papers_numbers_in_row_order() -> None:
    papers = [f"{TABLE1[method][AT_40][0]:.2f}" for method in HEADLINE if method in TABLE1]  # type: ignore[index]
    said = " ".join((ROOT / "README.md").read_text().split())
    assert f"the paper has {', '.join(papers[:-1])} and {papers[-1]} in the order of these rows" in said


@pytest.mark.parametrize("setting", ["CIFAR-100N, 40 % human", "asymmetric 40 %", "clean"])
def test_the_readme_quotes_the_results_on_other_labels(setting: str, ledger: list[dict[str, Any]]) -> None:
    ours = {method: of_seeds(ledger, method, setting) for method in ("ce", "vista")}
    assert [list(runs) for runs in ours.values()] == [[0], [0]]
    both = [" and ".join(f"{result(runs[0], which):.2f}" for which in WHICH) for runs in ours.values()]
    theirs = " and ".join(f"{TABLE1[method][list(SETTINGS).index(setting)][0]:.2f}" for method in ours)  # type: ignore[index]
    said = " ".join((ROOT / "README.md").read_text().split())
    assert f"cross-entropy has {both[0]}, VISTA {both[1]} (one seed each); the paper has {theirs}." in said


def test_every_number_is_measured_or_the_papers_or_a_difference(ledger: list[dict[str, Any]]) -> None:
    figures: set[float] = {10.60, 2.97, functional.beta(160, 200)}
    for numbers in filter(None, ABLATIONS.values()):
        figures |= {*numbers[0], ABLATIONS["vista"][0][0] - numbers[0][0]}  # type: ignore[index]
    figures |= {figure for number in SCHEDULES.values() if number for figure in number}
    figures |= {ERRORS["ce"][0], ERRORS["vista"][0]}  # type: ignore[index]
    figures |= {100 - number[0] for number in TABLE1["ce"] if number}
    for run, which in product(ledger, WHICH):
        alike = [other for other in ledger if other["data"]["split_hash"] == run["data"]["split_hash"]]
        figures |= {result(run, which), *(result(run, which) - result(other, which) for other in alike)}
        figures |= {100 * gap for gap in run["metrics"]["deviation_gap"].values()}
        figures |= {100 * epoch["test_accuracy"] for epoch in run["epochs"]}
        figures |= {100 - result(run, which), 100 * (run["epochs"][159]["test_accuracy"]) - result(run, which)}
        figures |= {100 * run["metrics"][which]["test"][name] for name in ("ece", "aurc")}
        if alone := run["metrics"].get("network"):  # a second plain run of the same seed
            plain = result({"metrics": alone}, which)
            figures |= {plain, result(run, which) - plain, *(plain - number[0] for number in TABLE1["ce"] if number)}
            figures |= {100 - plain, *(100 * alone[which]["test"][name] for name in ("ece", "aurc"))}
        theirs = TABLE1.get(run["config"]["method"])
        figures |= {abs(result(run, which) - number[0]) for number in theirs if number} if theirs else set()
    for place, setting in enumerate(SETTINGS):
        figures |= figures_of(ledger, setting, {method: TABLE1[method][place] for method in TABLE1})
    written = re.findall(r"(?<![\d.])\d+\.\d\d(?!\d)", re.sub(r"τ = 0\.01|\| 0\.0\d \|", "", PAGE))
    assert written
    assert [number for number in written if number not in {f"{abs(figure):.2f}" for figure in figures}] == []


def figures_of(ledger: list[dict[str, Any]], setting: str, papers: dict[str, tuple[float, float] | None]) -> set[float]:
    """The numbers of one setting: means, errors, gains, and differences from the paper."""
    paper = {method: number for method, number in papers.items() if number}
    figures = {figure for number in paper.values() for figure in number}
    figures |= {number[0] - paper["ce"][0] for number in paper.values()}
    cells = [runs for method in FROZEN if (runs := of_seeds(ledger, method, setting))]
    for runs, which in product(cells, WHICH):
        mean, *error = over_seeds([result(run, which) for run in runs.values()])
        figures |= {mean, *error, *(mean - theirs[0] for theirs in paper.values())}
        for part in ("val_given", "val_true", "test"):
            figures |= {*over_seeds([100 * run["metrics"]["deviation_gap"][part] for run in runs.values()])}
        for other in cells:
            figures |= {*over_seeds(gains(runs, other, which))} if runs.keys() & other.keys() else set()
        if runs.keys() & cells[0].keys():
            gain, *_ = over_seeds(gains(runs, cells[0], which))
            figures |= {gain - theirs[0] + paper["ce"][0] for theirs in paper.values()}
    return figures
