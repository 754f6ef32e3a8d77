"""A custom method: one registered class is enough for training, listing and configuration."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vista import methods
from vista.cli import methods as listing
from vista.methods import EpochEnd, Method, Task, available, choose, register
from vista.runs.folder import RunFolder
from vista.training.scheduler import Job, run_jobs


class Doubt(Method):
    """Targets with a share of the mean prediction on the validation samples."""

    name = "doubt"
    family = "past epochs"
    summary = "Each target includes a share of the mean prediction of the previous epoch"
    cost = "1 forward, 1 backward"
    keeps = "K float32"
    source = "this test"
    variants = {"doubt-more": {"doubt": 0.5}}  # noqa: RUF012

    mean: Tensor

    @dataclass(frozen=True)
    class Config:
        doubt: float = 0.1
        """Share of the mean prediction."""

    def __init__(self, task: Task, network: nn.Module, config: Any) -> None:
        super().__init__(task, network, config)
        self.register_buffer("mean", torch.full((task.num_classes,), 1.0 / task.num_classes))

    def targets(self, index: Tensor) -> Tensor:
        doubt = self.config.doubt
        return (1.0 - doubt) * self.task.one_hot(index) + doubt * self.mean

    def end_epoch(self, end: EpochEnd) -> dict[str, Any]:
        self.mean.copy_(end.val_logits.softmax(dim=1).mean(dim=0))
        return {"max_mean": float(self.mean.max())}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "_registered", {})
    register(Doubt)


def test_is_found_with_its_variant_in_its_family() -> None:
    names = list(available())
    assert names.index("ban") < names.index("doubt") < names.index("doubt-more") < names.index("elr")
    assert choose("doubt:doubt=0.25").config.doubt == 0.25
    assert choose("doubt-more").options == {"doubt": 0.5}


def test_command_line_lists_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert listing.run(["--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["methods"]
    assert [row["options"] for row in rows if row["name"] == "doubt"] == [{"doubt": 0.1}]


@pytest.mark.parametrize("method", ["doubt", "doubt-more"])
def test_trains(make_config, tmp_path: Path, method: str) -> None:
    job = Job(make_config(method), tmp_path / "run")
    run_jobs([job], lambda _job, _event: None)
    assert job.error is None
    assert job.metrics is not None
    assert job.metrics["last"]["test"]["top1"] > 0.3
    assert all("max_mean" in line for line in RunFolder.open(tmp_path / "run").record().lines)
