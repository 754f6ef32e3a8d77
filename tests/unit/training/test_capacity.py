"""The arithmetic of memory, disk, network and time."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path

import pytest

from vista.cli import main
from vista.training.capacity import Workload, needs

WORK = Workload(samples=1000, validation=300, classes=10, epochs=100, batch_size=100, sample_bytes=12, weights=400,
                rate=50.0)  # fmt: skip


def test_needs_of_one_device() -> None:
    found = needs(WORK)
    assert found.state == 2 * 1000 * 10
    assert found.predictions == (13 + 4) * found.state
    assert found.disk == 3 * (3 * 400 + found.state) + 13 * found.state
    assert (found.samples, found.training, found.gradients) == (1300 * 12, 1200, 0)
    assert (found.epoch, found.run) == (22.0, 2200.0)


def test_needs_of_several_devices_and_of_topk() -> None:
    found = needs(WORK, 4)
    assert found.gradients == 2 * 3 / 4 * 400 * 10
    assert found.epoch == 5.5
    assert needs(dataclasses.replace(WORK, kept=2)).state == 4 * 2 * 1000
    assert needs(dataclasses.replace(WORK, tau=0.0)).predictions == (100 + 4) * found.state
    assert needs(dataclasses.replace(WORK, stores=False)).predictions == 0
    assert needs(dataclasses.replace(WORK, rate=None)).run is None


def test_dry_run_trains_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    words = ["train", "--data", "digits", "--method", "vista-light", "--device", "cpu", "--dry-run", "--out", str(out)]
    assert main([*words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    here, there = printed["needs"].values()
    assert list(printed["needs"]) == ["here (1 CPU)", "8 x 8 GPUs"]
    assert here["state"] == 2 * 10 * printed["workload"]["samples"]
    assert 0 < there["epoch"] < here["epoch"]
    monkeypatch.setenv("COLUMNS", "80")
    assert main(words) == 0
    *lines, following = capsys.readouterr().out.splitlines()
    assert any("predictions and targets" in line for line in lines)
    assert max(len(line) for line in lines if not line.startswith("Free here")) <= 80  # its path can be long
    assert following == f"Next: vista train {' '.join(word for word in words[1:] if word != '--dry-run')}"
    assert not out.exists()


def test_the_table_of_the_page_is_computed() -> None:
    path = Path(__file__).parents[3] / "docs" / "scale_table.py"
    spec = importlib.util.spec_from_file_location("scale_table", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.page() == module.PAGE.read_text(), "run python docs/scale_table.py"


def test_dry_run_rejects_a_method_that_does_not_support_cutmix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "--data", "digits", "--method", "elr", "--cutmix", "0.5", "--dry-run", "--out", str(tmp_path)]
    assert main(words) == 2
    assert "method 'elr' does not support CutMix: use --cutmix 0" in capsys.readouterr().err
