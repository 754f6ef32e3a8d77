"""Training on a folder of photos of different sizes: same bytes after a resume, same preprocessing afterwards."""

from __future__ import annotations

import csv
import signal
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from trainings import config, ended_as, stopped, train

import vista
from vista.cli import errors, main
from vista.data import folder, pixel_file
from vista.runs.folder import RunFolder
from vista.training import loop
from vista.training.evaluate import evaluate, logits
from vista.training.events import Interrupted, Stop
from vista.training.resolve import differences, identity, resolve


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty photos of two classes, each of another size."""
    root, draws = tmp_path_factory.mktemp("data") / "photos", np.random.default_rng(0)
    for name, colour in (("red", (200, 60, 60)), ("blue", (60, 60, 200))):
        (root / name).mkdir(parents=True)
        for number in range(20):
            width, height = (int(side) for side in draws.integers(30, 120, 2))
            noise = draws.integers(-50, 50, (height, width, 3))
            pixels = (np.array(colour) + noise).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number:02d}.{('png', 'jpg', 'webp')[number % 3]}")
    return root


def test_photos_that_no_disk_has_space_for_train_to_the_same_bytes(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = config(
        f"folder:{photos}", epochs=2, batch_size=8, validation=6, image_size=16, rotation=5.0, method="vista-light"
    )
    train(wanted, tmp_path / "stored")
    photos.with_name("photos.16px.pixels").unlink()
    monkeypatch.setattr(folder, "_IN_MEMORY", 0)
    monkeypatch.setattr(pixel_file, "shutil", SimpleNamespace(disk_usage=lambda _path: SimpleNamespace(free=0)))
    with pytest.warns(UserWarning, match="decoded again in every epoch"):
        run = stopped(wanted, tmp_path / "streamed", epoch=2, step=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(wanted, run)
        assert ended_as(tmp_path / "stored") == ended_as(run)
        metrics = RunFolder(run).metrics()
        again = evaluate(RunFolder(run), "last", device="cpu")
    assert again["test"]["nll"] == pytest.approx(metrics["last"]["test"]["nll"], rel=1e-5)


def test_a_resumed_run_on_photos_ends_with_the_same_bytes(photos: Path, tmp_path: Path) -> None:
    wanted = config(
        f"folder:{photos}",
        epochs=3,
        batch_size=8,
        validation=6,
        image_size=16,
        rotation=5.0,
        cutmix=0.5,
        color_jitter=0.3,
        augment="trivial",
        method="ce",
    )
    train(wanted, tmp_path / "whole")
    run = stopped(wanted, tmp_path / "stopped", epoch=2, step=2)
    train(wanted, run)
    assert ended_as(tmp_path / "whole") == ended_as(run)
    data = RunFolder(run).data()
    assert (data.image_size, data.sample_shape) == (16, (3, 16, 16))
    metrics = RunFolder(run).metrics()
    again = evaluate(RunFolder(run), "last", device="cpu")
    assert again["test"]["nll"] == pytest.approx(metrics["last"]["test"]["nll"], rel=1e-5)


def test_new_photos_are_predicted_with_the_preprocessing_of_the_run(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    train(config(f"folder:{photos}", "ce", epochs=2, batch_size=8, validation=6, image_size=16), run)
    by_file = {}
    for data in (f"folder:{photos / 'red'}", str(photos / "red" / "03.png"), f"folder:{photos}"):
        assert main(["predict", str(run), "--data", data, "--device", "cpu", "-o", "p.csv"]) == 0
        with open("p.csv") as file:
            by_file[data] = {row["file"]: row["confidence"] for row in csv.DictReader(file)}
    in_folder, alone, tested = by_file.values()
    assert len(in_folder) == 20
    assert alone == {"03.png": in_folder["03.png"]}
    assert all(tested[f"red/{name}"] == in_folder[name] for name in in_folder if f"red/{name}" in tested)
    assert len(tested) == 8, "of the folder that the run was trained on, its test samples"
    values = np.zeros((2, 18, 18, 3), dtype=np.uint8)
    assert logits(RunFolder(run), "best", values, "cpu").shape == (2, 2)


@pytest.mark.parametrize("image_size", [16, None])
def test_damaged_files_are_left_out_of_predictions_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], image_size: int | None
) -> None:
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (8, 30, 30, 3), dtype=np.uint8)
    for number, image in enumerate(pixels):  # of one size, so that they are used unchanged unless a size is given
        folder = Path("all") / ("odd" if number % 2 else "even")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number}.png")
    train(config("folder:all", "ce", epochs=2, batch_size=8, validation=2, image_size=image_size), tmp_path / "run")
    Path("all/odd").rename("new")
    Path("new/3.png").write_bytes(b"nothing")
    Path("t.csv").write_text("file\n" + "".join(f"new/{number}.png\n" for number in (1, 3, 5)))
    everything: list[tuple[object, str | None]] = [("new", None), (["new/1.png", "new/3.png"], None), ("t.csv", "file")]
    for data, column in everything:
        with pytest.raises(ValueError, match=r"new/3.png is not a readable image: .* --skip-damaged$"):
            vista.predict("run", data, device="cpu", image_column=column)
        with pytest.warns(UserWarning, match=r"1 of . images cannot be read and is left out: .*new/3.png"):
            found = vista.predict("run", data, device="cpu", image_column=column, skip_damaged=True)
        assert found.files is not None
        assert "3.png" not in " ".join(found.files)
        alone = vista.predict("run", "new/1.png", device="cpu")
        np.testing.assert_allclose(found.probabilities[0], alone.probabilities[0], rtol=1e-5)
    with pytest.raises(ValueError, match="new contains no readable image"):
        vista.predict("run", "new/3.png", device="cpu", skip_damaged=True)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["predict", "run", "--data", "new", "--device", "cpu", "--skip-damaged"]) == 0
    assert "vista: note: 1 of 4 images cannot be read" in capsys.readouterr().err


def test_the_new_options_do_not_change_the_identity_of_existing_runs(data: str) -> None:
    known = config(data)
    assert (known.image_size, known.skip_damaged) == (None, False)
    for changes in ({"image_size": 32}, {"skip_damaged": True}, {"crop_scale": 0.5}, {"augment": "trivial"}):
        other = config(data, **changes)
        assert identity(resolve(other).config) != identity(resolve(known).config)
        assert [name for name, _, _ in differences(known, other)] == list(changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_size": 4}, "image_size must be between 8 and 1024 pixels, got 4"),
        ({"color_jitter": 1.5}, "color_jitter must be between 0 and 1, got 1.5"),
        ({"augment": "rand"}, "augment must be one of none, trivial, got 'rand'"),
        ({"crop_scale": 0.0}, "crop_scale must be greater than 0 and at most 1, got 0.0"),
    ],
)
def test_options_out_of_range_are_rejected(data: str, changes: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(data, **changes)


def test_photos_are_not_shifted(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"padding is 2, but photos are cropped at random .* use --crop-scale"):
        train(config(f"folder:{photos}", padding=2, validation=6, image_size=16), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network": "resnet19"}, "network 'resnet19' is unknown; did you mean 'resnet18'"),
        ({"network": "vit-tiny", "image_size": 33}, "--image-size 33: .* multiple of the patch size 4"),
        ({"network": "hf:./model"}, "the folder model does not exist; place config.json"),
    ],
)
def test_an_impossible_network_is_reported_before_photos_are_decoded(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = config(f"folder:{photos}", "ce", epochs=2, validation=6, **{"image_size": 24, **changes})
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        train(wanted, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert not list(photos.parent.glob(f"*.{wanted.image_size}px.pixels"))


def test_damaged_photos_are_left_out_if_asked_to(photos: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    for path in photos.glob("*/*"):
        (broken / path.parent.name).mkdir(parents=True, exist_ok=True)
        (broken / path.parent.name / path.name).write_bytes(path.read_bytes())
    (broken / "red" / "05.webp").write_bytes(b"nothing")
    wanted = config(f"folder:{broken}", "ce", epochs=2, batch_size=8, validation=6, image_size=16)
    with pytest.raises(ValueError, match=r"red/05.webp is not a readable image: .* --skip-damaged"):
        train(wanted, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(replace(wanted, skip_damaged=True), tmp_path / "run")
    files = RunFolder(tmp_path / "run").data().files
    assert files is not None
    assert len(files) == 39


def test_a_stop_while_photos_are_decoded_takes_effect_at_the_next_photo(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop, decoded = Stop(), list[int]()

    def press_ctrl_c(done: int, _total: int) -> None:
        decoded.append(done)
        stop.signal = signal.SIGINT if done == 3 else 0

    monkeypatch.setattr(pixel_file, "on_progress", press_ctrl_c)
    wanted = config(f"folder:{photos}", "ce", epochs=2, batch_size=8, validation=6, image_size=20)
    with pytest.raises(Interrupted) as stopped_at:
        list(loop.train(wanted, tmp_path / "run", stop))
    assert decoded == [1, 2, 3]
    assert pixel_file.on_progress is press_ctrl_c
    assert not (tmp_path / "run").exists()
    assert not list(photos.parent.glob("*.20px.pixels*")), "neither pixels nor a lock are left"
    assert errors.report_stop(stopped_at.value) == 128 + signal.SIGINT
    assert "the training had not started. To resume: run the same command again" in capsys.readouterr().err
