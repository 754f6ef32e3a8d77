"""Networks of transformers, built from tiny configurations and stored in folders: no download."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from vista import models
from vista.models import Backbone, HuggingFaceNetwork

transformers = pytest.importorskip("transformers")

SMALL: dict[str, Any] = {
    "resnet": lambda **o: transformers.ResNetForImageClassification(
        transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", **o)
    ),
    "vit": lambda **o: transformers.ViTForImageClassification(
        transformers.ViTConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32,
            patch_size=8, **o,
        )
    ),
    "convnext": lambda **o: transformers.ConvNextForImageClassification(
        transformers.ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, **o)
    ),
    "bert": lambda **o: transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
            max_position_embeddings=16, **o,
        )
    ),
}  # fmt: skip
IMAGE = ("resnet", "vit", "convnext")
PROCESSOR = {"size": {"shortest_edge": 48}, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}


def store(folder: Path, kind: str, processor: dict[str, Any] | None = None, **options: Any) -> Any:
    """Write a model with random weights to a folder, as ``save_pretrained`` does; returns the model."""
    with models.seed_context(7):
        model = SMALL[kind](**options)
    model.save_pretrained(folder)
    if processor is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return model.eval()


def inputs(kind: str) -> torch.Tensor:
    if kind == "bert":
        return torch.tensor([[5, 6, 7, 0, 0], [8, 9, 10, 11, 12]], dtype=torch.int32)
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def build(network: str, pretrained: bool = True, **options: Any) -> HuggingFaceNetwork:
    built = models.build(network, num_classes=5, image_size=32, **options)
    if pretrained:
        models.load_pretrained(network, built, image_size=32)
    assert isinstance(built, HuggingFaceNetwork)
    return built.eval()


@pytest.mark.parametrize("kind", SMALL)
def test_pretrained_weights_and_a_new_head(tmp_path: Path, kind: str) -> None:
    stored = store(tmp_path, kind, num_labels=5)  # the same number of classes: the head is new all the same
    built, random = build(f"hf:{tmp_path}"), build(f"hf:{tmp_path}", pretrained=False)
    assert built(inputs(kind)).shape == (2, 5)
    head = {id(p) for p in models.head_of(built).parameters()}
    assert head
    for name, parameter in built.model.named_parameters():
        kept = torch.equal(parameter, stored.get_parameter(name))
        if id(parameter) in head:
            assert torch.equal(parameter, random.model.get_parameter(name))
            assert not kept or not parameter.any(), name
        else:
            assert kept, name
    before = torch.get_rng_state()
    again = build(f"hf:{tmp_path}")
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), built.parameters(), strict=True))


def test_padding_is_masked(tmp_path: Path) -> None:
    store(tmp_path, "bert")
    built, x = build(f"hf:{tmp_path}"), inputs("bert")
    short = built(x[:1, :3])
    torch.testing.assert_close(built(x)[:1], short)
    torch.testing.assert_close(built(x.float())[:1], short)


def test_greyscale_images_fill_three_channels(tmp_path: Path) -> None:
    store(tmp_path, "resnet")
    built = build(f"hf:{tmp_path}", in_channels=1)
    grey = inputs("resnet")[:, :1]
    assert torch.equal(built(grey), built(grey.expand(-1, 3, -1, -1)))


def test_size_and_normalisation_are_those_of_the_folder(tmp_path: Path) -> None:
    store(tmp_path / "a", "convnext", PROCESSOR)
    found = models.read_backbone(f"hf:{tmp_path / 'a'}")
    assert (found.task, found.image_size, found.mean, found.std) == ("image", 48, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    mean, std = found.statistics(1) or ((), ())
    assert (*mean, *std) == pytest.approx((0.2, 0.5))
    store(tmp_path / "b", "vit")
    assert models.read_backbone(f"hf:{tmp_path / 'b'}").image_size == 32
    store(tmp_path / "c", "convnext", {**PROCESSOR, "do_normalize": False, "crop_size": {"height": 40, "width": 40}})
    found = models.read_backbone(f"hf:{tmp_path / 'c'}")
    assert (found.image_size, found.mean, found.statistics(3)) == (40, (), None)


@pytest.mark.parametrize("kind", SMALL)
def test_the_description_alone_rebuilds_the_network(tmp_path: Path, kind: str) -> None:
    store(tmp_path / "model", kind)
    built = build(f"hf:{tmp_path / 'model'}")
    described = json.loads(json.dumps(models.read_backbone(f"hf:{tmp_path / 'model'}").to_json()))
    (tmp_path / "model" / "config.json").unlink()
    rebuilt = build("hf:gone", pretrained=False, backbone=Backbone.from_json(described))
    rebuilt.load_state_dict(built.state_dict())
    assert torch.equal(rebuilt(inputs(kind)), built(inputs(kind)))


def test_a_folder_cannot_make_transformers_run_its_code(tmp_path: Path) -> None:
    store(tmp_path, "bert")
    config = json.loads((tmp_path / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "evil.Config", "AutoModelForSequenceClassification": "evil.Model"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text("raise SystemExit('executed')")
    assert build(f"hf:{tmp_path}")(inputs("bert")).shape == (2, 5)


def test_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    store(tmp_path, "resnet")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "embedding_size": 12}))
    with pytest.raises(ValueError, match=r"weights of resnet\.embedder.* are missing or have other shapes"):
        build(f"hf:{tmp_path}")
    store(tmp_path / "other", "convnext")
    (tmp_path / "other" / "model.safetensors").rename(tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": None}))
    with pytest.raises(ValueError, match=r"weights of resnet\.\S+, resnet\.\S+, resnet\.\S+ and \d+ more are missing"):
        models.load_pretrained(f"hf:{tmp_path}", build(f"hf:{tmp_path}", pretrained=False), image_size=32)


def test_weights_in_another_format_or_absent(tmp_path: Path) -> None:
    store(tmp_path, "resnet")
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(FileNotFoundError, match=r"has no model\.safetensors, .* place it there, or use --no-"):
        build(f"hf:{tmp_path}")
    assert build(f"hf:{tmp_path}", pretrained=False)(inputs("resnet")).shape == (2, 5)


def test_an_image_size_that_the_weights_cannot_take(tmp_path: Path) -> None:
    store(tmp_path, "vit")
    built = models.build(f"hf:{tmp_path}", num_classes=5, image_size=64)
    with pytest.raises(ValueError, match=r"on images of 32 pixels and cannot take 64 .* use --image-size 32"):
        models.load_pretrained(f"hf:{tmp_path}", built, image_size=64)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "nobody/there-is-no-such-model",
            r"neither a folder, nor in the local cache .* place config\.json, mod",
        ),
        ("./no/such/folder", r"the folder no/such/folder does not exist; place config\.json"),
    ],
)
def test_nothing_to_download_from(monkeypatch: pytest.MonkeyPatch, name: str, message: str) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match=message) as error:
        models.build(f"hf:{name}", num_classes=2)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("[]", r"must hold a JSON object, got a list"),
        ("{", r"config\.json is no JSON file"),
        ('{"model_type": "resnett"}', r"has no model_type 'resnett'; did you mean 'resnet'"),
        ('{"model_type": "vits"}', r"no image or text classifier for model_type 'vits'"),
    ],
)
def test_a_folder_without_a_classifier(tmp_path: Path, config: str, message: str) -> None:
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ValueError, match=message):
        models.build(f"hf:{tmp_path}", num_classes=2)
    (tmp_path / "config.json").unlink()
    models.read_backbone.cache_clear()
    with pytest.raises(FileNotFoundError, match=r"has no config\.json; place config\.json, model\.safetensors"):
        models.build(f"hf:{tmp_path}", num_classes=2)


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "timm", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs timm, .* pip install 'vista-distill\[timm\]'"):
        models.build("timm:resnet18", num_classes=2)


@pytest.mark.parametrize("name", ["resnet18", "vit-tiny", "mlp", "small-cnn", "densenet121", "vgg16-fc"])
def test_the_head_of_a_built_in_network(name: str) -> None:
    network = models.build(name, num_classes=7)
    assert [p.shape[0] for p in models.head_of(network).parameters()] == [7, 7]


def test_a_resnet_has_the_stem_of_imagenet_from_128_pixels_on() -> None:
    small, large = (models.build("resnet18", num_classes=10, image_size=size) for size in (127, 128))
    x = torch.zeros(1, 3, 128, 128)
    assert [m.shape[-1] for m in small.stages(x)] == [128, 64, 32, 16]  # type: ignore[operator]
    assert [m.shape[-1] for m in large.stages(x)] == [32, 16, 8, 4]  # type: ignore[operator]
    assert sum(p.numel() for p in models.build("resnet50", num_classes=1000, image_size=224).parameters()) == 25_557_032
