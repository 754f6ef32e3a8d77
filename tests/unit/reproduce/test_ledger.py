"""The ledger: contents of a record, and records that are rejected."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_records import fake
from made_runs import write_run

from vista.cli import main
from vista.reproduce import ledger, protocol, results_page
from vista.runs.config import TrainConfig, preset
from vista.runs.folder import RunFolder
from vista.training.resolve import identity
from vista.training.scheduler import Job, run_jobs


def test_light_and_vista_with_tau_001_have_one_identity() -> None:
    light = protocol.make_config("vista-light", protocol.symmetric(40), 0)
    assert identity(light) == identity(protocol.make_config("vista:tau=0.01", protocol.symmetric(40), 0))
    assert identity(light) != identity(protocol.make_config("vista", protocol.symmetric(40), 0))
    assert identity(light) != identity(replace(light, seed=1))
    assert identity(light) == identity(replace(light, root="elsewhere", device="cpu", checkpoint_seconds=1.0))


def test_a_finished_run_is_added_with_its_epochs_and_without_weights(tmp_path: Path) -> None:
    settings = {**preset("digits"), "epochs": 2}
    job = Job(TrainConfig(data="digits", noise="symmetric:0.4", network="tiny-staged", **settings), tmp_path / "run")
    run_jobs([job], lambda _job, _event: None)
    results = tmp_path / "results"
    assert main(["reproduce", "--add", str(tmp_path / "run"), "--results", str(results)]) == 0
    (record,) = ledger.read(results)
    assert identity(record.config) == identity(RunFolder(tmp_path / "run").config())
    assert record.metrics == job.metrics
    assert [line["epoch"] for line in record.epochs] == [1, 2]
    assert record.data["labels_hash"] == RunFolder(tmp_path / "run").labels().hash
    assert record.path.stat().st_size < 20_000
    assert len(list((results / ledger.FOLDER).iterdir())) == 1
    assert "tiny-staged" in results_page.render(results)


def test_a_run_is_added_without_its_weights_and_predictions(tmp_path: Path) -> None:
    settings = {**preset("digits"), "epochs": 2, "ema": 0.9}
    job = Job(TrainConfig(data="digits", network="tiny-staged", **settings), tmp_path / "runs" / "run")
    run_jobs([job], lambda _job, _event: None)
    for name in ("best.safetensors", "last.safetensors", "predictions.safetensors", "teacher.safetensors", "lock"):
        (job.out / name).unlink(missing_ok=True)
    results = tmp_path / "results"
    assert main(["reproduce", "--add", str(tmp_path / "runs"), "--results", str(results)]) == 0
    (record,) = ledger.read(results)
    assert record.metrics["plain"]["last"]["test_accuracy"] == record.epochs[-1]["plain_test_accuracy"]
    assert record.metrics == job.metrics


def test_a_kf_run_includes_the_plain_run(tmp_path: Path) -> None:
    settings = {**preset("digits"), "epochs": 3}
    config = TrainConfig(data="digits", noise="symmetric:0.4", network="tiny-staged", **settings)
    jobs = {
        method: Job(replace(config, method=method, options={}), tmp_path / method / "run") for method in ("ce", "kf")
    }
    run_jobs(list(jobs.values()), lambda _job, _event: None)
    assert jobs["kf"].metrics != jobs["ce"].metrics, "the fused predictions are not the network's"
    for method in jobs:
        assert main(["reproduce", "--add", str(tmp_path / method), "--results", str(tmp_path / method)]) == 0
    (trained,) = ledger.read(tmp_path / "ce")
    fused, found = ledger.read(tmp_path / "kf")
    assert (fused.config.method, found.config.method) == ("kf", "ce")
    assert found.metrics == trained.metrics
    assert (identity(found.config), found.epochs, found.data) == (
        identity(trained.config),
        trained.epochs,
        trained.data,
    )
    assert "1 runs on" in results_page.render(tmp_path / "kf"), "one run, although it provides two records"

    shutil.copy(trained.path, tmp_path / "kf" / ledger.FOLDER)
    assert len(ledger.read(tmp_path / "kf")) == 2, "a plain run with its own record is preferred"
    assert {record.path.name for record in ledger.read(tmp_path / "kf")} == {trained.path.name, fused.path.name}


def test_only_methods_with_plain_training_provide_a_plain_run(tmp_path: Path) -> None:
    for method in ("kf", "sat"):
        path = fake(tmp_path, method, protocol.symmetric(40), 0, 67.0, 66.0)
        record = json.loads(path.read_text())
        record["metrics"]["network"] = {which: record["metrics"][which] for which in ("best", "last")}
        path.write_text(json.dumps(record))
    assert [record.config.method for record in ledger.read(tmp_path)] == ["kf", "sat", "ce"]


def test_a_record_keeps_the_duration_but_not_the_data_path(tmp_path: Path) -> None:
    config = replace(RunFolder(write_run(tmp_path / "run", epochs=3)).config(), root="/home/somebody/images")
    (tmp_path / "run" / "config.json").write_text(json.dumps(config.to_json()))
    taken = [{"epoch": epoch, "train_seconds": 24.26, "evaluate_seconds": 6.0} for epoch in (1, 2, 3)]
    (tmp_path / "run" / "timings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in taken))
    record = ledger.read_record(ledger.add(RunFolder(tmp_path / "run"), tmp_path / "results", with_bits=False))
    assert record.seconds == pytest.approx(3 * 30.26, abs=0.05)
    assert "somebody" not in record.path.read_text()
    assert record.environment == json.loads((tmp_path / "run" / "environment.json").read_text())


def test_a_record_has_a_line_per_entry_and_per_epoch(tmp_path: Path) -> None:
    run = RunFolder(write_run(tmp_path / "run", epochs=3))
    first, *entries, epochs, one, two, three, end, last = (
        ledger.add(run, tmp_path / "results", with_bits=False).read_text().splitlines()
    )
    assert (first, epochs, end, last) == ("{", ' "epochs": [', " ]", "}")
    assert [line.split(":")[0].strip() for line in entries] == [
        '"format"', '"config"', '"data"', '"environment"', '"metrics"', '"seconds"',
    ]  # fmt: skip
    assert [json.loads(line.rstrip(",")) for line in (one, two, three)] == run.record().lines


def test_a_run_has_one_record_under_both_names_of_its_method(tmp_path: Path) -> None:
    forty = protocol.symmetric(40)
    light = fake(tmp_path, "vista-light", forty, 0, 60.0, 60.0)
    assert ledger.record_path(protocol.make_config("vista:tau=0.01", forty, 0), tmp_path) == light
    copy = light.with_name("copy.json")
    copy.write_bytes(light.read_bytes())
    with pytest.raises(ValueError, match=rf"copy\.json is a record of the same run as {light.name}; delete one"):
        ledger.read(tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda _: [], "it must hold a JSON object, got list"),
        (lambda r: {**r, "config": []}, "it has no usable 'config'"),
        (lambda r: {**r, "seconds": None}, "it has no usable 'seconds'"),
        (lambda r: {**r, "epochs": {}}, "it has no usable 'epochs'"),
        (lambda r: {name: r[name] for name in r if name != "data"}, "it has no usable 'data'"),
        (lambda r: {**r, "format": 2}, "has format 2, but this version reads 1"),
        (lambda r: {**r, "metrics": {**r["metrics"], "best": None}}, r"best\.test\.top1 must be a number, got None"),
        (
            lambda r: {**r, "metrics": {**r["metrics"], "deviation_gap": {}}},
            r"deviation_gap\.val_given must be a number, got None",
        ),
        (
            lambda r: {**r, "metrics": {**r["metrics"], "network": {}}},
            r"network\.best\.test\.top1 must be a number, got None",
        ),
        (lambda r: {**r, "environment": {"device": 3}}, "no usable 'device'"),
        (lambda r: {**r, "environment": {"device": "a GPU", "commit": None}}, "no usable 'torch'"),
        (lambda r: {**r, "environment": {"device": "a GPU", "torch": "2.13.0"}}, "no usable 'commit'"),
        (lambda r: {**r, "config": {**r["config"], "format": 9}}, "has format 9, but this version reads 1"),
        (lambda r: {**r, "config": {**r["config"], "method": "../up"}}, r"'\.\./up'"),
        (lambda r: {**r, "config": {**r["config"], "colour": 1}}, "unknown field 'colour'"),
    ],
)
def test_a_damaged_record_is_reported_with_its_path(tmp_path: Path, damage: Callable[[Any], Any], message: str) -> None:
    path = fake(tmp_path, "ce", protocol.symmetric(40), 0, 59.0, 55.0)
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))
    with pytest.raises(ValueError, match=message) as caught:
        ledger.read(tmp_path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("number", ["top1", "top5", "aurc"])
@pytest.mark.parametrize("which", ["best", "last"])
@pytest.mark.parametrize("prefix", ["", "network."])
def test_a_record_without_a_number_of_a_table_is_rejected(tmp_path: Path, prefix: str, which: str, number: str) -> None:
    path = fake(tmp_path, "kf", protocol.symmetric(40), 0, 59.0, 55.0)
    record = json.loads(path.read_text())
    record["metrics"]["network"] = json.loads(json.dumps(record["metrics"]))
    del (record["metrics"]["network"] if prefix else record["metrics"])[which]["test"][number]
    path.write_text(json.dumps(record))
    with pytest.raises(ValueError, match=rf"damaged: {prefix}{which}\.test\.{number} must be a number, got None"):
        ledger.read(tmp_path)


@pytest.mark.parametrize("part", ["val_given", "val_true", "test"])
def test_a_record_without_a_deviation_gap_is_rejected(tmp_path: Path, part: str) -> None:
    path = fake(tmp_path, "ce", protocol.symmetric(40), 0, 59.0, 55.0)
    record = json.loads(path.read_text())
    del record["metrics"]["deviation_gap"][part]
    path.write_text(json.dumps(record))
    with pytest.raises(ValueError, match=rf"damaged: deviation_gap\.{part} must be a number, got None"):
        ledger.read(tmp_path)


@pytest.mark.parametrize("content", [b"\xff\xfe", b'{"format": 1', b'{"metrics": NaN}'])
def test_a_file_that_is_no_record_is_rejected(tmp_path: Path, content: bytes) -> None:
    path = fake(tmp_path, "ce", protocol.symmetric(40), 0, 59.0, 55.0)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=path.name):
        ledger.read(tmp_path)


def test_nan_reaches_no_table(tmp_path: Path) -> None:
    path = fake(tmp_path, "ce", protocol.symmetric(40), 0, float("nan"), 55.0)
    assert "NaN" in path.read_text()
    with pytest.raises(ValueError, match=r"is damaged: numbers must be finite, got NaN"):
        results_page.render(tmp_path)
