"""The choices of `auto` for custom data; given options are kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vista
from vista import models
from vista.runs.config import preset, preset_name
from vista.training.api import make_config
from vista.training.compare import verdict
from vista.training.recommend import FEWEST, MOST, DataSize, choose_epochs, choose_method, choose_network, recommend


@pytest.fixture
def photos(tmp_path: Path) -> str:
    draws = np.random.default_rng(0)
    for label, name in enumerate(("cat", "dog")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(12):
            pixels = draws.integers(0, 100, (16, 16, 3)) + 120 * label
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / name / f"{number}.png")
    return f"folder:{tmp_path / 'photos'}"


def test_auto_is_recommended_for_custom_data_alone() -> None:
    assert preset_name("auto", "folder:photos") == "recommended"
    assert preset_name("auto", "csv:table.csv") == "recommended"
    assert preset_name("auto", "digits") == "digits"
    assert preset("auto", "cifar100", "none") == preset("clean")
    assert preset("auto", "cifar100", "symmetric:0.4") == preset("noisy")
    assert preset("auto", "folder:photos", "none")["lr_schedule"] == "cosine"
    assert preset("paper", "cifar100", "symmetric:0.4") == {**preset("noisy"), "validation": 0.02}
    with pytest.raises(ValueError, match="preset must be one of auto, paper"):
        preset("papers")


def test_few_validation_samples_take_label_smoothing(photos: str) -> None:
    config = make_config(None, "auto", {"data": photos, "device": "cpu"})
    assert (config.method, config.network, config.lr_schedule) == ("label-smoothing", "small-cnn", "cosine")
    assert (config.batch_size, config.lr) == (32, 0.05)
    assert FEWEST <= config.epochs <= MOST
    chosen = "label-smoothing (vista-light needs 200 validation samples), small-cnn at up to 64 px for the CPU"
    assert config.choice.startswith(f"auto: 19 images, 2 of them for validation: {chosen}")


def test_images_of_a_table_are_measured_at_the_size_of_the_network(photos: str) -> None:
    folder = Path(photos.removeprefix("folder:"))
    rows = [f"{file.relative_to(folder)},{file.parent.name}" for file in sorted(folder.glob("*/*"))]
    (folder / "table.csv").write_text("\n".join(["image,label", *rows]))
    given = {"data": f"csv:{folder / 'table.csv'}", "image_column": "image", "image_size": 24, "device": "cpu"}
    config = make_config(None, "auto", given)
    assert "small-cnn at 24 px for the CPU" in config.choice


def test_a_table_takes_vista_light_however_small_it_is(tmp_path: Path) -> None:
    rows = "".join(f"{number},{'xy'[number % 2]}\n" for number in range(40))
    (tmp_path / "table.csv").write_text(f"size,label\n{rows}")
    config = make_config(None, "auto", {"data": f"csv:{tmp_path / 'table.csv'}", "device": "cpu"})
    assert (config.method, config.network) == ("vista-light", "mlp")
    assert choose_method(DataSize(100, 10, (32,), 2), is_text=True) == "label-smoothing"
    assert choose_method(DataSize(9_000, 900, (32,), 2), is_text=True) == "vista-light"


def test_pretrained_weights_are_trained_in_small_steps(photos: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "read_backbone", lambda _name: models.Backbone("hf", "image", image_size=48))
    given = {"data": photos, "device": "cpu", "network": "hf:models/resnet"}
    config = make_config(None, "auto", given)
    assert (config.optimizer, config.lr, config.backbone_lr, config.epochs) == ("adamw", 5e-4, 5e-5, 10)
    assert (config.warmup_epochs, config.weight_decay) == (1.0, 0.01)
    assert "10 epochs, batch size 32, AdamW, learning rate 0.0005 (5e-05 for the pretrained layers)" in config.choice
    assert make_config(None, "auto", {**given, "lr": 0.01}).backbone_lr is None, "one rate for all layers"
    assert make_config(None, "auto", {**given, "freeze": "backbone"}).backbone_lr is None
    assert make_config(None, "auto", {**given, "epochs": 2}).warmup_epochs == 0
    for scratch in ({"pretrained": False}, {"optimizer": "sgd"}):
        assert make_config(None, "auto", {**given, **scratch}).lr == 0.05


def test_enough_validation_samples_take_vista_light() -> None:
    values, reason = recommend({"data": "digits", "device": "cpu", "validation": 200.0})
    assert values["method"] == "vista-light"
    assert "200 of them for validation: vista-light, small-cnn at 8 px for the CPU" in reason


def test_what_is_given_is_kept_and_not_explained(photos: str) -> None:
    given = {"data": photos, "device": "cpu", "method": "elr", "network": "tiny-staged", "epochs": 7, "lr": 0.2}
    config = make_config(None, "auto", given)
    assert {name: getattr(config, name) for name in given} == given
    assert config.choice == "auto: 19 images, 2 of them for validation: batch size 32"
    assert make_config(None, "clean", {"data": photos}).choice == ""


def test_adamw_keeps_its_learning_rate(photos: str) -> None:
    assert (
        make_config(None, "auto", {"data": photos, "device": "cpu", "optimizer": "adamw"}).lr
        == preset("auto", optimizer="adamw")["lr"]
    )


def test_the_network_depends_on_the_device_and_the_samples() -> None:
    assert choose_network((3, 64, 64), "cpu") == "small-cnn"
    assert choose_network((3, 64, 64), "cuda") == "resnet18"
    assert choose_network((1, 8, 8), "cuda") == "small-cnn"
    assert choose_network((13,), "cuda") == "mlp"


def test_more_images_take_fewer_epochs(photos: str) -> None:
    config = make_config(None, "auto", {"data": photos, "device": "cpu"})
    few, many, most = (
        choose_epochs(config, DataSize(count, 200, (3, 64, 64), 10), "cpu") for count in (1_000, 50_000, 10**7)
    )
    assert few >= many >= most == FEWEST


def test_a_folder_trains_with_no_other_option_and_keeps_the_choice(
    photos: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = vista.train(data=photos, device="cpu", epochs=2, out="run")
    stored = json.loads((result.folder / "config.json").read_text())
    assert stored["choice"] == result.config.choice != ""
    again = vista.train(data=photos, device="cpu", epochs=2, out="run")  # finished: the same run
    assert again.metrics == result.metrics


def row(method: str, *accuracies: float) -> dict[str, object]:
    runs = [{"seed": seed, "best": value, "error": None} for seed, value in enumerate(accuracies)]
    mean = sum(accuracies) / len(accuracies)
    return {"method": method, "seeds": len(runs), "best": {"mean": mean}, "runs": runs, "same_as": None}


@pytest.mark.parametrize(
    ("rows", "beyond", "words"),
    [
        ([row("ce", 60, 61, 62), row("vista", 70, 71.5, 72)], True, "more than chance explains"),
        ([row("vista", 60, 66, 62), row("ce", 62, 61, 66)], False, "which may be chance; plain cross-entropy"),
        ([row("ce", 60), row("vista", 70)], None, "one seed cannot tell this from chance (use --seeds 3)."),
        ([row("ce", 70), row("vista", 60)], None, "one seed cannot tell this from chance (use --seeds 3)."),
    ],
)
def test_the_verdict_states_who_won_and_whether_by_more_than_chance(
    rows: list[dict[str, object]], beyond: bool | None, words: str
) -> None:
    found = verdict(rows)
    assert found["exceeds_chance"] is beyond
    assert words in found["sentence"]
    assert found["sentence"].startswith(f"{found['winner']} is first with ")
