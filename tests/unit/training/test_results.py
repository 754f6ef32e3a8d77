"""Metrics of a finished run, computed again from its record and its method's predictions."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from trainings import config, train

from vista.data import source
from vista.methods import EpochEnd, Method, choose
from vista.methods.kf import KnowledgeFusion
from vista.runs.folder import RunFolder
from vista.training import loop, optimization
from vista.training.engine import Engine
from vista.training.state import Training


@pytest.fixture(scope="module", params=["vista", "ema"])
def finished(data: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> RunFolder:
    out = tmp_path_factory.mktemp("finished") / "run"
    train(config(data, request.param, epochs=5, seed=1), out)  # its best epochs on given and on true labels differ
    return RunFolder.open(out)


def test_both_epochs_come_to_what_the_record_saw_then(finished: RunFolder) -> None:
    metrics, record = finished.metrics(), finished.record()
    assert metrics["format"] == 1
    assert "network" not in metrics, "nothing is fused"
    for which in ("best", "last"):
        row = metrics[which]["epoch"] - 1
        for part, name in (("val", "val_given"), ("test", "test")):
            assert metrics[which][part]["top1"] == record.correct(name)[row].mean()


def test_the_best_epoch_is_the_first_that_is_best_on_the_given_validation_labels(finished: RunFolder) -> None:
    record = finished.record()
    accuracies = {name: record.correct(name).mean(axis=1) for name in ("val_given", "val_true", "test")}
    for key, name in (("val", "val_given"), ("val_true", "val_true"), ("test", "test")):
        assert [line[f"{key}_accuracy"] for line in record.lines] == accuracies[name].tolist()
    given = accuracies["val_given"]
    best = {name: [row == values[: row + 1].argmax() for row in range(5)] for name, values in accuracies.items()}
    assert [line["best"] for line in record.lines] == best["val_given"] != best["val_true"]
    assert finished.metrics()["best"]["epoch"] == 1 + given.argmax()


def test_the_rate_reported_is_that_of_an_epochs_first_step(finished: RunFolder) -> None:
    rates = [optimization.learning_rates(finished.config(), epoch, 2)[0] for epoch in range(1, 6)]
    assert [line["lr"] for line in finished.record().lines] == rates


def test_the_best_weights_are_those_that_were_judged_before_the_method_changed_them(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def zeroed(self: Method, end: EpochEnd) -> dict[str, Any]:
        with torch.no_grad():
            for weight in end.network.parameters():
                weight.zero_()
        return {}

    monkeypatch.setattr(choose("ce").method, "end_epoch", zeroed)
    train(config(data, "ce", epochs=2), tmp_path / "run")
    weights = RunFolder(tmp_path / "run").weights("best")
    assert any(weight.any() for name, weight in weights.items() if name.endswith("weight"))


def test_training_and_judging_are_timed_each_for_itself(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, advance, logits = 0.0, Engine.advance, Training.logits

    def taking(seconds: float, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            nonlocal now
            now += seconds
            return work(*given)

        return timed

    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(Engine, "advance", taking(5.0, advance))
    monkeypatch.setattr(Training, "logits", taking(1.0, logits))
    train(config(data, "ce", epochs=2), tmp_path / "run")
    timings = RunFolder(tmp_path / "run").record().timings
    assert timings == [{"epoch": epoch, "train_seconds": 10.0, "evaluate_seconds": 2.0} for epoch in (1, 2)]


def test_the_deviation_gap_is_what_was_right_once_and_is_wrong_at_the_end(finished: RunFolder) -> None:
    for name, gap in finished.metrics()["deviation_gap"].items():
        right = finished.record().correct(name)
        assert gap == pytest.approx(np.mean([(then & ~right[-1]).mean() for then in right]))


def test_the_most_anchors_are_those_of_the_epoch_that_held_most(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = choose("vista").method
    real, held = method.end_epoch, {1: 2, 2: 9, 3: 4}
    monkeypatch.setattr(method, "end_epoch", lambda self, end: real(self, end) | {"anchors": held[end.epoch]})
    train(config(data), tmp_path / "vista")
    run = RunFolder(tmp_path / "vista")
    assert [line["anchors"] for line in run.record().lines] == [2, 9, 4]
    assert run.metrics()["anchors_max"] == 9
    teacher = load_file(run.path / "teacher.safetensors")["teacher"]
    assert teacher.dtype == torch.float16, "half the bytes will do"
    train(config(data, "ce"), tmp_path / "ce")
    assert RunFolder(tmp_path / "ce").metrics()["anchors_max"] is None, "a method without anchors has no number of them"


def test_fused_predictions_are_reported_as_the_probabilities_they_are(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = torch.softmax(torch.arange(10.0) / 3, dim=0)
    sizes: dict[str, int] = {}
    real = KnowledgeFusion.fused_predictions

    def fused(self: KnowledgeFusion) -> tuple[Tensor, Tensor]:
        val, test = real(self)
        sizes.update(val=len(val), test=len(test))
        return said.expand(len(val), -1), said.expand(len(test), -1)

    monkeypatch.setattr(KnowledgeFusion, "fused_predictions", fused)
    train(config(data, "kf"), tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    labels = {"val": run.labels().given[run.split().val], "test": source.load(data).test_labels}
    metrics = run.metrics()
    assert metrics["best"]["epoch"] == metrics["network"]["best"]["epoch"]
    for which in ("best", "last"):
        for part, wanted in labels.items():
            assert len(wanted) == sizes[part]
            expected = -np.mean([math.log(said[label]) for label in wanted])
            assert metrics[which][part]["nll"] == pytest.approx(expected, rel=1e-5)
        row = metrics["network"][which]["epoch"] - 1
        assert metrics["network"][which]["test"]["top1"] == run.record().correct("test")[row].mean()
