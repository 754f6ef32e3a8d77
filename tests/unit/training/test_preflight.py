"""Runs that cannot be trained are rejected before the first step; the error names the cause."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from trainings import Trainer, config, ended_as, train

from vista.training import preflight
from vista.training.resolve import differences, identity, resolve


@pytest.mark.parametrize(("batch_size", "advice"), [(126, 127), (63, 64), (42, 43)])
def test_a_sample_alone_in_a_batch_of_batch_norm_is_explained(
    data: str, tmp_path: Path, batch_size: int, advice: int
) -> None:
    expected = (
        rf"batch_size is {batch_size}, which leaves one of 127 training samples alone in a batch, but BatchNorm in "
        rf"network 'tiny-staged' needs at least two: use another --batch-size, such as {advice}$"
    )
    with pytest.raises(ValueError, match=expected):
        train(config(data, "ce", batch_size=batch_size), tmp_path / "run")
    train(config(data, "ce", batch_size=advice, epochs=2), tmp_path / "another run")


@pytest.mark.parametrize(
    ("network", "method"), [("small-cnn", "ce"), ("trainings:plain", "ce"), ("tiny-staged", "ddgsd")]
)
def test_a_batch_of_one_is_trained_on_where_it_can_be(data: str, tmp_path: Path, network: str, method: str) -> None:
    """Without a 1 x 1 map, without BatchNorm, or with two views at once; and trying it out leaves no trace."""
    wanted = config(data, method, network=network, batch_size=63, epochs=2)
    train(wanted, tmp_path / "run")
    torch.rand(3)
    train(wanted, tmp_path / "again")
    assert ended_as(tmp_path / "run") == ended_as(tmp_path / "again")


def test_a_process_left_with_one_sample_is_named(trainer: Trainer, data: str, tmp_path: Path) -> None:
    """The last batch holds three samples, of which the second process takes one."""
    ended = trainer.try_to(config(data, "ce", batch_size=62), tmp_path / "run", processes=2)
    assert ended.failed
    assert "leaves one of 127 training samples alone in a batch" in ended.output
    assert "use another --batch-size" in ended.output


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (
            "misfits:narrow",
            r"returns shape \(1, 2\) for one sample of shape .*, but logits of shape \(1, 10\) are needed",
        ),
        ("misfits:several", "returns a tuple for one sample"),
        (
            "misfits:more_in_training",
            r"returns a tuple for two samples in training mode of shape 1 x 8 x 8, but logits",
        ),
        ("misfits:other", "does not accept samples of shape 1 x 8 x 8: RuntimeError: "),
    ],
)
def test_a_network_that_does_not_suit_the_samples_is_named(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: str, message: str
) -> None:
    (tmp_path / "misfits.py").write_text(
        "from torch import nn\n"
        "def narrow(num_classes):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 2))\n"
        "class Several(nn.Linear):\n    def forward(self, x):\n        return super().forward(x.flatten(1)), x\n"
        "def several(num_classes):\n    return Several(64, num_classes)\n"
        "def other(num_classes):\n    return nn.Sequential(nn.Flatten(), nn.Linear(7, num_classes))\n"
        "class Aided(nn.Linear):\n    def forward(self, x):\n"
        "        z = super().forward(x.flatten(1))\n        return (z, z) if self.training else z\n"
        "def more_in_training(num_classes):\n    return Aided(64, num_classes)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match=f"network '{network}' {message}"):
        train(config(data, "ce", network=network), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_other_errors_of_a_batch_of_one_are_unchanged(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sociable.py").write_text(
        "from torch import nn\n"
        "class Sociable(nn.Linear):\n    def forward(self, x):\n"
        "        if self.training and len(x) == 1:\n            raise ValueError('one alone is too few')\n"
        "        return super().forward(x.flatten(1))\n"
        "def network(num_classes):\n    return Sociable(64, num_classes)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match=r"^one alone is too few$"):
        train(config(data, "ce", network="sociable:network", batch_size=63), tmp_path / "run")


def test_an_image_network_on_features_is_named(tmp_path: Path) -> None:
    y = np.arange(40) % 2
    np.savez(tmp_path / "f.npz", x=np.random.default_rng(0).normal(size=(40, 5)), y=y)
    with pytest.raises(ValueError, match="network 'resnet18' does not accept samples of shape 5: "):
        train(
            config(f"npz:{tmp_path / 'f.npz'}", "ce", network="resnet18", padding=None, flip=None, rotation=0.0),
            tmp_path / "run",
        )


@pytest.mark.parametrize(
    "changes",
    [{}, {"method": "vista:tau=0.01"}, {"method": "ce"}, {"method": "vista:k=3"}, {"lr": 0.3}, {"seed": 1},
     {"checkpoint_seconds": 7.0}, {"lr": 0.3, "batch_size": 9}, {"lr": 1}, {"lr": np.float32(1)}, {"momentum": 0}],
    ids=str,
)  # fmt: skip
def test_runs_have_no_difference_where_they_are_one_and_the_same(data: str, changes: dict[str, Any]) -> None:
    one, other = config(data, "vista-light"), config(data, **{"method": "vista-light", **changes})
    assert (identity(one) == identity(other)) == (differences(one, other) == [])


@pytest.mark.parametrize(
    ("whole", "broken"),
    [({"lr": 1}, {"lr": 1.0}), ({"validation": 9}, {"validation": np.int64(9)}),
     ({"validation": 9}, {"validation": 9.0}), ({"options": {"k": 3}}, {"options": {"k": 3.0}}),
     ({"options": {"k": 3}}, {"options": {"k": np.float32(3)}}),
     ({"options": {"value": 1, "schedule": "fixed"}}, {"options": {"value": 1.0, "schedule": "fixed"}})],
    ids=str,
)  # fmt: skip
def test_a_whole_number_is_the_same_run_as_the_same_number_with_a_point(
    data: str, whole: dict[str, Any], broken: dict[str, Any]
) -> None:
    one, other = config(data, "vista", **whole), config(data, "vista", **broken)
    assert differences(one, other) == []
    assert identity(one) == identity(other)
    assert json.dumps(resolve(one).config.to_json()) == json.dumps(resolve(other).config.to_json())


def of_shape(shape: tuple[int, ...]) -> Any:
    return SimpleNamespace(val=SimpleNamespace(sample_shape=shape))


@pytest.mark.parametrize("shape", [(8, 8, 3), (8, 8, 1), (8, 12, 3), (5, 8, 3)], ids=str)
@pytest.mark.parametrize("network", ["auto", "small-cnn", "resnet18"])
def test_float_images_with_channels_last_are_not_taken_for_many_channels(shape: tuple[int, ...], network: str) -> None:
    with pytest.raises(ValueError, match=r"expects channels first, but a sample has shape \d x .*numpy\.moveaxis"):
        preflight.check_channels_first(config("npz:floats.npz", "ce", network=network), of_shape(shape))


@pytest.mark.parametrize(
    ("shape", "network"),
    [((3, 8, 8), "resnet18"), ((8, 12, 1), "resnet18"), ((4, 8, 3), "resnet18"), ((8, 8, 3), "mlp"), ((6,), "auto"),
     ((8, 8, 3), "trainings:plain")],
    ids=str,
)  # fmt: skip
def test_other_floats_are_taken_as_they_are(shape: tuple[int, ...], network: str) -> None:
    preflight.check_channels_first(config("npz:floats.npz", "ce", network=network), of_shape(shape))


def test_a_run_on_float_images_with_channels_last_does_not_begin(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", x=np.zeros((60, 8, 8, 3)), y=np.arange(60) % 3)
    plain: dict[str, Any] = {"network": "auto", "padding": None, "flip": None, "rotation": 0.0, "noise": "none"}
    with pytest.raises(ValueError, match="network 'small-cnn' expects channels first"):
        train(config(f"npz:{tmp_path / 'f.npz'}", "ce", validation=12, **plain), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "changes", [{"cutmix": 1.0}, {"padding": 1}, {"flip": True}, {"rotation": 5.0}, {"augment": "trivial"}]
)
def test_features_are_not_mixed_shifted_mirrored_or_turned(tmp_path: Path, changes: dict[str, Any]) -> None:
    y = np.arange(40) % 2
    np.savez(tmp_path / "f.npz", x=np.random.default_rng(0).normal(size=(40, 5)), y=y)
    plain: dict[str, Any] = {"network": "mlp", "padding": None, "flip": None, "rotation": 0.0}
    (name,) = changes
    with pytest.raises(ValueError, match=f"{name} is .*, but npz:.* has no images: leave out --{name}"):
        train(config(f"npz:{tmp_path / 'f.npz'}", "ce", **{**plain, **changes}), tmp_path / "run")


@pytest.mark.parametrize("lacking", [0, 1])
def test_a_run_begins_only_where_its_checkpoints_fit_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: int
) -> None:
    """Two, and a third that is being written; each holds weights, momentum and the best weights of its own."""
    network = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5))
    weights = 4 * (3 * 5 + 5 + 4 * 5) + 8  # float32, and the batches that BatchNorm counts
    method: Any = SimpleNamespace(
        bytes_changing=lambda: 100,
        bytes_written_once=lambda: 700,
        advice_for_less_disk_space=lambda: ": keep fewer anchors",
    )

    def usage(path: Path) -> SimpleNamespace:
        assert path.is_dir()
        return SimpleNamespace(free=3 * (3 * weights + 100) + 700 - lacking)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    if not lacking:
        preflight.check_disk_space(tmp_path / "new" / "run", preflight.bytes_of_checkpoints(network, method, 0), method)
        return
    with pytest.raises(OSError, match=r"run has .* free, but checkpoints of this run may need .*: keep fewer anchors$"):
        preflight.check_disk_space(tmp_path / "new" / "run", preflight.bytes_of_checkpoints(network, method, 0), method)


def test_what_a_runs_own_checkpoints_hold_counts_as_room_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a run that is resumed on a disk that was just large enough is rejected for what it has saved itself."""
    network = torch.nn.Linear(99, 10)  # 1000 weights of four bytes, nine times
    method: Any = SimpleNamespace(
        bytes_changing=lambda: 0, bytes_written_once=lambda: 1000, advice_for_less_disk_space=lambda: "; use less"
    )
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda path: SimpleNamespace(free=36_500))
    with pytest.raises(OSError, match=rf"{tmp_path} has 36.5 KB free, but checkpoints of this run may need 37 KB; use"):
        preflight.check_disk_space(tmp_path, preflight.bytes_of_checkpoints(network, method, 0), method)
    for file, size in {"checkpoints/a/tensors": 300, "blobs/a": 100, "last.safetensors": 100}.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(bytes(size))
    with pytest.raises(OSError, match=r"may need 36\.6 KB more: free disk space, or move the folder to a larger disk"):
        preflight.check_disk_space(tmp_path, preflight.bytes_of_checkpoints(network, method, 0), method)
    (tmp_path / "blobs" / "b").write_bytes(bytes(100))
    preflight.check_disk_space(tmp_path, preflight.bytes_of_checkpoints(network, method, 0), method)
