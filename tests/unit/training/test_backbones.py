"""Runs with a network of transformers: image size, normalisation, resume, and errors before anything is written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from trainings import config, ended_as, stopped, train

import vista
from vista import models
from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.training.evaluate import evaluate
from vista.training.resolve import identity, resolve
from vista.training.samples import load_source

transformers = pytest.importorskip("transformers")
MEAN, STD = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)


def store_vit(folder: Path, size: int = 16, **options: Any) -> Path:
    """A tiny vision transformer with random weights, as ``save_pretrained`` stores it."""
    small = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=size, patch_size=8,
        hidden_dropout_prob=0.1, **options,
    )  # fmt: skip
    with models.seed_context(7):
        transformers.ViTForImageClassification(small).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"size": {"height": size, "width": size}, "image_mean": MEAN, "image_std": STD})
    )
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty photos of two classes, of several sizes."""
    root, draws = tmp_path_factory.mktemp("data") / "photos", np.random.default_rng(0)
    for name, colour in (("red", (200, 60, 60)), ("blue", (60, 60, 200))):
        (root / name).mkdir(parents=True)
        for number in range(20):
            width, height = (int(side) for side in draws.integers(30, 60, 2))
            pixels = (np.array(colour) + draws.integers(-50, 50, (height, width, 3))).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number:02d}.png")
    return root


def wanted(photos: Path, network: str, **changes: Any) -> TrainConfig:
    base = config(f"folder:{photos}", epochs=2, batch_size=8, validation=6, method="ce", lr=0.01)
    return replace(base, network=network, **changes)


def test_a_run_takes_size_normalisation_and_weights_of_its_network(photos: Path, tmp_path: Path) -> None:
    model = store_vit(tmp_path / "vit")
    run = wanted(photos, f"hf:{model}")
    train(run, tmp_path / "whole")
    folder = RunFolder(tmp_path / "whole")
    data = folder.data()
    assert (data.image_size, data.sample_shape, data.mean, data.std) == (16, (3, 16, 16), MEAN, STD)
    assert folder.config().image_size == 16
    part = stopped(run, tmp_path / "stopped", epoch=2, step=2)
    train(run, part)
    assert ended_as(tmp_path / "whole") == ended_as(part)
    (model / "config.json").unlink()  # a trained run does not need the folder any more
    models.read_backbone.cache_clear()
    network = vista.load_model(tmp_path / "whole", "last")
    assert network(torch.zeros(1, 3, 16, 16)).shape == (1, 2)
    again = evaluate(folder, "last", device="cpu")
    assert again["test"]["nll"] == pytest.approx(folder.metrics()["last"]["test"]["nll"], rel=1e-5)


def test_without_pretrained_weights_the_images_decide_the_normalisation(photos: Path, tmp_path: Path) -> None:
    model = store_vit(tmp_path / "vit")
    (model / "model.safetensors").unlink()
    run = wanted(photos, f"hf:{model}", pretrained=False, image_size=24)
    train(run, tmp_path / "run")
    data = RunFolder(tmp_path / "run").data()
    assert data.sample_shape == (3, 24, 24)
    assert data.mean != MEAN
    assert identity(resolve(run).config) != identity(resolve(replace(run, pretrained=True)).config)


def test_pretrained_is_no_part_of_the_identity_of_other_runs() -> None:
    assert "pretrained" not in vista.training.resolve.decisive(TrainConfig())


@pytest.mark.parametrize(
    ("network", "changes", "message"),
    [
        ("vit", {"image_size": 32}, r"pretrained on images of 16 pixels and cannot take 32 .* use --image-size 16"),
        (
            "deep",
            {"image_size": 8},
            r"does not accept samples of shape 3 x 8 x 8: .*made for 224 pixels: see --im",
        ),
        ("empty", {}, r"empty has no config\.json; place config\.json, model\.safetensors"),
        ("bare", {}, r"has no model\.safetensors"),
        ("bert", {}, r"needs a text column \(--text-column\), but folder:"),
    ],
)
def test_errors_come_before_anything_is_written(
    photos: Path, tmp_path: Path, network: str, changes: dict[str, Any], message: str
) -> None:
    store_vit(tmp_path / "vit")
    store_vit(tmp_path / "bare")
    (tmp_path / "bare" / "model.safetensors").unlink()
    (tmp_path / "empty").mkdir()
    deep = transformers.ConvNextConfig(hidden_sizes=[4, 4, 4, 4], depths=[1, 1, 1, 1])
    transformers.ConvNextForImageClassification(deep).save_pretrained(tmp_path / "deep")
    small = transformers.BertConfig(
        vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    transformers.BertForSequenceClassification(small).save_pretrained(tmp_path / "bert")
    before = sorted(photos.parent.iterdir())
    with pytest.raises((ValueError, OSError), match=message) as error:
        train(wanted(photos, f"hf:{tmp_path / network}", **changes), tmp_path / "run")
    assert "\n" not in str(error.value)
    assert sorted(photos.parent.iterdir()) == before, "no image was decoded"
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_missing_network_for_text_is_reported_before_its_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,label\n" + "good,a\nbad,b\n" * 10)
    run = config(f"csv:{tmp_path / 't.csv'}", network="hf:./no/such/folder", text_column="text")
    with pytest.raises(FileNotFoundError, match=r"no/such/folder does not exist; place config\.json"):
        load_source(run, None)
