"""Which runs a table wants, which of them the ledger has, and how long the others take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_records import fake

from vista.cli import main
from vista.reproduce import ledger, protocol, runs, study
from vista.training.resolve import identity

REPOSITORY = Path(__file__).parents[3]


def test_finished_runs_are_found_and_only_the_rest_is_wanted(tmp_path: Path) -> None:
    fake(tmp_path, "ce", protocol.symmetric(40), 0, 59.0, 55.0)
    wanted = runs.wanted([study("ablations")], ledger.read(tmp_path), seeds=1, only=["symmetric 40"])
    missing = [run.config.method for run in wanted if run.record is None]
    assert "ce" in [run.config.method for run in wanted if run.record is not None]
    assert "vista" in missing
    with pytest.raises(ValueError, match="only is 'xyz'"):
        runs.wanted([study("ablations")], [], only=["xyz"])


def test_several_tables_share_their_runs_and_any_part_of_a_name_will_do() -> None:
    tables = [study("calibration"), study("recording")]
    wanted = runs.wanted(tables, [], only=["60 %", "tau=0.002:record=eval"])
    assert [(run.cell.setting, run.cell.method) for run in wanted] == [
        ("symmetric 60 %, validation 10 %", "ce"),
        ("symmetric 60 %, validation 2 %", "ce"),
        ("symmetric 40 %, validation 10 %", "vista:tau=0.002:record=eval"),
    ]
    both = [identity(run.config) for run in runs.wanted([study("table1"), study("calibration")], [])]
    assert len(both) == len(set(both)), "what two tables share is run once"
    assert {run.config.seed for run in runs.wanted([study("table1")], [])} == {0, 1, 2}, "three as in the paper"
    seeds = [run.config.seed for run in runs.wanted([study("table1"), study("calibration")], [], only=["validation"])]
    assert set(seeds) == {0}, "a table keeps its own number of seeds beside one that has more"


def test_a_plain_run_that_comes_with_another_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def states(*words: str) -> dict[str, str]:
        argv = ["reproduce", "controls", "--seeds", "1", "--dry-run", "--json", "--results", str(tmp_path), *words]
        assert main(argv) == 0
        return {run["method"]: run["state"] for run in json.loads(capsys.readouterr().out)["runs"]}

    both = states("--only", "ce", "kf", "sat")
    assert both == {"ce": "with kf", "sat": "to be run", "kf": "to be run"}
    assert states("--only", "ce", "sat") == {"ce": "to be run", "sat": "to be run"}
    assert states("--at-most", "1", "--only", "ce", "kf", "sat") == {"ce": "with kf", "sat": "to be run"}
    wanted = runs.wanted([study("controls")], [], seeds=2, only=["ce", "kf"])
    assert [(run.config.seed, run.cell.method, run.is_missing) for run in wanted] == [
        (0, "ce", False), (0, "kf", True), (1, "ce", False), (1, "kf", True),
    ]  # fmt: skip
    fake(tmp_path, "kf", protocol.symmetric(40), 0, 67.0, 67.0)
    older = states("--only", "ce", "kf")
    assert older == {"ce": "to be run", "kf": "in the ledger"}, "a record without the network's numbers stands for kf"
    assert runs.is_drawn(protocol.configuration("kf", protocol.symmetric(40), 0)) == runs.is_drawn(
        protocol.configuration("ce", protocol.symmetric(40), 0)
    ), "a figure of plain training can be drawn from it"


def test_a_plan_asks_each_run_once_what_comes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(runs, "plain_of", lambda config: asked.append(identity(config)))
    wanted = runs.wanted([study("controls")], [], seeds=1)
    assert asked == [identity(run.config) for run in wanted], "not each one by each other: a plan has hundreds of runs"


def test_a_table_asked_for_more_seeds_than_its_own_gets_them() -> None:
    assert study("lifespan").seeds == 1
    wanted = runs.wanted([study("lifespan")], [], seeds=2, only=["ce"])
    assert [run.config.seed for run in wanted] == [0, 1]


def test_a_note_is_a_part_of_a_name_and_a_part_is_no_pattern() -> None:
    noted = runs.wanted([study("cutmix")], [], only=["cutmix"])
    assert {run.cell.note for run in noted} == {"CutMix"}
    for part in ("symmetric .0", "("):
        with pytest.raises(ValueError, match="but no setting or method asked for has that in its name"):
            runs.wanted([study("cutmix")], [], only=[part])


def test_symmetric_is_not_asymmetric() -> None:
    settings = {run.cell.setting for run in runs.wanted([study("table1")], [], only=["symmetric 40"])}
    assert settings == {"symmetric 40 %"}
    settings = {run.cell.setting for run in runs.wanted([study("table1")], [], only=["Human", "asym"])}
    assert settings == {"CIFAR-100N, 40 % human", "asymmetric 20 %", "asymmetric 40 %"}


def test_a_figure_wants_a_run_without_trajectory_again(tmp_path: Path) -> None:
    path = fake(tmp_path, "ce", protocol.symmetric(40), 0, 59.0, 55.0)

    def is_wanted(*tables: str) -> bool:
        (run,) = runs.wanted([study(name) for name in tables], ledger.read(tmp_path), 1, ["symmetric 40 % ce"])
        return run.record is None

    assert not is_wanted("table1")
    assert is_wanted("lifespan")
    assert is_wanted("table1", "lifespan")
    fake(tmp_path, "ce", protocol.symmetric(40), 1, 59.0, 55.0)

    def are_missing() -> list[bool]:
        two = runs.wanted([study("lifespan")], ledger.read(tmp_path), 2, ["symmetric 40 % ce"])
        return [run.is_missing for run in two]

    assert are_missing() == [True, False], "a figure is drawn from one seed"
    path.with_suffix(".safetensors").touch()
    assert not is_wanted("table1", "lifespan")
    assert are_missing() == [False, False]


@pytest.mark.parametrize("tables", [("table1", "lifespan"), ("lifespan", "table1")], ids=" ".join)
def test_a_run_that_one_table_has_and_a_figure_lacks_is_made(tmp_path: Path, tables: tuple[str, str]) -> None:
    fake(tmp_path, "ce", protocol.symmetric(40), 0, 59.0, 55.0)
    (run,) = runs.wanted([study(name) for name in tables], ledger.read(tmp_path), 1, ["symmetric 40 % ce"])
    assert run.is_missing


def test_hours_count_what_a_methods_step_costs() -> None:
    measured = json.loads((REPOSITORY / "results" / "methods-h200.json").read_text())["result"]
    ratios = {name: row["ratio"] for name, row in measured.items()}
    assert {name for name, ratio in ratios.items() if ratio > 1.2} == set(runs.SLOWER_STEP)
    for name, ratio in runs.SLOWER_STEP.items():
        assert ratio == pytest.approx(ratios[name], rel=0.05)
    methods = ("ce", "frskd", "ban", "ban:generations=3", "tf-kd", "tf-kd-self")
    hours = {method: runs.estimated_hours(protocol.configuration(method, {}, 0)) for method in methods}
    times = {method: hours[method] / hours["ce"] for method in methods}
    assert times == pytest.approx({"ce": 1, "frskd": 5.3, "ban": 1.4 + 1, "ban:generations=3": 3 * 1.4 + 1, "tf-kd": 1,
                                   "tf-kd-self": 1.4 + 1}), "a teacher is a run of its own"  # fmt: skip


def test_hours_count_the_pictures_the_batches_and_the_network() -> None:
    def hours(**changes: Any) -> float:
        return runs.estimated_hours(protocol.configuration("ce", changes, 0))

    noisy = hours(noise="symmetric:0.4")
    assert noisy == pytest.approx(200 * 0.98 * 50_000 / runs.IMAGES_PER_SECOND / 60 / 60)
    assert hours() == pytest.approx(2 * noisy), "clean labels have batches of 32, not 64"
    assert hours(noise="symmetric:0.4", batch_size=256) == pytest.approx(noisy), "larger ones help little"
    assert hours(data="tinyimagenet") == pytest.approx(8 * hours()), "twice the pictures, four times their pixels"
    assert hours(network="resnet101") == pytest.approx(4.5 * hours())
