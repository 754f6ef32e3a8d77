"""Runs fit a calibration on their validation labels, and predict and export apply it unless --raw is given."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vista as package
from vista.cli.execute import calibration_lines
from vista.core.calibration import calibrate
from vista.data import source
from vista.metrics import classification_report
from vista.runs.folder import RunFolder

from .conftest import Vista

Small = tuple[str, ...]
NO_CALIBRATION = "has no calibration: "


@pytest.fixture
def calibrated(vista: Vista, small: Small) -> RunFolder:
    """A finished run with 60 validation labels."""
    assert vista("train", *small, "--validation", "60", "--out", "run", "--quiet").code == 0
    return RunFolder(Path("run"))


def confidences(path: str) -> np.ndarray:
    with open(path, newline="") as file:
        return np.array([float(row["confidence"]) for row in csv.DictReader(file)])


def rewrite(run: RunFolder, metrics: dict[str, Any]) -> None:
    """Write other metrics into a run, without checksums, as earlier versions did."""
    (run.path / "metrics.json").write_text(json.dumps(metrics))
    (run.path / "manifest.json").unlink()


def test_a_run_stores_the_fit_on_its_given_validation_labels(calibrated: RunFolder, data: str) -> None:
    metrics, logits = calibrated.metrics(), calibrated.predictions().logits
    given, test_labels = calibrated.labels().given[calibrated.split().val], source.load(data).test_labels
    assert set(metrics["calibration"]) == {"best", "last"}
    for which, found in metrics["calibration"].items():
        expected = calibrate(logits[f"{which}.val"], given)
        assert found["temperature"] == expected.temperature
        assert found["noise_rate"] == expected.noise_rate
        assert found["samples"] == 60
        assert {"temperature_error", "noise_rate_error"} < set(found)
        report = classification_report(logits[f"{which}.test"].astype(np.float64) / expected.temperature, test_labels)
        assert metrics[which]["calibrated"] == {"test": report}
        assert report["top1"] == metrics[which]["test"]["top1"]


def test_the_same_run_has_the_same_metrics(vista: Vista, small: Small, calibrated: RunFolder) -> None:
    assert vista("train", *small, "--validation", "60", "--out", "again", "--quiet").code == 0
    assert Path("again/metrics.json").read_bytes() == (calibrated.path / "metrics.json").read_bytes()


def test_evaluate_computes_the_calibrated_metrics_again(vista: Vista, calibrated: RunFolder) -> None:
    found = json.loads(vista("evaluate", "run", "--device", "cpu", "--json").out)
    for which in ("best", "last"):
        stored = calibrated.metrics()[which]["calibrated"]["test"]
        assert found[which]["calibrated"]["test"] == pytest.approx(stored)


def test_predictions_are_calibrated_unless_raw(vista: Vista, calibrated: RunFolder, data: str) -> None:
    words = ("predict", "run", "--data", data, "--device", "cpu", "-o")
    said = vista(*words, "calibrated.csv")
    assert f"(calibrated, temperature {calibrated.temperature('best'):.3g})" in said.out
    assert "calibrated" not in vista(*words, "raw.csv", "--raw").out
    logits = torch.from_numpy(calibrated.predictions().logits["best.test"]).double()
    for file, temperature in (("raw.csv", 1.0), ("calibrated.csv", calibrated.temperature("best"))):
        expected = (logits / temperature).softmax(dim=1).amax(dim=1).numpy()
        np.testing.assert_allclose(confidences(file), expected, atol=1e-5)
    with open("raw.csv") as raw, open("calibrated.csv") as cal:
        labels = [[row["label"] for row in csv.DictReader(file)] for file in (raw, cal)]
    assert labels[0] == labels[1]


def test_the_result_shows_ece_before_and_after_in_80_columns(vista: Vista, calibrated: RunFolder) -> None:
    lines = vista("resume", "run").out.splitlines()
    metrics = calibrated.metrics()
    for which in ("best", "last"):
        before, after = (100 * m["test"]["ece"] for m in (metrics[which], metrics[which]["calibrated"]))
        (line,) = [
            line for line in lines if line.startswith(f"{which} calibrated: test ECE {before:.2f} -> {after:.2f} %")
        ]
        assert len(line) <= 80


@pytest.mark.parametrize("name", ["best", "fused"])
def test_a_temperature_that_was_not_better_is_said_to_be_left_at_1(name: str) -> None:
    report = {"test": {"ece": 0.1234}, "calibrated": {"test": {"ece": 0.1234}}}
    fit = {"temperature": 1.0, "noise_rate": 0.384, "noise": "structured", "gain": 0.0}
    metrics = {
        "calibration": {name: fit},
        "best": report,
        "last": report,
        **({"network": {}} if name == "fused" else {}),
    }
    (line,) = calibration_lines(metrics)
    assert line == f"{name}: test ECE 12.34 %; held-out labels fit T = 1 best (38 % structured noise)"
    assert len(line) <= 80


def test_few_validation_labels_give_no_calibration(vista: Vista, trained: Path, data: str) -> None:
    metrics = RunFolder(trained).metrics()
    assert metrics["calibration"] == {"best": None, "last": None}
    assert metrics["best"]["calibrated"] is None
    count = len(RunFolder(trained).split().val)
    few = f"{NO_CALIBRATION}it has {count} validation labels, and 50 are needed (a larger --validation, or more data);"
    assert few in vista("predict", "trained", "--data", data, "--device", "cpu", "-o", "a.csv").err
    assert vista("predict", "trained", "--data", data, "--device", "cpu", "-o", "b.csv", "--raw").err == ""
    np.testing.assert_array_equal(confidences("a.csv"), confidences("b.csv"))
    assert few in vista("export", "trained", "--to", "net.safetensors").err
    with pytest.raises(ValueError, match=r"has no calibration.* use calibrated=False"):
        package.load_model("trained", calibrated=True)


def test_a_run_of_an_earlier_version_is_used_as_it_is(vista: Vista, calibrated: RunFolder, data: str) -> None:
    metrics = calibrated.metrics()
    del metrics["calibration"]
    for which in ("best", "last"):
        del metrics[which]["calibrated"]
    rewrite(calibrated, metrics)
    assert calibrated.temperature("best") is None
    said = vista("predict", "run", "--data", data, "--device", "cpu", "-o", "a.csv")
    assert said.code == 0
    assert f"{NO_CALIBRATION}it is a run of an earlier version;" in said.err
    assert "calibrated:" not in vista("resume", "run").out


def test_enough_labels_without_a_fit_give_that_reason(vista: Vista, calibrated: RunFolder, data: str) -> None:
    rewrite(calibrated, {**calibrated.metrics(), "calibration": {"best": None, "last": None}})
    said = vista("predict", "run", "--data", data, "--device", "cpu", "-o", "a.csv")
    assert f"{NO_CALIBRATION}no temperature can be fitted to its 60 validation labels;" in said.err


@pytest.mark.parametrize("value", ["warm", -1.0, 0, None])
def test_a_damaged_temperature_is_named(vista: Vista, calibrated: RunFolder, data: str, value: object) -> None:
    metrics = calibrated.metrics()
    metrics["calibration"]["best"]["temperature"] = value
    rewrite(calibrated, metrics)
    said = vista("predict", "run", "--data", data, "--device", "cpu", "-o", "a.csv")
    assert said.code == 2
    assert "metrics.json is damaged: calibration.best.temperature" in said.err


def test_fused_predictions_are_calibrated_too(vista: Vista, small: Small) -> None:
    said = vista("train", *small, "--validation", "60", "--method", "kf", "--out", "kf")
    metrics = RunFolder(Path("kf")).metrics()
    assert set(metrics["calibration"]) == {"best", "last", "fused"}
    assert metrics["best"]["calibrated"] == metrics["last"]["calibrated"] is not None
    assert metrics["network"]["best"]["calibrated"]["test"].keys() == metrics["best"]["test"].keys()
    assert [line.split()[0] for line in said.out.splitlines() if " calibrated: " in line] == ["fused", "best", "last"]
