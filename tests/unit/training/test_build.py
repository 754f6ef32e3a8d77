"""How a run is built."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from trainings import config, train

from vista import split
from vista.data import source
from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.training import build
from vista.training import state as training_module
from vista.training.resolve import resolve
from vista.training.samples import labels_and_split, load_samples


def test_a_runs_stream_waits_for_what_built_it(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run works on a stream of its own, but is built on the default one, whose kernels may come late.

    On a busy GPU they did: a run's learning rates overwrote 32 bytes of an index that was still to be read.
    """
    done: list[object] = []

    class Engine(build.Engine):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            done.append("built")
            self.stream: Any = SimpleNamespace(wait_stream=lambda other: done.append(other))

    monkeypatch.setattr(build, "Engine", Engine)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"the default stream of {device}")
    build.build_training(resolve(config(data)), RunFolder(tmp_path / "run"), {})
    assert done == ["built", "the default stream of cpu"]


def test_a_step_is_made_as_the_options_say_for_the_methods_own_weights_too(data: str, tmp_path: Path) -> None:
    options = {"momentum": 0.3, "weight_decay": 0.02, "nesterov": True}
    training = build.build_training(resolve(config(data, "byot", **options)), RunFolder(tmp_path / "run"), {})
    (group,) = training.optimizer.param_groups
    assert {name: group[name] for name in options} == options
    own = list(training.method.parameters())
    assert own
    assert {id(weight) for weight in own} <= {id(weight) for weight in group["params"]}


@pytest.mark.parametrize(
    "changes",
    [{"data": "npz:nothere.npz"}, {"noise": "file:nothere.csv"}, {"method": "ban", "data": "npz:nothere.npz"}],
)
def test_a_run_that_is_rejected_at_once_leaves_no_folder(data: str, tmp_path: Path, changes: dict[str, str]) -> None:
    with pytest.raises(FileNotFoundError):
        train(config(**{"data": data, **changes}), tmp_path / "runs" / "new" / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", ["data.json", "environment.json", "labels.safetensors", "split.safetensors"])
def test_a_run_has_its_name_only_once_all_is_there_that_describes_it(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    def fill(what: str, path: Path) -> None:
        if what == "half" and path.name == file:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("vista.files.atomic.on_write", fill)
    with pytest.raises(OSError, match=f"cannot write .*{file}"):
        train(config(data), tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_run_whose_checkpoints_would_not_fit_does_not_begin(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(OSError, match="run has 1 KB free, but checkpoints of this run may need"):
        train(config(data), tmp_path / "run")
    assert not (tmp_path / "run").exists(), list((tmp_path / "run").rglob("*"))


def test_a_label_file_names_classes(data: str, tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("id,label\n0,a 7\n")
    named = replace(source.load(data), classes=tuple(f"a {number}" for number in range(10)))
    labels, _ = labels_and_split(config(data, noise=f"file:{tmp_path / 'l.csv'}"), named, None)
    assert labels.given[0] == 7


def test_noise_and_split_are_drawn_each_by_its_own_seed(data: str) -> None:
    given, parts = labels_and_split(config(data, noise_seed=3, split_seed=4), source.load(data), None)
    of_noise, _ = labels_and_split(config(data, seed=3), source.load(data), None)
    assert given.hash == of_noise.hash
    assert parts.hash == split.stratified(given.given, 31, 4).hash, "each class by its share of the labels given"


def test_classes_are_taken_for_others_of_their_group(data: str) -> None:
    grouped = replace(source.load(data), groups=(0, 0, 1, 1, 2, 2, 3, 3, 4, 4))
    given, _ = labels_and_split(config(data, noise="asymmetric:0.5"), grouped, None)
    assert (given.given != given.true).any()
    assert np.array_equal(given.given // 2, given.true // 2)


def test_from_1_on_validation_is_a_number_of_samples(data: str) -> None:
    for wanted, found in ((1.0, 1), (0.5, 79)):
        assert len(labels_and_split(config(data, validation=wanted), source.load(data), None)[1].val) == found


def test_the_noise_rate_printed_is_that_of_all_labels_drawn(data: str, tmp_path: Path) -> None:
    training = build.build_training(resolve(config(data, "ce", noise="symmetric:0.4")), RunFolder(tmp_path), {})
    assert training.samples.description.noise_rate == 63 / 158, "those held out for validation among them"


def test_a_validation_set_that_leaves_nothing_is_named_as_the_option(data: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^validation=1e\+06 cannot be held out: fraction must leave a training"):
        train(config(data, validation=1_000_000), tmp_path / "run")


def test_a_batch_larger_than_the_data_takes_no_more_room_than_these(data: str, tmp_path: Path) -> None:
    training = build.build_training(resolve(config(data, "ce", batch_size=10**8)), RunFolder(tmp_path), {})
    assert len(training.loader.order) == len(training.samples.train)


def test_images_for_statistics_come_in_no_batch_of_one(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = build.build_training(resolve(config(data, "ce")), RunFolder(tmp_path), {})
    n = len(training.samples.train)
    monkeypatch.setattr(training_module, "EVALUATION_BATCH", n - 1)
    sizes = [len(batch) for batch in training.train_images()]
    assert sorted(sizes) == [n // 2, -(-n // 2)]


@pytest.fixture
def oblong(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    arrays = {"x": rng.integers(0, 256, (60, 8, 12, 1), dtype=np.uint8), "y": np.arange(60) % 3}
    np.savez(tmp_path / "oblong.npz", **arrays)
    return f"npz:{tmp_path / 'oblong.npz'}"


def test_samples_that_are_set_aside_for_the_test_are_in_no_other_part(oblong: str, tmp_path: Path) -> None:
    training = build.build_training(
        resolve(config(oblong, "ce", noise="none", validation=10)), RunFolder(tmp_path / "run"), {}
    )
    counts, samples = training.samples.description.samples, training.samples
    assert counts == {"train": len(samples.train), "val": 10, "test": len(samples.test)}
    aside = source.load(oblong).test_ids
    assert sorted([*samples.split.train, *samples.split.val, *aside]) == list(range(60))
    assert len(samples.test) == len(samples.test_labels) == len(aside)


@pytest.fixture
def with_val(oblong: str, tmp_path: Path) -> str:
    """The same with 12 samples of its own for validation, ids 60 to 71."""
    rng = np.random.default_rng(1)
    with np.load(oblong.removeprefix("npz:")) as file:
        own = {"x_val": rng.integers(0, 256, (12, 8, 12, 1), dtype=np.uint8), "y_val": np.arange(12) % 3}
        np.savez(tmp_path / "with_val.npz", **file, **own)
    return f"npz:{tmp_path / 'with_val.npz'}"


def test_what_the_data_hold_out_for_validation_is_used_with_its_own_labels(with_val: str, tmp_path: Path) -> None:
    chosen = config(with_val, "ce", noise="symmetric:0.5", validation=TrainConfig.validation)
    training = build.build_training(resolve(chosen), RunFolder(tmp_path / "run"), {})
    samples, data = training.samples, source.load(with_val)
    assert samples.split.val.tolist() == list(range(60, 72))
    assert np.array_equal(samples.split.train, data.train_ids)
    assert np.array_equal(samples.labels("val", "given"), np.arange(12) % 3), "drawn noise falls on training labels"
    assert samples.description.noise_rate == 0.5
    counted = samples.description.samples
    assert counted == {"train": len(data.train_ids), "val": 12, "test": len(data.test_labels)}
    pixels = torch.from_numpy(data.inputs[60:]).permute(0, 3, 1, 2) / 255
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (data.mean, data.std))
    torch.testing.assert_close(samples.val.clean(torch.arange(12)).float(), ((pixels - mean) / std).float())


def test_what_the_data_hold_out_may_be_left_alone(with_val: str, oblong: str) -> None:
    options = {"noise": "symmetric:0.5", "validation": 10, "own_validation": False}
    described = [load_samples(config(data, **options), torch.device("cpu")).description for data in (with_val, oblong)]
    assert [each.name for each in described] == [with_val, oblong]
    one, other = (dataclasses.replace(each, name="") for each in described)
    assert one == other, "as if it were not there"


def test_own_samples_for_validation_that_have_no_label_are_not_used(with_val: str, tmp_path: Path) -> None:
    data, file = source.load(with_val), tmp_path / "labels.csv"
    chosen = config(with_val, noise=f"file:{file}")
    file.write_text("id,label\n0,-1\n60,-1\n61,2\n")
    given, parts = labels_and_split(chosen, data, None)
    assert parts.val.tolist() == list(range(61, 72))
    assert given.given[61] == 2, "a label file may correct them"
    assert np.array_equal(parts.train, data.train_ids)
    file.write_text("id,label\n" + "".join(f"{number},-1\n" for number in range(60, 72)))
    with pytest.raises(ValueError, match=r"none of the 12 validation samples .* has a label: use --no-own-validation"):
        labels_and_split(chosen, data, None)


@pytest.mark.parametrize("network", ["mlp", "small-cnn", "tiny-staged"])
def test_images_need_not_be_square(oblong: str, tmp_path: Path, network: str) -> None:
    train(config(oblong, "ce", network=network, noise="none", batch_size=8, validation=10), tmp_path / "run")
    assert (tmp_path / "run" / "metrics.json").exists()


def test_a_path_may_begin_at_home(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "given.csv").write_text("id,label\n0,1\n")
    train(config(data, "ce", noise="file:~/given.csv", epochs=2), tmp_path / "run")
    with pytest.raises(FileNotFoundError, match=rf"is not at {tmp_path}/data/"):
        source.load("cifar100", "~/data")


def test_a_relative_path_says_where_it_led(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=rf"data file here\.npz does not exist in {tmp_path}"):
        source.load("npz:here.npz")


def test_a_network_that_takes_squares_alone_says_so(oblong: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"network 'vit-tiny' needs square images, got 8 x 12"):
        train(config(oblong, "ce", network="vit-tiny", noise="none", validation=10), tmp_path / "run")
