"""``vista reproduce``: runs, records, output and errors."""

from __future__ import annotations

import json
import re
import shutil
import signal
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_records import fake
from made_runs import write_run

from vista.cli import main
from vista.reproduce import ledger, load_study, plan, protocol, study_names
from vista.reproduce.grid import Cell
from vista.runs.config import TrainConfig, preset
from vista.runs.folder import RunFolder
from vista.training.events import Interrupted
from vista.training.resolve import identity
from vista.training.scheduler import Job


def test_a_finished_run_is_added_while_others_still_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**preset("digits"), "epochs": 2}
    config = TrainConfig(data="digits", noise="symmetric:0.4", network="tiny-staged", **settings)
    first, second = (replace(config, method="ce", options={}, seed=seed) for seed in (0, 1))
    wanted = [plan.PlannedRun(Cell("symmetric 40 %", "ce", {}), each, None) for each in (first, second)]
    monkeypatch.setattr(plan, "plan_runs", lambda *_: wanted)
    kept, add = [], ledger.add

    def added(folder: RunFolder, *rest: Any, **more: Any) -> Path:
        kept.append((folder.config().seed, plan.run_path(second, tmp_path / "runs").joinpath("metrics.json").exists()))
        return add(folder, *rest, **more)

    monkeypatch.setattr(ledger, "add", added)
    argv = ["reproduce", "calibration", "--results", str(tmp_path), "--out", str(tmp_path / "runs"), "--at-once", "1"]
    assert main([*argv, "--device", "cpu", "--quiet"]) == 0
    assert kept == [(0, False), (1, True)]
    assert len(ledger.read(tmp_path)) == 2


def test_a_plan_without_missing_runs_shows_no_hours(capsys: pytest.CaptureFixture[str]) -> None:
    results = Path(__file__).parents[3] / "results"
    assert main(["reproduce", "beta", "--seeds", "1", "--dry-run", "--results", str(results)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Every run is in the ledger" in said
    assert "hours on one" not in said
    assert "to be run" not in said


@pytest.mark.parametrize("name", ["beta", "table6"])
def test_a_plan_fits_80_columns_and_ends_with_the_next_command(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["reproduce", name, "--seeds", "1", "--dry-run", "--results", str(tmp_path)]) == 0
    *lines, following = capsys.readouterr().out.splitlines()
    assert following == f"Next: vista reproduce {name} --seeds 1 --results {tmp_path}"
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)


def test_the_list_of_tables_separates_names_from_titles(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce"]) == 0
    *lines, following = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == study_names()
    assert following == "Next: vista reproduce NAME --dry-run"


def test_commands_that_run_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce"]) == 0
    assert "table1" in capsys.readouterr().out
    assert main(["reproduce", "table2", "--dry-run", "--results", str(tmp_path)]) == 0
    assert "hours on one H200" in " ".join(capsys.readouterr().out.split())
    assert main(["reproduce", "tabel1"]) == 2
    assert main(["reproduce", "--add", str(tmp_path)]) == 2
    assert "contains no run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table1", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (["table1", "--at-most", "0"], "at_most must be at least 1, got 0"),
        (["table1", "--at-once", "-3"], "at_once must be at least 1, got -3"),
        (["table1", "--table"], "--table runs nothing and takes no name, got 'table1'"),
        (["--add", ".", "table1"], "--add runs nothing and takes no name, got 'table1'"),
        (["--add", ".", "--table"], "--add and --table cannot be combined"),
        (["--restore", "a.json", "--table"], "--restore and --table cannot be combined"),
        (["--add", ".", "--dry-run"], "--add and --dry-run cannot be combined"),
        (["--only", "ce"], "--only needs the name of a table or figure: ablations"),
        (["--table", "--results", "/dev/null"], "/dev/null does not exist"),
        (["--dry-run"], "--dry-run needs the name of a table or figure: ablations"),
        (["--table", "--results", "nowhere"], "nowhere does not exist; --results must name the folder of the ledger"),
    ],
)
def test_invalid_flags_are_rejected(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *words]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_ledger_is_rejected_before_the_first_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").touch()
    argv = ["reproduce", "beta", "--results", str(tmp_path), "--out", str(tmp_path / "out"), "--device", "cpu"]
    assert main(argv) == 2
    assert "results must be a writable folder" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_read_only_ledger_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(dir: Path | None = None) -> Any:
        assert dir == tmp_path / "results" / "runs"
        raise PermissionError("a read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", read_only)
    assert main(calibrating(tmp_path)) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"results must be a writable folder, got '{tmp_path / 'results'}': a read-only file system" in said
    assert not (tmp_path / "out").exists()


def test_answers_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def answer(*words: str) -> Any:
        assert main(["reproduce", *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert {"name": "beta", "title": load_study("beta").title} in answer()["tables"]
    fake(tmp_path / "results", "ce", protocol.symmetric(40), 0, 59.0, 55.0)
    plan = answer("cutmix", "--dry-run", "--only", "symmetric 40")
    assert [(run["method"], run["note"], run["state"]) for run in plan["runs"]] == [
        ("ce", "", "in the ledger"),
        ("ce", "CutMix", "to be run"),
        ("vista", "", "to be run"),
        ("vista", "CutMix", "to be run"),
    ]
    first = answer("cutmix", "--dry-run", "--only", "symmetric 40", "--at-most", "1")["runs"]
    assert [run["state"] for run in first] == ["in the ledger", "to be run"]
    assert plan["hours"] == pytest.approx(sum(run["hours"] for run in plan["runs"]))
    assert answer("--table") == {"written": "RESULTS.md"}
    there = answer("calibration", "--only", "40 %, validation 2 %")
    assert [Path(path).name[:23] for path in there["records"]] == ["cifar100-symmetric-0.4-"]
    assert there["failed"] == {}


@pytest.mark.parametrize("words", [[], ["calibration"], ["calibration", "--dry-run"]], ids=" ".join)
def test_only_the_first_of_several_processes_prints(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vista.cli.reproduce.execute", lambda *_, **__: None)
    monkeypatch.setenv("WORLD_SIZE", "2")
    answers = {}
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        assert main(["reproduce", *words, "--json", "--results", str(tmp_path)]) == 0
        answers[rank] = capsys.readouterr().out
    assert json.loads(answers["0"])
    assert answers["1"] == ""


def test_an_unfinished_run_is_skipped_with_a_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "a", finished=False)
    assert main(["reproduce", "--add", str(tmp_path), "--results", str(tmp_path / "results")]) == 0
    assert f"{tmp_path / 'a'} has not finished and was skipped; resume it with `vista resume" in capsys.readouterr().out
    assert ledger.read(tmp_path / "results") == []


def calibrating(tmp_path: Path, *words: str) -> list[str]:
    """The command for the two plain runs at 60 % noise."""
    places = ["--results", str(tmp_path / "results"), "--out", str(tmp_path / "out"), "--device", "cpu"]
    return ["reproduce", "calibration", "--only", "symmetric 60", *places, *words]


def calibrated(percent: int, validation: float, tmp_path: Path) -> Path:
    """The folder of one of these runs."""
    config = protocol.make_config("ce", protocol.symmetric(percent) | {"validation": validation}, 0)
    return tmp_path / "out" / f"ce-{identity(config)}"


def test_runs_that_fail_for_the_same_reason_share_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (calibrated(percent, 0.1, tmp_path) for percent in (40, 20, 60))

    def fail(jobs: list[Job], *_: Any, **__: Any) -> None:
        errors = {
            first: ValueError("no images"),
            second: RuntimeError("a lost GPU"),
            third: ValueError("no images"),
        }
        for job in jobs:
            job.error = errors.get(job.out)

    monkeypatch.setattr("vista.cli.reproduce.execute", fail)
    only = [f"symmetric {percent} %, validation 10 %, ce" for percent in (20, 40)]
    assert main(calibrating(tmp_path, "--only", only[0], "--only", only[1], "--json")) == 2, (
        "user errors take precedence"
    )
    said = capsys.readouterr()
    assert [line.removeprefix("vista: error: ") for line in said.err.splitlines()] == [
        f"{first.name} and 1 more runs: no images",
        f"{second.name}: a lost GPU",
    ]
    assert json.loads(said.out) == {
        "records": [],
        "failed": {first.name: "no images", second.name: "a lost GPU", third.name: "no images"},
    }


def test_an_interrupted_reproduction_resumes_with_the_same_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(jobs: list[Job], *_: Any, **__: Any) -> None:
        jobs[0].out.mkdir(parents=True)
        (jobs[0].out / "config.json").touch()
        raise Interrupted(jobs[0].out, signal.SIGTERM)

    monkeypatch.setattr("vista.cli.reproduce.execute", stop)
    assert main(calibrating(tmp_path)) == 128 + signal.SIGTERM
    assert "progress is saved. To resume: run the same command again" in " ".join(capsys.readouterr().err.split())


def test_a_run_that_stops_all_processes_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(jobs: list[Job], *_: Any, **__: Any) -> None:
        jobs[1].error = RuntimeError("a lost GPU")
        raise jobs[1].error

    monkeypatch.setattr("vista.cli.reproduce.execute", end)
    assert main(calibrating(tmp_path)) == 1
    name = calibrated(60, 0.02, tmp_path).name
    assert f"vista: error: {name}: a lost GPU" in capsys.readouterr().err


def test_missing_runs_use_the_flags_and_the_output_lists_all_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = fake(tmp_path / "results", "ce", protocol.symmetric(60), 0, 50.0, 49.0)
    asked: list[Any] = []

    def made(jobs: list[Job], _output: Any, at_once: int | None, finished: Callable[[Job], None], **_: Any) -> None:
        asked.extend((job.out, job.config.root, job.config.device) for job in jobs)
        asked.append(at_once)
        for job in jobs:
            write_run(job.out, seed=7)
            finished(job)

    monkeypatch.setattr("vista.cli.reproduce.execute", made)
    assert main(calibrating(tmp_path, "--root", "images", "--at-once", "3", "--json")) == 0
    assert asked == [(calibrated(60, 0.1, tmp_path), "images", "cpu"), 3]
    answer = json.loads(capsys.readouterr().out)
    assert answer["failed"] == {}
    assert [Path(path).exists() for path in answer["records"]] == [True, True]
    assert answer["records"][0] == str(there)


@pytest.mark.parametrize("by", ["running", "adding"])
def test_the_ledger_keeps_the_trajectories_that_figures_need(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(jobs: list[Job], *_: Any, finished: Callable[[Job], None], **__: Any) -> None:
        for job in jobs:
            run = write_run(job.out)
            (run / "config.json").write_text(json.dumps(job.config.to_json()))
            finished(job)

    monkeypatch.setattr("vista.cli.reproduce.execute", made)
    places = ["--results", str(tmp_path / "results"), "--out", str(tmp_path / "out")]
    assert main(["reproduce", "table1", "--only", "ce", "--seeds", "1", *places]) == 0
    if by == "adding":
        shutil.rmtree(tmp_path / "results")
        assert main(["reproduce", "--add", str(tmp_path / "out"), *places]) == 0
    records = ledger.read(tmp_path / "results")
    assert len(records) == 7
    figures = [load_study(name) for name in ("fig1", "lifespan", "coverage", "contributing", "surrogate")]
    drawn = {cell.changes["noise"] for figure in figures for cell in figure.cells if cell.method == "ce"}
    assert "symmetric:0.6" not in drawn
    assert {record.config.noise for record in records if record.bits.exists()} == drawn


def test_added_runs_are_listed_with_their_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, half = write_run(tmp_path / "runs" / "a"), write_run(tmp_path / "runs" / "b", seed=1, finished=False)
    argv = ["reproduce", "--add", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    assert main(argv) == 0
    (record,) = ledger.read(tmp_path / "results")
    assert f"{whole} -> {record.path}\n" in capsys.readouterr().out, "on one line, without wrapping"
    assert main([*argv, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"added": {str(whole): str(record.path)}, "unfinished": [str(half)]}


def test_the_page_is_written_from_the_given_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fake(tmp_path / "elsewhere", "ce", protocol.symmetric(40), 0, 59.0, 55.0)
    assert main(["reproduce", "--table", "--results", "elsewhere"]) == 0
    assert "| symmetric 40 % | ce | test accuracy, % | 1 | 55.00 | 59.00 |" in Path("RESULTS.md").read_text()


def test_the_printed_plan_has_seeds_notes_and_hours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    fake(tmp_path, "ce", protocol.symmetric(40), 0, 59.0, 55.0)
    words = ["--only", "symmetric 40", "--seeds", "2", "--results", str(tmp_path)]

    def rows(name: str) -> list[list[str]]:
        assert main(["reproduce", name, "--dry-run", *words]) == 0
        said = capsys.readouterr().out
        (hours,) = [line for line in said.splitlines() if "hours on one H200" in line]
        below_rule = re.search(r"─ *\n(.*?)\n *\n", said, re.DOTALL)
        assert below_rule
        cells = [re.split(r"\s{2,}", line.strip()) for line in below_rule[1].splitlines()]
        found = [[*row, ""] if len(row) == 4 else row for row in cells]
        assert float(hours.split()[1]) == pytest.approx(sum(float(row[-1] or 0) for row in found), abs=0.1)
        assert all(bool(row[-1]) == (row[-2] == "to be run") for row in found), "records take no hours"
        return [row[1:4] for row in found]

    assert rows("cutmix")[:4] == [
        ["ce", "0", "in the ledger"],
        ["ce (CutMix)", "0", "to be run"],
        ["vista", "0", "to be run"],
        ["vista (CutMix)", "0", "to be run"],
    ]
    assert [seed for _, seed, _ in rows("cutmix")] == ["0"] * 4 + ["1"] * 4
    assert {method for method, _, _ in rows("table5")} == {"ce", "dlb", "vista"}, "a gain is not a separate run"


def test_missing_data_is_reported_with_the_command_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VISTA_DATA", raising=False)
    argv = ["reproduce", "beta", "--only", "linear", "--device", "cpu", "--results", str(tmp_path)]
    assert main(argv) == 2
    assert "vista data get cifar100" in capsys.readouterr().err
