"""The protocol `clean-validation`: half of the test set validates, the other half tests, apart from all other runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_records import fake

from vista.cli import main
from vista.data import source
from vista.reproduce import ledger, load_study, plan, protocol, results_page, study_names
from vista.reproduce.grid import Study
from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.training import samples as samples_of_runs
from vista.training.resolve import identity

STUDY = load_study("clean-validation")


@pytest.fixture
def data(tmp_path: Path) -> str:
    """20 training and 12 test samples whose only feature is their number, three classes."""
    x = np.arange(32, dtype=np.float32).reshape(32, 1)
    y = np.arange(32) % 3
    np.savez(tmp_path / "d.npz", x_train=x[:20], y_train=y[:20], x_test=x[20:], y_test=y[20:])
    return f"npz:{tmp_path / 'd.npz'}"


@pytest.mark.parametrize("name", ["npz", "digits"])
def test_halves_of_the_test_set_are_disjoint_and_complete(data: str, name: str) -> None:
    whole = source.load(data if name == "npz" else name)
    one, other = (source.validate_on_test(whole, seed) for seed in (0, 1))
    assert np.array_equal(one.train_ids, whole.train_ids)
    assert one.validation is not None
    together = np.concatenate([one.inputs[one.validation], one.test_samples()])
    wanted = whole.test_samples()
    flat = [rows.reshape(len(rows), -1) for rows in (together, wanted)]
    assert sorted(map(tuple, flat[0])) == sorted(map(tuple, flat[1]))
    assert abs(len(one.validation) - len(one.test_labels)) <= 1
    assert not np.array_equal(one.test_samples(), other.test_samples()), "drawn by the seed"
    assert np.array_equal(one.test_samples(), source.validate_on_test(whole, 0).test_samples())


def test_validation_labels_are_clean_and_all_training_samples_are_noisy(data: str) -> None:
    settings = {"data": data, "noise": "symmetric:0.5", "method": "ce", **protocol.CLEAN_VALIDATION}
    found = samples_of_runs.load_samples(TrainConfig(**settings), torch.device("cpu"))
    assert len(found.train) == 20
    assert (found.labels("train", "given") != found.labels("train", "true")).sum() == 10
    assert np.array_equal(found.labels("val", "given"), found.labels("val", "true"))
    ids = source.validate_on_test(source.load(data), 0).inputs[found.split.val, 0].astype(int)
    assert np.array_equal(found.labels("val", "true"), ids % 3), "labels belong to their samples"


def test_data_with_their_own_validation_set_are_rejected(data: str) -> None:
    held_out = dataclasses.replace(source.load(data), validation=np.arange(3))
    with pytest.raises(ValueError, match=r"clean_validation needs a test set to halve, but .* has its own validation"):
        source.validate_on_test(held_out, 0)


def test_study_has_four_methods_in_three_settings_and_is_in_no_other_table() -> None:
    keys = {ledger.cell_key(cell.config()) for cell in STUDY.cells}
    assert len(keys) == 15, "KF twice"
    others = [name for name in study_names() if name != "clean-validation"]
    assert not keys & {ledger.cell_key(cell.config()) for name in others for cell in load_study(name).cells}
    assert {cell.method.partition(":")[0] for cell in STUDY.cells} == {"ce", "kf", "vista", "vista-light"}
    plain = protocol.make_config("ce", protocol.CLEAN, 0)
    assert identity(dataclasses.replace(plain, clean_validation=True)) != identity(plain)
    assert plan.estimate_hours(STUDY.cells[0].config()) > 0


def test_records_of_the_two_protocols_are_never_averaged(tmp_path: Path) -> None:
    fake(tmp_path, "ce", protocol.symmetric(40), 0, 59.0, 55.0)
    fake(tmp_path, "ce", protocol.symmetric(40) | protocol.CLEAN_VALIDATION, 0, 61.0, 57.0)
    page = results_page.render(tmp_path)
    own = page.split("## clean-validation")[1].split("\n## ")[0]
    assert "| 57.00 | 61.00 |" in own
    assert "59.00" not in own
    assert "61.00" not in page.split("## table1")[1].split("\n## ")[0]
    assert STUDY.cells[0].run_name(0) == "asymmetric 40 %, clean validation, ce, seed 0"


def test_runs_from_start_to_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The study itself, on the digits with two epochs instead of CIFAR-100 with 200."""
    small: dict[str, Any] = {
        "data": "digits", "network": "mlp", "epochs": 2, "batch_size": 512, "precision": "fp32",
        "lr_schedule": "cosine",
    }  # fmt: skip
    cells = tuple(dataclasses.replace(cell, changes=cell.changes | small) for cell in STUDY.cells)
    tiny = Study(STUDY.title, cells, STUDY.about, seeds=1)
    for module in ("vista.cli.reproduce", "vista.reproduce.plan"):
        monkeypatch.setattr(f"{module}.load_study", lambda name: tiny)
    argv = ["reproduce", "clean-validation", "--results", str(tmp_path), "--out", str(tmp_path / "out"), "--json"]
    assert main([*argv, "--device", "cpu", "--only", "asymmetric 40"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["failed"] == {}
    assert len(answer["records"]) == 4, "KF's network is the plain one"
    runs = [RunFolder(path.parent) for path in (tmp_path / "out").rglob("metrics.json")]
    for run in runs:
        data = source.load("digits")
        assert run.data().samples == {"train": len(data.train_ids), "val": 225, "test": 225}
        assert run.config().clean_validation
        assert np.array_equal(run.labels().given[run.split().val], run.labels().true[run.split().val])
