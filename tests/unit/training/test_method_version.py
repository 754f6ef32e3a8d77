"""A run records the version of its method: runs of an older version are other runs, and stay readable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from vista.methods import available
from vista.methods.base import Batch
from vista.methods.ce import CrossEntropy
from vista.reproduce import protocol
from vista.reproduce.ledger import cell_key, plain_config
from vista.runs.config import TrainConfig
from vista.runs.folder import CONFIG, MANIFEST, RunFolder
from vista.training.loop import train
from vista.training.optimization import learning_rates
from vista.training.resolve import identity, resolve

TINY = {"data": "digits", "network": "mlp", "epochs": 2, "batch_size": 512, "validation": 270, "device": "cpu"}
CHANGED = sorted({method.name for method in available().values() if method.version > 1})


def older(config: TrainConfig) -> TrainConfig:
    """The configuration as it was recorded before methods had versions."""
    return TrainConfig.from_json({k: v for k, v in config.to_json().items() if k != "method_version"})


def test_methods_whose_computation_changed() -> None:
    assert CHANGED == ["byot", "frskd", "meta-weight-net", "temporal-ensembling"]


@pytest.mark.parametrize("method", CHANGED)
def test_old_and_new_version_are_different_runs_and_cells(method: str) -> None:
    new = protocol.make_config(method, protocol.symmetric(40), 0)
    assert resolve(new).identity == identity(new)
    assert identity(older(new)) != identity(new)
    assert cell_key(older(new)) != cell_key(new), "never averaged"


@pytest.mark.parametrize("method", ["ce", "kf", "vista-light"])
def test_runs_of_unchanged_methods_keep_their_identity(method: str) -> None:
    config = protocol.make_config(method, protocol.symmetric(40), 0)
    assert identity(older(config)) == identity(config)


def test_plain_run_inside_another_has_the_version_of_plain_training() -> None:
    config = plain_config(protocol.make_config("kf", protocol.CLEAN, 0))
    assert config is not None
    assert config.method_version == 1


def test_run_of_an_older_version_is_read_but_not_resumed(tmp_path: Path) -> None:
    config = TrainConfig(**TINY, method="temporal-ensembling")
    for _ in train(config, tmp_path / "run"):
        pass
    folder = RunFolder.open(tmp_path / "run")
    assert folder.config().method_version == 2
    kept = json.loads((folder.path / CONFIG).read_text())
    del kept["method_version"]
    (folder.path / CONFIG).write_text(json.dumps(kept))
    (folder.path / MANIFEST).unlink()  # it has the checksum of the new file
    assert RunFolder.open(folder.path).config().method_version == 1
    with pytest.raises(ValueError, match=r"with method_version=1 instead of 2: choose another --out"):
        list(train(config, folder.path))


def test_method_knows_learning_rate_of_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    original = CrossEntropy.loss

    def loss(self: CrossEntropy, network: nn.Module, batch: Batch) -> Tensor:
        seen.append(float(torch.as_tensor(self.learning_rate)))
        return original(self, network, batch)

    monkeypatch.setattr(CrossEntropy, "loss", loss)
    config = TrainConfig(**TINY, method="ce", lr=0.3)
    for _ in train(config, tmp_path / "run"):
        pass
    steps = len(seen) // 2
    expected = [rate for epoch in (1, 2) for rate in learning_rates(config, epoch, steps)]
    assert seen == pytest.approx(expected)
