"""Custom networks: partly frozen, with shared layers, buffers, and draws from torch's generators."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from trainings import Trainer, config, ended_as, stopped, train

import vista
from vista import models
from vista.cli import main
from vista.runs.config import TrainConfig
from vista.runs.folder import MANIFEST, RunFolder
from vista.training import build
from vista.training.resolve import identity, resolve
from vista.training.state import TorchRng

CPU = torch.device("cpu")


def weights(out: Path, which: str = "last") -> dict[str, torch.Tensor]:
    return load_file(out / f"{which}.safetensors")


def at_first(network: str) -> dict[str, torch.Tensor]:
    return models.build(network, num_classes=10, in_channels=1, image_size=8, seed=0).state_dict()


@pytest.mark.parametrize("processes", [1, 2])
def test_frozen_weights_stay_as_they_are(trainer: Trainer, data: str, tmp_path: Path, processes: int) -> None:
    ended = trainer.try_to(config(data, "ce", network="trainings:half_frozen"), tmp_path / "run", processes=processes)
    assert not ended.failed, ended.output
    before, after = at_first("trainings:half_frozen"), weights(tmp_path / "run")
    assert torch.equal(before["1.weight"], after["1.weight"])
    assert not torch.equal(before["3.weight"], after["3.weight"])


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("untrainable:frozen", "has no parameter that requires a gradient"),
        ("untrainable:detached", "returns logits without a gradient, but it has weights"),
    ],
)
def test_what_cannot_be_trained_is_rejected(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: str, message: str
) -> None:
    (tmp_path / "untrainable.py").write_text(
        "from torch import nn\n"
        "class Detached(nn.Linear):\n    def forward(self, x):\n        return super().forward(x.flatten(1)).detach()\n"
        "def detached(num_classes):\n    return Detached(64, num_classes)\n"
        "def frozen(num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes)).requires_grad_(False)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match=f"network '{network}' {message}"):
        train(config(data, "ce", network=network), tmp_path / "run")


def test_a_layer_used_twice_is_saved_loaded_and_exported(data: str, tmp_path: Path) -> None:
    train(config(data, network="trainings:twice_the_same"), tmp_path / "run")
    for which in ("best", "last"):
        saved = weights(tmp_path / "run", which)
        assert torch.equal(saved["3.weight"], saved["5.weight"])
        network = vista.load_model(tmp_path / "run", which, "trainings:twice_the_same")
        assert network.get_parameter("3.weight").equal(saved["3.weight"])
    argv = ["export", str(tmp_path / "run"), "--to", str(tmp_path / "net.safetensors")]
    assert main([*argv, "--network", "trainings:twice_the_same"]) == 0
    exported = load_file(tmp_path / "net.safetensors")
    assert exported.keys() == weights(tmp_path / "run", "best").keys()


def test_draws_from_torchs_generator_are_those_of_the_seed(data: str, tmp_path: Path) -> None:
    wanted = config(data, network="trainings:drops")
    for name, seed in (("run", 1), ("again", 2)):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        train(wanted, tmp_path / name)
        assert torch.equal(torch.get_rng_state(), before), "what is drawn outside does not notice"
    assert ended_as(tmp_path / "run") == ended_as(tmp_path / "again")
    train(config(data, network="trainings:drops", seed=1, noise_seed=0, split_seed=0), tmp_path / "other")
    assert ended_as(tmp_path / "run") != ended_as(tmp_path / "other")


@pytest.mark.parametrize("method", ["vista", "ema", "kf-kd"])
def test_weights_that_wait_for_a_sample_are_those_of_the_seed(data: str, tmp_path: Path, method: str) -> None:
    wanted = config(data, method, network="trainings:lazy")
    train(wanted, tmp_path / "run")
    torch.rand(5)
    train(wanted, tmp_path / "again")
    assert ended_as(tmp_path / "run") == ended_as(tmp_path / "again")
    network = vista.load_model(tmp_path / "run", "last", "trainings:lazy")
    assert type(network[1]) is torch.nn.Linear  # type: ignore[index]
    assert network(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


def test_trying_a_network_out_leaves_no_trace_in_it(data: str, tmp_path: Path) -> None:
    training = build.build_training(
        resolve(config(data, "ce", network="trainings:normalised")), RunFolder(tmp_path / "run"), {}
    )
    before = at_first("trainings:normalised")
    after = training.network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert training.network.training


@pytest.mark.parametrize("batch_size", [64, 63])  # 63 leaves one sample alone, which is tried out as well
def test_trying_a_network_out_takes_no_draws_from_torchs_generator(data: str, tmp_path: Path, batch_size: int) -> None:
    before = torch.random.get_rng_state()
    build.build_training(
        resolve(config(data, "ce", network="trainings:drops", batch_size=batch_size)), RunFolder(tmp_path / "run"), {}
    )
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("step", [0, 1])
def test_stopped_it_continues_with_the_same_draws(data: str, tmp_path: Path, step: int) -> None:
    wanted = config(data, network="trainings:drops")
    train(wanted, tmp_path / "run")
    stopped(wanted, tmp_path / "stopped", epoch=2, step=step)
    torch.rand(5)
    train(wanted, tmp_path / "stopped")
    assert ended_as(tmp_path / "run") == ended_as(tmp_path / "stopped")


def test_two_runs_in_turn_do_not_draw_from_each_other() -> None:
    def drawn(draws: TorchRng) -> list[float]:
        with draws.installed():
            return torch.rand(3).tolist()

    alone, one, other = TorchRng(0, CPU), TorchRng(0, CPU), TorchRng(1, CPU)
    expected = drawn(alone) + drawn(alone)
    found = drawn(one)
    assert drawn(other) != found
    assert found + drawn(one) == expected
    with one.installed():
        torch.rand(2)
        kept = one.state()
        following = torch.rand(4)
        one.load(kept)
        assert torch.equal(torch.rand(4), following), "a state may be taken and brought back on the way"


def test_draws_of_the_cpu_go_on_on_a_card_whose_own_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    own = torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda *_device: own())
    draws = TorchRng(0, torch.device("cuda"))
    _, on_card = draws.state()
    saved = own().manual_seed(7).get_state()
    draws.load([saved])
    assert [state.tolist() for state in draws.state()] == [saved.tolist(), on_card.tolist()]


@pytest.mark.parametrize("method", ["kf-kd", "vista-ema", "ema", "ban"])
def test_what_it_looks_up_stays(data: str, tmp_path: Path, method: str) -> None:
    train(config(data, method, network="trainings:looks_up", epochs=4), tmp_path / "run")
    before = at_first("trainings:looks_up")
    for which in ("best", "last"):
        after = weights(tmp_path / "run", which)
        assert torch.equal(after["order"], before["order"])
        assert torch.equal(after["mask"], before["mask"])


def test_a_fresh_start_has_the_counts_that_the_first_one_had(data: str, tmp_path: Path) -> None:
    train(config(data, "kf-kd", network="trainings:looks_up", epochs=4), tmp_path / "run")
    steps = 2 * 2  # of the two epochs after the fresh start
    assert weights(tmp_path / "run")["seen"] == 3 + steps


def test_a_seed_may_be_numpys(data: str, tmp_path: Path) -> None:
    for seed in np.arange(2):
        wanted = config(data, "ce", seed=seed, lr=np.float32(0.125))
        assert wanted == config(data, "ce", seed=int(seed), lr=0.125)
        assert identity(wanted) == identity(config(data, "ce", seed=int(seed), lr=0.125))
        train(wanted, tmp_path / f"run{seed}")
        assert RunFolder(tmp_path / f"run{seed}").config().seed == seed
    with pytest.raises(ValueError, match=r"seed must be a whole number, got 1\.5"):
        TrainConfig(seed=np.float64(1.5))


def test_code_that_a_folder_names_is_run_for_those_alone_who_name_it_too(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.py").write_text(
        "from pathlib import Path\nfrom torch import nn\nPath('was_here').touch()\n"
        "def net(num_classes):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))\n"
    )
    train(config(data, "ce", network="theirs:net"), Path("run"))
    Path("stopped").mkdir()
    shutil.copy("run/config.json", "stopped")
    Path("was_here").unlink()
    monkeypatch.delitem(sys.modules, "theirs")  # so that it would be imported anew
    commands = [
        ["evaluate", "run"],
        ["predict", "run", "--data", data],
        ["export", "run", "--to", "net.safetensors"],
        ["resume", "stopped"],
    ]
    for words in commands:
        assert main(words) == 2
        assert "add --network theirs:net" in capsys.readouterr().err
        assert main([*words, "--network", "another:net"]) == 2
        assert "network is 'another:net', but the run was trained with 'theirs:net'" in capsys.readouterr().err
    with pytest.raises(ValueError, match="is custom code"):
        vista.load_model("run")
    assert not Path("was_here").exists()
    for words in commands:
        assert main([*words, "--network", "theirs:net"]) == 0
    assert Path("was_here").exists()


def test_weights_that_do_not_fit_are_named(data: str, tmp_path: Path) -> None:
    """The code of a custom network may have changed since its training; for others a file is damaged."""
    train(config(data, "ce"), tmp_path / "run")
    (tmp_path / "run" / MANIFEST).unlink()  # or the checksum would be all that is read
    path = tmp_path / "run" / "best.safetensors"
    changed = load_file(path)
    name = next(name for name, value in changed.items() if value.dim() == 4)
    changed[name] = changed[name].flatten(1)
    changed["extra"] = changed.popitem()[1]
    save_file(changed, path)
    with pytest.raises(ValueError, match=f"best.safetensors do not fit network .*Missing .*size mismatch for {name}"):
        vista.load_model(tmp_path / "run")
