"""A run is resumed, counts as finished and is evaluated only with the data that it started with."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from trainings import config, stopped, train

from vista.cli import main
from vista.data import source
from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.training.evaluate import evaluate
from vista.training.events import Finished, Started


def write_labels(path: Path, labels: NDArray[Any]) -> None:
    path.write_text("id,label\n" + "".join(f"{i},{label}\n" for i, label in enumerate(labels)))


@pytest.fixture
def labels(data: str) -> NDArray[Any]:
    with np.load(data.removeprefix("npz:")) as file:
        given: NDArray[Any] = file["y_train"]
    return given


@pytest.fixture
def by_file(data: str, labels: NDArray[Any], tmp_path: Path) -> TrainConfig:
    """A run whose labels come from a file."""
    write_labels(tmp_path / "given.csv", labels)
    return config(data, "ce", noise=f"file:{tmp_path / 'given.csv'}")


@pytest.fixture
def by_copy(data: str, tmp_path: Path) -> TrainConfig:
    """A run on a data file of its own."""
    copy = tmp_path / "copy.npz"
    copy.write_bytes(Path(data.removeprefix("npz:")).read_bytes())
    return config(f"npz:{copy}", "ce")


def rewrite(configuration: TrainConfig, **changes: Any) -> None:
    path = configuration.data.removeprefix("npz:")
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{**arrays, **{name: change(arrays[name]) for name, change in changes.items()}})


def refusal(configuration: TrainConfig, out: Path) -> str:
    with pytest.raises(ValueError, match="was trained on") as raised:
        train(configuration, out)
    return str(raised.value)


@pytest.mark.parametrize("method", ["ce", "vista"])
@pytest.mark.parametrize("finished", [False, True])
def test_other_labels_in_the_file_are_rejected(
    by_file: TrainConfig, labels: NDArray[Any], tmp_path: Path, method: str, finished: bool
) -> None:
    wanted, out = dataclasses.replace(by_file, method=method), tmp_path / "run"
    if finished:
        train(wanted, out)
    else:
        stopped(wanted, out, 2, 1)
    write_labels(tmp_path / "given.csv", (labels + 1) % 10)
    assert refusal(wanted, out) == (
        f"{out} was trained on other labels than --noise {wanted.noise} provides now: "
        "restore the old labels, or start anew with --fresh"
    )
    write_labels(tmp_path / "given.csv", labels)
    events = train(wanted, out)
    assert isinstance(events[0], Finished if finished else Started)


def test_other_human_labels_are_rejected_where_the_run_has_finished(tmp_path: Path) -> None:
    true = source.load("digits").labels
    wanted = config("digits", "ce", noise="human", root=str(tmp_path), network="mlp", epochs=2, batch_size=512)
    np.savez(tmp_path / "cifar-100n.npz", clean_label=true, noisy_label=true)
    train(wanted, tmp_path / "run")
    np.savez(tmp_path / "cifar-100n.npz", clean_label=true, noisy_label=(true + 1) % 10)
    assert "was trained on other labels than --noise human provides now" in refusal(wanted, tmp_path / "run")


def test_on_the_command_line_too(
    by_file: TrainConfig, labels: NDArray[Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stopped(by_file, tmp_path / "run", 2, 1)
    write_labels(tmp_path / "given.csv", (labels + 1) % 10)
    assert main(["resume", str(tmp_path / "run"), "--quiet"]) != 0
    said = " ".join(capfd.readouterr().err.split())
    assert f"was trained on other labels than --noise {by_file.noise} provides now" in said


@pytest.mark.parametrize("finished", [False, True])
def test_other_inputs_under_the_same_labels_are_rejected(by_copy: TrainConfig, tmp_path: Path, finished: bool) -> None:
    out = tmp_path / "run"
    if finished:
        train(by_copy, out)
    else:
        stopped(by_copy, out, 2, 1)
    rewrite(by_copy, x_train=lambda x: x[:, :, ::-1])
    assert refusal(by_copy, out) == (
        f"{out} was trained on other inputs than --data {by_copy.data} provides now: "
        "restore the old data, or start anew with --fresh"
    )


def test_other_labels_in_the_data_are_distinguished_from_those_of_a_label_file(
    by_copy: TrainConfig, tmp_path: Path
) -> None:
    stopped(by_copy, tmp_path / "run", 2, 1)
    rewrite(by_copy, y_train=lambda y: (y + 1) % 10)
    assert f"was trained on other labels than --data {by_copy.data} provides now" in refusal(by_copy, tmp_path / "run")


def test_evaluation_of_a_run_on_other_inputs_is_rejected(by_copy: TrainConfig, tmp_path: Path) -> None:
    train(by_copy, tmp_path / "run")
    folder = RunFolder.open(tmp_path / "run")
    evaluate(folder, "best", device="cpu")
    rewrite(by_copy, x_train=lambda x: x[:, :, ::-1])
    with pytest.raises(ValueError, match=rf"{re.escape(by_copy.data)} is not what .*run was .*: its inputs differ"):
        evaluate(folder, "best", device="cpu")


def test_data_that_moved_are_read_where_they_are_said_to_be(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, load, roots = config(data, "ce", epochs=2, root=str(tmp_path / "before")), source.load, []

    def load_from(name: str, root: str | Path | None = None, own_validation: bool = True) -> source.Source:
        roots.append(root)
        return load(name, root)

    train(wanted, tmp_path / "run")
    monkeypatch.setattr(source, "load", load_from)
    for root in (None, tmp_path / "after"):
        evaluate(RunFolder.open(tmp_path / "run"), "best", root, device="cpu")
    assert roots == [str(tmp_path / "before"), tmp_path / "after"]


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("changes", [{"x_test": lambda x: x[:, :, ::-1]}, {"y_test": lambda y: (y + 1) % 10}])
def test_other_test_samples_are_rejected(
    by_copy: TrainConfig, tmp_path: Path, finished: bool, changes: dict[str, Any]
) -> None:
    out = tmp_path / "run"
    if finished:
        train(by_copy, out)
    else:
        stopped(by_copy, out, 2, 1)
    rewrite(by_copy, **changes)
    with pytest.raises(
        ValueError, match=rf"was tested on other samples than --data {re.escape(by_copy.data)} provides"
    ):
        train(by_copy, out)
    if finished:
        with pytest.raises(ValueError, match="its test samples or labels differ"):
            evaluate(RunFolder.open(out), "best", device="cpu")


def test_a_run_made_before_inputs_had_a_hash_is_believed(by_copy: TrainConfig, tmp_path: Path) -> None:
    out = stopped(by_copy, tmp_path / "run", 2, 1)
    description = json.loads((out / "data.json").read_text())
    assert all(re.fullmatch("[0-9a-f]{64}", description.pop(name)) for name in ("inputs_hash", "test_hash"))
    (out / "data.json").write_text(json.dumps(description))
    assert isinstance(train(by_copy, out)[0], Started)
    evaluate(RunFolder.open(out), "best", device="cpu")


def test_a_finished_run_whose_data_are_gone_is_as_good_as_it_was(by_copy: TrainConfig, tmp_path: Path) -> None:
    train(by_copy, tmp_path / "run")
    Path(by_copy.data.removeprefix("npz:")).unlink()
    assert [type(event) for event in train(by_copy, tmp_path / "run")] == [Finished]


@pytest.fixture
def by_folder(tmp_path: Path) -> TrainConfig:
    """A run on a folder of images."""
    rng = np.random.default_rng(0)
    for place in range(60):
        path = tmp_path / "images" / f"class{place % 3}" / f"{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)
    return config(f"folder:{tmp_path / 'images'}", "ce", validation=12)


def test_other_images_in_the_folder_of_a_finished_run_are_rejected(by_folder: TrainConfig, tmp_path: Path) -> None:
    train(by_folder, tmp_path / "run")
    assert isinstance(train(by_folder, tmp_path / "run")[0], Finished)
    image = tmp_path / "images" / "class1" / "31.png"
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(image)
    assert "trained on other inputs than --data folder:" in refusal(by_folder, tmp_path / "run")
