"""The results of the search: which runs it takes, the criterion, and what it says of one seed and of several."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_records import fake

from vista.reproduce import ledger, load_study, plan, protocol, results_page, search_page
from vista.reproduce.studies import recipe
from vista.training.resolve import identity

SYMMETRIC, ASYMMETRIC, SMALL = recipe.TUNING


def add(
    results: Path, method: str, schedule: str, seed: int, average: float, plain: float, setting: str = SYMMETRIC
) -> Path:
    """A run of the screening whose last five epochs have these accuracies on the validation labels, in percent."""
    cell = recipe.search_cell(setting, method, schedule)
    path = fake(results, cell.method, cell.changes, seed, best=99.0, last=70.0)
    record = json.loads(path.read_text())
    record["metrics"]["last"]["calibrated"] = {"test": {"ece": 0.025}}
    far = {"val_accuracy": 0.0, "plain_val_accuracy": 0.0}
    near = [
        {"val_accuracy": (average + step) / 100, "plain_val_accuracy": (plain + step) / 100} for step in range(-2, 3)
    ]
    tests = {"test_accuracy": 0.7, "plain_test_accuracy": 0.6}
    record["epochs"] = [{"epoch": number, **line, **tests} for number, line in enumerate([far, *near], 1)]
    path.write_text(json.dumps(record))
    return path


def lines(results: Path) -> list[list[str]]:
    """Cells of all table rows of the page."""
    text = search_page.render(ledger.read(results))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]


def test_runs_of_the_screening_are_those_of_the_plan() -> None:
    runs = plan.plan_runs([load_study("recipe-search")], [])
    assert len(runs) == 3 * 8 * 3 * 3
    assert {run.config.seed for run in runs} == {10, 11, 12}
    made = {"epochs": 50, "validation": 0.1, "restart_epochs": 10, "ema": 0.999, "noise": "asymmetric:0.4"}
    config = protocol.make_config("posterior-newest", {**made, "lr_schedule": "hold"}, 11)
    assert identity(config) in {identity(run.config) for run in runs}
    (one,) = plan.plan_runs([load_study("recipe-search")], [], only=[["symmetric 40 %, hold", "elr", "seed 12"]])
    assert (one.config.lr_schedule, one.config.noise, one.config.seed) == ("hold", "symmetric:0.4", 12)


def test_small_data_run_as_the_plan_says() -> None:
    (run,) = plan.plan_runs([load_study("recipe-search")], [], only=[["small data", "restarts", "elr", "seed 10"]])
    made = run.config
    assert (made.data, made.network, made.noise) == ("cifar100-small", "small-cnn", "symmetric:0.15")
    assert (made.epochs, made.batch_size, made.lr, made.validation, made.ema) == (40, 32, 0.05, 0.1, 0.999)
    assert (made.lr_schedule, made.restart_epochs, made.precision) == ("restarts", 8, "fp32")


def test_additions_are_rows_of_the_same_page(tmp_path: Path) -> None:
    add(tmp_path, "ce", "cosine", 10, average=40.0, plain=38.0)
    for method in recipe.ADDITIONS:
        add(tmp_path, method, "cosine", 10, average=41.0, plain=38.0)
    assert {row[1] for row in lines(tmp_path) if row[0] == SYMMETRIC} == {
        f"`{method}`" for method in ("ce", *recipe.ADDITIONS)
    }
    text = search_page.render(ledger.read(tmp_path))
    assert f"1 of 216 runs of the screening are in the ledger, and {len(recipe.ADDITIONS)} with additions." in text
    runs = plan.plan_runs(
        [load_study("recipe-additions")], [], only=[["small data", "cosine", "posterior:temperature=0.5"]]
    )
    assert [(run.config.options["temperature"], run.config.seed) for run in runs] == [(0.5, 10), (0.5, 11), (0.5, 12)]


def test_small_data_of_ten_classes_are_not_to_keep_ten_probabilities() -> None:
    settings = [cell.setting for cell in load_study("recipe-additions").cells if "topk=10" in cell.method]
    assert settings
    assert not any(setting.startswith(SMALL) for setting in settings)


def test_a_run_gives_a_row_for_the_average_and_one_for_the_plain_weights(tmp_path: Path) -> None:
    add(tmp_path, "ce", "cosine", 10, average=40.0, plain=38.0)
    add(tmp_path, "elr", "hold", 10, average=44.0, plain=43.0)
    shown = [row for row in lines(tmp_path) if row[0] == SYMMETRIC]
    assert shown == [
        [SYMMETRIC, "`ce`", "`cosine`", "average", "1", "40.00", "reference", "70.00", "10.00", "2.50"],
        [SYMMETRIC, "`ce`", "`cosine`", "plain", "1", "38.00", "-2.00", "60.00", "", ""],
        [SYMMETRIC, "`elr`", "`hold`", "average", "1", "44.00", "+4.00", "70.00", "10.00", "2.50"],
        [SYMMETRIC, "`elr`", "`hold`", "plain", "1", "43.00", "+3.00", "60.00", "", ""],
    ]
    text = search_page.render(ledger.read(tmp_path))
    assert text.startswith("Whether past states are useful without restarts is open: the runs to be compared")
    assert "2 of 216 runs of the screening" in text
    assert "by the rule of the plan none of their differences counts" in text
    assert ["`elr`", "`hold`", "average", "+4.00", "+4.00", "one seed"] in lines(tmp_path)


def test_differences_are_paired_and_compared_with_their_standard_error(tmp_path: Path) -> None:
    for seed, level in ((10, 40.0), (11, 41.0), (12, 42.0)):
        add(tmp_path, "ce", "restarts", seed, level - 1, level - 5)
        add(tmp_path, "ce", "cosine", seed, level - 2, level)
        add(tmp_path, "vista-light", "cosine", seed, level + 3, level + 2)
        add(tmp_path, "ps-kd-beta", "cosine", seed, level + 3, level + 2)
        add(tmp_path, "sat", "cosine", seed, level - 3, level - 3 - (seed == 12))
        add(tmp_path, "elr", "cosine", seed, level + (seed == 11), level)
    text, shown = search_page.render(ledger.read(tmp_path)), lines(tmp_path)
    assert "The reference is cross-entropy at its best, over schedules and weights" in text
    assert "`ce`, `cosine`, plain weights (41.00 ± 0.58)" in text
    cells = {(row[1], row[2], row[3]): row[6] for row in shown if row[0] == SYMMETRIC}
    assert cells["`vista-light`", "`cosine`", "average"] == "**+3.00 ± 0.00**"
    assert cells["`elr`", "`cosine`", "average"] == "+0.33 ± 0.33", "within two standard errors"
    assert cells["`sat`", "`cosine`", "plain"] == "**-3.33 ± 0.33**"
    assert text.startswith("**Without restarts, the last state alone equals coverage")
    verdicts = {row[0]: row[-1] for row in shown if len(row) == 6}
    assert verdicts["`vista-light`"] == "better"
    assert verdicts["`elr`"] == "no difference that counts"
    assert verdicts["`sat`"].startswith("dropped")

    for seed, level in ((10, 40.0), (11, 41.0), (12, 42.0)):
        add(tmp_path, "vista-light", "hold", seed, level + 3, level + 2)
        add(tmp_path, "ps-kd-beta", "hold", seed, level + 1, level + 2 + 0.1 * seed)
    text = search_page.render(ledger.read(tmp_path))
    assert text.startswith("**Without restarts, coverage is better than the last state alone in 1 of 4 comparisons and")


def test_a_method_is_ranked_only_where_it_has_a_run_in_every_setting(tmp_path: Path) -> None:
    for setting in recipe.TUNING:
        add(tmp_path, "ce", "cosine", 10, 40.0, 39.0, setting)
        add(tmp_path, "posterior", "cosine", 10, 41.0 + 4 * (setting == ASYMMETRIC), 39.0, setting)
    add(tmp_path, "posterior", "hold", 10, 60.0, 59.0)
    (row,) = [row for row in lines(tmp_path) if row[0] == "`posterior`"]
    assert row == ["`posterior`", "`cosine`", "average", "+1.00", "+5.00", "+1.00", "+2.33", "one seed"]


def test_other_seeds_and_protocols_are_not_mixed_in(tmp_path: Path) -> None:
    search = add(tmp_path, "ce", "restarts", 10, 40.0, 39.0)
    fake(tmp_path, "ce", protocol.symmetric(40), 10, 59.0, 55.0)
    assert len(search_page.rows_of(ledger.read(tmp_path))) == 2
    outside = add(tmp_path, "ce", "restarts", 0, 40.0, 39.0)
    assert [row.criterion for row in search_page.rows_of(ledger.read(tmp_path))] == [
        {10: pytest.approx(40.0)},
        {10: 39.0},
    ]
    outside.unlink()

    page = results_page.render(tmp_path)
    assert "1 of 72 settings have been run.\n\nThe results are in [docs/recipe.md](docs/recipe.md)." in page
    assert "Runs under another protocol" not in page, "the run belongs to the search"
    rows = [line for line in page.splitlines() if line.startswith("| symmetric 40 % | ce | test accuracy")]
    assert rows, "the run under the frozen protocol is shown"
    assert all("| 1 | 55.00 | 59.00 |" in line for line in rows), "alone"
    assert search.exists()


def test_an_empty_ledger_and_labels_without_a_fit(tmp_path: Path) -> None:
    assert search_page.render([]) == "No run of the search is in the ledger yet.\n"
    path = add(tmp_path, "ce", "cosine", 10, 40.0, 39.0)
    record = json.loads(path.read_text())
    record["metrics"]["last"]["calibrated"] = None
    path.write_text(json.dumps(record))
    assert lines(tmp_path)[-2][-2:] == ["10.00", ""]


def test_a_run_calibrated_for_symmetric_noise_alone_is_marked(tmp_path: Path) -> None:
    path = add(tmp_path, "ce", "cosine", 10, 40.0, 39.0)
    record = json.loads(path.read_text())
    for fit, shown in (({"temperature": 2.0}, "2.50 *"), ({"temperature": 2.0, "noise": "structured"}, "2.50")):
        record["metrics"]["calibration"] = {"last": fit}
        path.write_text(json.dumps(record))
        assert [row[-1] for row in lines(tmp_path) if row[0] == SYMMETRIC] == [shown, ""]
        assert ("Runs marked *" in search_page.render(ledger.read(tmp_path))) == ("*" in shown)


def test_nothing_is_frozen_before_the_search_has_ended() -> None:
    study = load_study("recipe")
    assert {cell.method for cell in study.cells} >= set(recipe.CONTROLS)
    assert not {cell.config(seed).seed for cell in study.cells for seed in range(study.seeds)} & {10, 11, 12}
    tuned = {cell.method for cell in study.cells if cell.note}
    assert tuned == set(recipe.FROZEN)
