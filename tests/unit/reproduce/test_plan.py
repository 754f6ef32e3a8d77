"""The plan of a table: its runs, selection by ``--only``, what the ledger has, and estimated hours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_records import fake

from vista.cli import main
from vista.reproduce import ledger, load_study, plan, protocol, study_names
from vista.training.resolve import identity

REPOSITORY = Path(__file__).parents[3]


def test_only_runs_that_the_ledger_lacks_are_missing(tmp_path: Path) -> None:
    fake(tmp_path, "ce", protocol.symmetric(40), 0, 59.0, 55.0)
    wanted = plan.plan_runs([load_study("ablations")], ledger.read(tmp_path), seeds=1, only=[["symmetric 40"]])
    missing = [run.config.method for run in wanted if run.record is None]
    assert "ce" in [run.config.method for run in wanted if run.record is not None]
    assert "vista" in missing
    with pytest.raises(ValueError, match="only must match a run, got 'xyz' 'ce' or 'abc'"):
        plan.plan_runs([load_study("ablations")], [], only=[["xyz", "ce"], ["abc"]])


def test_several_tables_share_their_runs() -> None:
    tables = [load_study("calibration"), load_study("recording")]
    wanted = plan.plan_runs(tables, [], only=[["60 %"], ["vista:tau=0.002:record=eval"]])
    assert [(run.cell.setting, run.cell.method) for run in wanted] == [
        ("symmetric 60 %, validation 10 %", "ce"),
        ("symmetric 60 %, validation 2 %", "ce"),
        ("symmetric 40 %, validation 10 %", "vista:tau=0.002:record=eval"),
    ]
    both = [identity(run.config) for run in plan.plan_runs([load_study("table1"), load_study("calibration")], [])]
    assert len(both) == len(set(both)), "a run that two tables share is planned once"
    assert {run.config.seed for run in plan.plan_runs([load_study("table1")], [])} == {0, 1, 2}, "three as in the paper"
    seeds = [
        run.config.seed
        for run in plan.plan_runs([load_study("table1"), load_study("calibration")], [], only=[["validation"]])
    ]
    assert set(seeds) == {0}, "each table keeps its own number of seeds"


def test_a_plain_run_inside_another_run_is_not_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def states(*words: str) -> dict[str, str]:
        argv = ["reproduce", "controls", "--seeds", "1", "--dry-run", "--json", "--results", str(tmp_path), *words]
        assert main(argv) == 0
        return {run["method"]: run["state"] for run in json.loads(capsys.readouterr().out)["runs"]}

    three = ("--only", "ce", "--only", "kf", "--only", "sat")
    both = states(*three)
    assert both == {"ce": "with kf", "sat": "to be run", "kf": "to be run"}
    assert states("--only", "ce", "--only", "sat") == {"ce": "to be run", "sat": "to be run"}
    assert states("--at-most", "1", *three) == {
        "ce": "with kf",
        "sat": "to be run",
    }
    wanted = plan.plan_runs([load_study("controls")], [], seeds=2, only=[["ce"], ["kf"]])
    assert [(run.config.seed, run.cell.method, run.is_missing) for run in wanted] == [
        (0, "ce", False), (0, "kf", True), (1, "ce", False), (1, "kf", True),
    ]  # fmt: skip
    fake(tmp_path, "kf", protocol.symmetric(40), 0, 67.0, 67.0)
    older = states("--only", "ce", "--only", "kf")
    assert older == {"ce": "to be run", "kf": "in the ledger"}, "it lacks the network's numbers"
    assert plan.needs_trajectory(protocol.make_config("kf", protocol.symmetric(40), 0)) == plan.needs_trajectory(
        protocol.make_config("ce", protocol.symmetric(40), 0)
    ), "a figure of plain training can be drawn from its trajectory"


def test_a_plan_computes_the_plain_run_of_each_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(plan, "plain_config", lambda config: asked.append(identity(config)))
    wanted = plan.plan_runs([load_study("controls")], [], seeds=1)
    assert asked == [identity(run.config) for run in wanted], "not once per pair: a plan has hundreds of runs"


def test_more_seeds_than_the_table_has_can_be_requested() -> None:
    assert load_study("lifespan").seeds == 1
    wanted = plan.plan_runs([load_study("lifespan")], [], seeds=2, only=[["ce"]])
    assert [run.config.seed for run in wanted] == [0, 1]


def test_notes_belong_to_the_name_and_terms_are_not_patterns() -> None:
    noted = plan.plan_runs([load_study("cutmix")], [], only=[["cutmix"]])
    assert {run.cell.note for run in noted} == {"CutMix"}
    for part in ("symmetric .0", "["):
        with pytest.raises(ValueError, match="only must match a run"):
            plan.plan_runs([load_study("cutmix")], [], only=[[part]])


def names(*only: list[str], tables: tuple[str, ...] = ("table1",), seeds: int | None = None) -> list[str]:
    """Names of the selected runs."""
    runs = plan.plan_runs([load_study(name) for name in tables], [], seeds, only)
    return [run.cell.run_name(run.config.seed) for run in runs]


def test_symmetric_is_not_asymmetric() -> None:
    assert {name.split(", ")[0] for name in names(["symmetric 40"])} == {"symmetric 40 %"}
    settings = {name.rsplit(", ", 2)[0] for name in names(["Human"], ["asym"])}
    assert settings == {"CIFAR-100N, 40 % human", "asymmetric 20 %", "asymmetric 40 %"}


def test_all_terms_together_select_a_single_run() -> None:
    assert names(["symmetric 40", "vista-light", "seed 1"]) == ["symmetric 40 %, vista-light, seed 1"]
    assert names(["Seed 2", "VISTA", "asymmetric 20"]) == ["asymmetric 20 %, vista, seed 2"], "not vista-light"
    assert names(["symmetric 40", "ce", "seed 0"], ["clean", "kf", "seed 1"]) == [
        "symmetric 40 %, ce, seed 0",
        "clean, kf, seed 1",
    ], "repeated flags are alternatives"


def test_every_run_of_every_table_can_be_selected_alone() -> None:
    for table in study_names():
        for name in set(names(tables=(table,), seeds=1)):
            assert names([name], tables=(table,), seeds=1) == [name]


def test_a_term_does_not_cut_a_number_short() -> None:
    assert names(["seed 1", "clean", "ce"], seeds=12) == ["clean, ce, seed 1"]
    with pytest.raises(ValueError, match="only must match a run, got 'symmetric 4'"):
        names(["symmetric 4"])


def test_a_figure_repeats_a_run_without_trajectory(tmp_path: Path) -> None:
    path = fake(tmp_path, "ce", protocol.symmetric(40), 0, 59.0, 55.0)

    def is_planned(*tables: str) -> bool:
        (run,) = plan.plan_runs(
            [load_study(name) for name in tables], ledger.read(tmp_path), 1, [["symmetric 40 %", "ce"]]
        )
        return run.record is None

    assert not is_planned("table1")
    assert is_planned("lifespan")
    assert is_planned("table1", "lifespan")
    fake(tmp_path, "ce", protocol.symmetric(40), 1, 59.0, 55.0)

    def are_missing() -> list[bool]:
        two = plan.plan_runs([load_study("lifespan")], ledger.read(tmp_path), 2, [["symmetric 40 %", "ce"]])
        return [run.is_missing for run in two]

    assert are_missing() == [True, False], "a figure is drawn from one seed"
    path.with_suffix(".safetensors").touch()
    assert not is_planned("table1", "lifespan")
    assert are_missing() == [False, False]


@pytest.mark.parametrize("tables", [("table1", "lifespan"), ("lifespan", "table1")], ids=" ".join)
def test_a_run_without_the_trajectory_of_a_figure_is_missing(tmp_path: Path, tables: tuple[str, str]) -> None:
    fake(tmp_path, "ce", protocol.symmetric(40), 0, 59.0, 55.0)
    (run,) = plan.plan_runs([load_study(name) for name in tables], ledger.read(tmp_path), 1, [["symmetric 40 %", "ce"]])
    assert run.is_missing


def test_hours_include_the_step_time_of_the_method() -> None:
    measured = json.loads((REPOSITORY / "results" / "methods-h200.json").read_text())["result"]
    ratios = {name: row["ratio"] for name, row in measured.items()}
    assert {name for name, ratio in ratios.items() if ratio > 1.2} == set(plan.SLOWER_STEP)
    for name, ratio in plan.SLOWER_STEP.items():
        assert ratio == pytest.approx(ratios[name], rel=0.05)
    methods = ("ce", "frskd", "ban", "ban:generations=3", "tf-kd", "tf-kd-self")
    hours = {method: plan.estimate_hours(protocol.make_config(method, {}, 0)) for method in methods}
    times = {method: hours[method] / hours["ce"] for method in methods}
    assert times == pytest.approx({"ce": 1, "frskd": 5.3, "ban": 1.4 + 1, "ban:generations=3": 3 * 1.4 + 1, "tf-kd": 1,
                                   "tf-kd-self": 1.4 + 1}), "a teacher needs a run too"  # fmt: skip


def test_hours_include_images_batch_size_and_network() -> None:
    def hours(**changes: Any) -> float:
        return plan.estimate_hours(protocol.make_config("ce", changes, 0))

    noisy = hours(noise="symmetric:0.4")
    assert noisy == pytest.approx(200 * 0.98 * 50_000 / plan.IMAGES_PER_SECOND / 60 / 60)
    assert hours() == pytest.approx(2 * noisy), "clean labels have batches of 32, not 64"
    assert hours(noise="symmetric:0.4", batch_size=256) == pytest.approx(noisy), "larger batches gain little"
    assert hours(data="tinyimagenet") == pytest.approx(8 * hours()), "twice the images, four times the pixels"
    assert hours(data="digits", validation=270) < 0.01, "validation may be a number of samples"
    assert hours(network="resnet101") == pytest.approx(4.5 * hours())
