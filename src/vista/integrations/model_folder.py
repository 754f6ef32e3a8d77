"""A trained network as a folder: weights, label map, README, and the files that transformers reads."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from vista.data.pixel_file import stored_size
from vista.data.text import load_tokenizer
from vista.integrations.onnx import as_text
from vista.models.huggingface import HuggingFaceNetwork, save_pretrained
from vista.models.timm import TimmNetwork
from vista.runs.config import TrainConfig
from vista.runs.description import DataDescription
from vista.training.network import input_size, network_name

WEIGHTS, LABELS, README = "model.safetensors", "labels.json", "README.md"
_BICUBIC = 3  # Pillow's number of the filter


def to_safetensors(weights: Mapping[str, Tensor], about: Mapping[str, Any]) -> bytes:
    """Make a safetensors file of unchanged weights.

    Args:
        weights: The weights by name.
        about: Metadata; values that are not text are stored as JSON.

    Returns:
        The content of the file.

    >>> len(to_safetensors({"w": torch.zeros(2)}, {"classes": ["cat", "dog"]})) > 8
    True
    """
    # Copies, because safetensors does not accept tensors that share memory.
    plain = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in weights.items()}
    return save(plain, metadata={"format": "pt", **{name: as_text(value) for name, value in about.items()}})


def to_folder(
    network: nn.Module, config: TrainConfig, data: DataDescription, about: Mapping[str, Any]
) -> dict[str, bytes]:
    """Make the files of a model folder; ``from_pretrained`` loads it if the network is one of transformers.

    Args:
        network: The network.
        config: The run.
        data: What it was trained on.
        about: Metadata of the weights, as in :func:`to_safetensors`.

    Returns:
        The content of each file by its name.
    """
    labels = {str(number): name for number, name in enumerate(data.classes)}
    files: dict[str, bytes] = {}
    weights = network.state_dict()
    if isinstance(network, HuggingFaceNetwork):
        with tempfile.TemporaryDirectory() as scratch:
            save_pretrained(network, Path(scratch), data.classes)
            weights = load_file(Path(scratch, WEIGHTS))
            if data.tokenizer is not None:
                tokenizer = load_tokenizer(data.tokenizer["name"])
                tokenizer.model_max_length = data.sample_shape[0]
                tokenizer.save_pretrained(scratch)
            else:
                Path(scratch, "preprocessor_config.json").write_text(
                    _json(image_processor(network, data)), encoding="utf-8"
                )
            files = {path.name: path.read_bytes() for path in sorted(Path(scratch).iterdir()) if path.is_file()}
    elif isinstance(network, TimmNetwork):
        weights = network.model.state_dict()
    files[WEIGHTS] = to_safetensors(weights, about)
    files[LABELS] = _json(labels).encode()
    files[README] = readme(network, config, data, about).encode()
    return files


def image_processor(network: HuggingFaceNetwork, data: DataDescription) -> dict[str, Any]:
    """The settings with which an image processor of transformers prepares images as the training did."""
    channels, height, width = data.sample_shape
    repeats = 3 if channels == 1 and network.channels == 3 else 1
    shared = {
        "image_processor_type": "CLIPImageProcessor", "do_convert_rgb": repeats * channels == 3, "do_resize": True,
        "resample": _BICUBIC, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
        "image_mean": list(data.mean) * repeats, "image_std": list(data.std) * repeats,
    }  # fmt: skip
    if data.image_size is None:
        return {**shared, "size": {"height": height, "width": width}, "do_center_crop": False}
    crop = {"height": data.image_size, "width": data.image_size}
    return {
        **shared, "size": {"shortest_edge": stored_size(data.image_size)}, "do_center_crop": True, "crop_size": crop,
    }  # fmt: skip


# ---------------------------------------------------------------- README


def readme(network: nn.Module, config: TrainConfig, data: DataDescription, about: Mapping[str, Any]) -> str:
    """The README of a model folder: what it is, its inputs, its classes, and code that loads it."""
    is_hf = isinstance(network, HuggingFaceNetwork)
    task = "text-classification" if data.tokenizer is not None else "image-classification"
    front = f"---\nlibrary_name: transformers\npipeline_tag: {task}\n---\n" if is_hf else ""
    temperature = about.get("temperature")
    noise = "" if config.noise == "none" else f", label noise `{config.noise}`"
    lines = [
        f"{front}# {about['network']} for {len(data.classes)} classes",
        "",
        f"Trained by vista with the method `{config.method}` on `{config.data}`{noise}, seed {config.seed}. "
        f"The weights are those of epoch {about['epoch']}; test accuracy {100 * about['test_accuracy']:.2f} %.",
        "",
        "## Input",
        input_in_words(data),
        "",
        "## Output",
        "One logit per class, numbered as in `labels.json`.",
        *([] if temperature is None else [
            f"For calibrated probabilities, divide the logits by the temperature {temperature!r} before the softmax "
            "(it is in the metadata of `model.safetensors`)."
        ]),
        "",
        "## Use",
        "```python",
        _code(network, config, data, "" if temperature is None else f" / {temperature!r}"),
        "```",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def input_in_words(data: DataDescription) -> str:
    """How samples become inputs of the network, in words."""
    shape = " x ".join(map(str, data.sample_shape))
    if data.tokenizer is not None:
        return f"Token ids of the tokenizer `{data.tokenizer['name']}`, at most {data.sample_shape[0]} per text."
    if not data.is_image:
        how = "" if data.encoding is None else "; `encoding` in the metadata of `model.safetensors` has them by column"
        return f"{shape} features, as in the training data{how}."
    normalised = f"pixels / 255, normalised with mean {list(data.mean)} and std {list(data.std)}, as [{shape}]"
    mode = "RGB" if data.sample_shape[0] == 3 else "greyscale"
    if data.image_size is None:
        return f"An image in {mode} of {data.sample_shape[2]} x {data.sample_shape[1]} pixels: {normalised}."
    return (
        f"An image in {mode} (rotated as its EXIF orientation says, transparency on white): the shorter side resized "
        f"to {stored_size(data.image_size)} pixels (bicubic, antialiased), the centre {data.image_size} x "
        f"{data.image_size} pixels cropped; {normalised}."
    )


_HF_IMAGE = """\
import torch
from PIL import Image, ImageOps
from transformers import AutoImageProcessor, AutoModelForImageClassification

folder = "."  # this folder
processor = AutoImageProcessor.from_pretrained(folder)
model = AutoModelForImageClassification.from_pretrained(folder).eval()
image = ImageOps.exif_transpose(Image.open("photo.jpg")){convert}
inputs = processor(image, return_tensors="pt")
with torch.no_grad():
    logits = model(**inputs).logits{divided}
probabilities = logits.softmax(dim=1)[0]
print(model.config.id2label[int(probabilities.argmax())], float(probabilities.max()))"""

_HF_TEXT = """\
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

folder = "."  # this folder
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
inputs = tokenizer("a text", truncation=True, max_length={length}, return_tensors="pt")
with torch.no_grad():
    logits = model(**inputs).logits{divided}
probabilities = logits.softmax(dim=1)[0]
print(model.config.id2label[int(probabilities.argmax())], float(probabilities.max()))"""

_OTHER = """\
import json
from pathlib import Path

import torch
from safetensors.torch import load_file
{imports}

labels = json.loads(Path("labels.json").read_text(encoding="utf-8"))
network = {build}
network.load_state_dict(load_file("model.safetensors"))
network.eval()
x = torch.zeros(1, {shape})  # an input as described above
with torch.no_grad():
    logits = network(x){divided}
probabilities = logits.softmax(dim=1)[0]
print(labels[str(int(probabilities.argmax()))], float(probabilities.max()))"""


def _code(network: nn.Module, config: TrainConfig, data: DataDescription, divided: str) -> str:
    """Python code that loads the folder and predicts."""
    if isinstance(network, HuggingFaceNetwork):
        if data.tokenizer is not None:
            return _HF_TEXT.format(length=data.sample_shape[0], divided=divided)
        grey = data.sample_shape[0] == 1
        return _HF_IMAGE.format(divided=divided, convert='.convert("L")' if grey else "")
    shape, classes = ", ".join(map(str, data.sample_shape)), len(data.classes)
    if isinstance(network, TimmNetwork):
        assert data.backbone is not None
        options = {"num_classes": classes, "in_chans": network.channels, **data.backbone["config"]["arguments"]}
        given = ", ".join(f"{name}={value!r}" for name, value in options.items())
        imports, build = "import timm", f"timm.create_model({data.backbone['config']['architecture']!r}, {given})"
        return _OTHER.format(imports=imports, build=build, shape=shape, divided=divided)
    if ":" in config.network:
        module, _, function = config.network.partition(":")
        imports, build = f"from {module} import {function}", f"{function}(...)  # with the arguments of the training"
    else:
        name = network_name(config, data.sample_shape)
        channels, size = input_size(name, data.sample_shape)
        imports = "from vista import models"
        build = f"models.build({name!r}, num_classes={classes}, in_channels={channels}, image_size={size})"
    return _OTHER.format(imports=imports, build=build, shape=shape, divided=divided)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
