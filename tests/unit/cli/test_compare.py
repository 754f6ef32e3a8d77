"""vista compare: the promised JSON, the table, and what happens when a run fails or is stopped."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import statistics
from pathlib import Path

import numpy as np
import pytest

from vista.methods import available
from vista.runs.config import TrainConfig
from vista.runs.folder import CONFIG, RunFolder
from vista.runs.record import VAL_GIVEN, Record
from vista.training.compare import over_seeds, plan, summary

from .conftest import Vista, in_two_processes
from .test_train import CONTROL, Small, stop_after

ROOT_MAY_HELP = "--root can name the folder that contains it"


def test_json_holds_the_promised_rows_and_nothing_else_is_on_stdout(vista: Vista, small: Small) -> None:
    said = vista("compare", *small, "--methods", "ce,vista-light", "--seeds", "2", "--out", "runs/c", "--json")
    assert said.code == 0
    result = json.loads(said.out)
    assert result["config"]["noise"] == "symmetric:0.2"
    assert (result["config"]["methods"], result["config"]["seeds"]) == (["ce", "vista-light"], 2)
    assert [row["method"] for row in result["rows"]] == ["ce", "vista-light"]
    for row in result["rows"]:
        metrics = [json.loads(Path(f"runs/c/{row['method']}-seed{seed}/metrics.json").read_text()) for seed in (0, 1)]
        assert row["seeds"] == 2
        for which in ("best", "last"):
            accuracies = [100 * values[which]["test"]["top1"] for values in metrics]
            assert row[which]["mean"] == pytest.approx(statistics.mean(accuracies))
            assert row[which]["se"] == pytest.approx(statistics.stdev(accuracies) / math.sqrt(2))
        for name, factor in (("ece", 100), ("nll", 1), ("aurc", 100)):
            before = [factor * values["best"]["test"][name] for values in metrics]
            assert row[name]["mean"] == pytest.approx(statistics.mean(before))
            assert row[name]["se"] == pytest.approx(statistics.stdev(before) / math.sqrt(2))
            assert row[f"{name}_calibrated"] == {"mean": None, "se": None}, "too few validation labels to calibrate"
        gaps = [100 * values["deviation_gap"]["val_given"] for values in metrics]
        assert row["deviation_gap"] == pytest.approx(statistics.mean(gaps))
        assert row["seconds"] > 0
        assert [(run["seed"], run["error"]) for run in row["runs"]] == [(0, None), (1, None)]
    assert result["rows"][0]["anchors_max"] is None
    assert result["rows"][1]["anchors_max"] >= 1
    assert "ce-seed1" in said.err
    assert not CONTROL.search(said.out.replace("\n", "") + said.err)


def test_finished_runs_are_reused_and_said_so(vista: Vista, small: Small) -> None:
    alone = ("--at-once", "1", "--json")
    first = vista("compare", *small, "--methods", "ce", "--seeds", "2", "--out", "c", *alone)
    again = vista("compare", *small, "--methods", "ce,vista", "--seeds", "2", "--out", "c", "--at-once", "2", "--json")
    assert json.loads(first.out)["rows"][0] == json.loads(again.out)["rows"][0]
    assert again.err.count("has already finished") == 2
    assert "vista-seed1 starts" in again.err
    other = vista("compare", *small, "--methods", "elr,ce", "--seeds", "1", "--out", "c", "--batch-size", "16")
    assert other.code == 2
    assert "--fresh" in other.err
    assert not Path("c/elr-seed0").exists()
    replaced = ("--batch-size", "16", "--fresh", "--quiet")
    assert vista("compare", *small, "--methods", "ce", "--seeds", "1", "--out", "c", *replaced).code == 0


def test_the_table_names_every_method_and_marks_reconstructions(vista: Vista, small: Small) -> None:
    said = vista("compare", *small, "--methods", "ce, tsd", "--seeds", "1", "--at-once", "1", "--quiet")
    assert said.code == 0
    assert Path("runs/compare-npz-blobs.npz-symmetric-0.2/tsd-seed0").is_dir()
    assert "tsd †" in said.out
    assert "† reconstructed" in said.out
    assert "±" not in said.out
    assert "val acc" not in said.out


def test_a_run_that_fails_does_not_stop_the_others(vista: Vista, small: Small) -> None:
    words = ("compare", *small, "--methods", "byot,ce", "--seeds", "1", "--out", "c")
    said = vista(*words, "--json")
    assert said.code == 1
    byot, ce = json.loads(said.out)["rows"]
    assert byot["seeds"] == 0
    assert byot["best"] == {"mean": None, "se": None}
    assert byot["runs"][0]["error"]
    assert ce["seeds"] == 1
    assert ce["best"]["se"] is None
    assert "vista: error: byot-seed0: " in said.err
    assert "failed" in vista(*words, "--at-once", "1", "--quiet").out


def test_one_reason_for_all_failures_is_reported_once(vista: Vista) -> None:
    said = vista("compare", "--data", "npz:nowhere.npz", "--seeds", "2", "--epochs", "2", "--json")
    assert said.code == 2
    assert said.out == ""
    assert said.err == f"vista: error: data file nowhere.npz does not exist in {Path.cwd()}; {ROOT_MAY_HELP}\n"


def test_a_run_that_one_of_two_processes_cannot_make_stops_both(small: Small, port: str) -> None:
    words = ("compare", *small, "--methods", "ce", "--seeds", "2", "--out", "c", "--quiet")
    Path("c").mkdir()
    with RunFolder(Path("c/ce-seed0")).locked():
        first, second = in_two_processes(port, *words)
    in_use = f"c/ce-seed0 is in use by process {os.getpid()}: wait until that has ended"
    assert (first.code, first.out, first.err) == (1, "", f"vista: error: ce-seed0: {in_use}\n")
    assert second.code == 1, "it was left alone in the run"
    assert "vista: error: process 1: ce-seed0: " in second.err
    assert list(Path("c").iterdir()) == [], "the next run would have been wrong"
    first, second = in_two_processes(port, *words)
    assert (first.code, second.code, second.out) == (0, 0, ""), first.err + second.err
    assert "± " in first.out


def test_what_two_processes_lack_alike_is_reported_once(port: str) -> None:
    first, second = in_two_processes(port, "compare", "--data", "npz:nowhere.npz", "--epochs", "2", "--device", "cpu")
    assert (first.code, second.code) == (2, 2)
    assert first.err == f"vista: error: data file nowhere.npz does not exist in {Path.cwd()}; {ROOT_MAY_HELP}\n"
    assert second.err == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--methods", "ce,visat"), "did you mean 'vista'"),
        (("--methods", "al"), "method 'al' is unknown; did you mean 'all'?"),
        (("--methods", "all:tau=1"), "all takes no options"),
        (("--methods", ","), "methods must name at least one method"),
        (("--seeds", "0"), "seeds must be at least 1, got 0"),
        (("--at-once", "0"), "at_once must be at least 1, got 0"),
    ],
)
def test_bad_input_is_rejected_before_anything_runs(
    vista: Vista, small: Small, words: tuple[str, ...], message: str
) -> None:
    said = vista("compare", *small, *words)
    assert said.code == 2
    assert message in said.err
    assert not Path("runs").exists()


@pytest.mark.parametrize("epoch", [1, 3])  # 3 is the last: no step of that run is left to stop at
def test_stopped_it_continues_by_the_same_command(
    vista: Vista, small: Small, monkeypatch: pytest.MonkeyPatch, epoch: int
) -> None:
    words = ("compare", *small, "--methods", "ce", "--seeds", "2", "--at-once", "1", "--out", "c", "--quiet")
    with monkeypatch.context() as patch:
        stop_after(epoch, patch, signal.SIGTERM)
        said = vista(*words)
    assert said.code == 128 + signal.SIGTERM
    assert "run the same command again" in said.err
    assert said.out == ""
    assert not Path("c/ce-seed1/config.json").exists()
    assert vista(*words).code == 0
    assert len(Path("c/ce-seed0/epochs.jsonl").read_text().splitlines()) == 3


def test_no_mean_without_a_seed_and_no_error_of_one() -> None:
    assert over_seeds([1.0, 3.0]) == {"mean": 2.0, "se": 1.0}
    assert over_seeds([1.0]) == {"mean": 1.0, "se": None}
    assert over_seeds([]) == {"mean": None, "se": None}


def test_a_row_is_of_the_runs_that_finished_and_counts_the_time_of_those_needed_first(tmp_path: Path) -> None:
    (entry,) = plan(TrainConfig(), ["ban"], 4, tmp_path)
    for job, anchors in zip(entry.jobs[:2], (5, 3), strict=True):
        report = {"epoch": 1 + anchors, "test": {"top1": 0.5, "ece": 0.3}}
        report["calibrated"] = {"test": {"ece": anchors / 100}}
        gaps = {"val_given": 0.25, "val_true": 0.75}
        job.metrics = {"best": report, "last": {**report, "epoch": 9}, "deviation_gap": gaps, "anchors_max": anchors}
        timed(job.out, 10.0)
    timed(entry.jobs[0].out / "earlier" / "teacher", 4.0)
    timed(entry.jobs[0].out / "earlier" / "teacher" / "earlier" / "teacher", 2.0)
    entry.jobs[2].error = ValueError("broke")
    row = summary(entry)
    assert (row["seeds"], row["anchors_max"], row["seconds"], row["deviation_gap"]) == (2, 5, 13.0, 25.0)
    assert row["ece"] == {"mean": pytest.approx(30.0), "se": pytest.approx(0.0)}
    assert row["ece_calibrated"] == {"mean": pytest.approx(4.0), "se": pytest.approx(1.0)}
    assert row["nll"] == {"mean": None, "se": None}
    found = [(run["best_epoch"], run["seconds"], run["error"]) for run in row["runs"]]
    assert found == [(6, 16.0, None), (4, 10.0, None), (None, None, "broke"), (None, None, "stopped")]
    assert [run["run"] for run in row["runs"]] == [str(tmp_path / f"ban-seed{seed}") for seed in range(4)]


def timed(run: Path, seconds: float) -> None:
    """A run with a record of one epoch that took so long."""
    run.mkdir(parents=True)
    (run / CONFIG).write_text("{}")
    record = Record({VAL_GIVEN: 1})
    timing = {"epoch": 1, "train_seconds": seconds, "evaluate_seconds": 0.0}
    record.append({"epoch": 1}, timing, {VAL_GIVEN: np.ones(1, dtype=bool)})
    record.write(run)


def test_all_in_a_list_adds_every_other_method_once() -> None:
    names = list(available())
    entries = plan(TrainConfig(), ["vista:tau=0.02", "ce", "all"], 1, Path("c"))
    assert [entry.method for entry in entries] == ["vista:tau=0.02", "ce", *(name for name in names if name != "ce")]


def test_a_method_written_in_two_ways_counts_once_under_its_first_name() -> None:
    same = ["vista:tau=0.02", "vista:tau=2e-2", "vista", "vista-light", "vista:tau=0.01"]
    entries = plan(TrainConfig(), same, 2, Path("c"))
    assert [entry.method for entry in entries] == ["vista:tau=0.02", "vista", "vista-light"]
    runs = [(job.config.method, job.config.options["tau"], job.config.seed, str(job.out)) for job in entries[0].jobs]
    assert runs == [("vista", 0.02, 0, "c/vista-tau0.02-seed0"), ("vista", 0.02, 1, "c/vista-tau0.02-seed1")]


def test_a_data_set_with_square_brackets_is_compared(vista: Vista, small: Small, data: str) -> None:
    Path("a[").mkdir()
    shutil.copy(data.removeprefix("npz:"), "a[/b].npz")
    said = vista("compare", *small, "--data", "npz:a[/b].npz", "--methods", "ce", "--seeds", "1", "--quiet")
    assert said.code == 0
    assert "npz:a[/b].npz, noise" in said.out


def test_methods_that_train_alike_on_few_samples_are_trained_once(vista: Vista, small: Small) -> None:
    said = vista("compare", *small, "--seeds", "1", "--at-once", "1", "--out", "c")
    assert said.code == 0
    assert sorted(path.name for path in Path("c").iterdir()) == ["ce-seed0", "vista-seed0"]
    assert "vista-light and vista are the same training here, done once" in said.out
    assert "; one seed cannot tell this from chance (use --seeds 3)" in " ".join(said.out.split())
    enough = vista("compare", *small, "--validation", "100", "--epochs", "2", "--seeds", "1", "--out", "d", "--json")
    assert [row["same_as"] for row in json.loads(enough.out)["rows"]] == [None, None, None]


def test_a_method_that_is_added_trains_as_the_others_did(vista: Vista, data: str) -> None:
    first = ("--epochs", "2", "--lr", "0.05", "--noise", "symmetric:0.2", "--device", "cpu", "--batch-size", "16")
    assert (
        vista("compare", "--data", data, *first, "--methods", "ce", "--seeds", "1", "--out", "c", "--quiet").code == 0
    )
    words = ("--noise", "symmetric:0.2", "--device", "cpu", "--methods", "elr,ce", "--seeds", "1", "--out", "c")
    said = vista("compare", "--data", data, *words)
    assert said.code == 0
    assert "auto: as in the run c/ce-seed0: mlp, 2 epochs, batch size 16, learning rate 0.05" in said.out
    stored = json.loads(Path("c/elr-seed0/config.json").read_text())
    assert (stored["epochs"], stored["batch_size"], stored["lr"]) == (2, 16, 0.05)
