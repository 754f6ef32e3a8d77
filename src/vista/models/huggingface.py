"""Image and text classifiers of transformers, built from their configuration; no code of a model folder is executed."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vista.core.validation import suggest
from vista.models.backbone import (
    CONFIG,
    INDEX,
    WEIGHTS,
    Backbone,
    Task,
    check_hub_resolves,
    import_library,
    listed,
    local_folder,
    what_to_place,
)

PREPROCESSOR = "preprocessor_config.json"
# Not part of an architecture: label names, versions, and settings that make transformers download code or weights.
_DROPPED = {
    "id2label", "label2id", "num_labels", "architectures", "transformers_version", "torch_dtype", "dtype", "auto_map",
    "quantization_config", "attn_implementation", "use_pretrained_backbone", "use_timm_backbone",
}  # fmt: skip
_HEADS = ("classifier", "score", "classification_head", "head")  # usual names, most usual first
_MAPPINGS: dict[Task, str] = {
    "image": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING",
    "text": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
}


class HuggingFaceNetwork(nn.Module):
    """A classifier of transformers that maps images, or token ids ``[B, L]``, to logits ``[B, K]``.

    Args:
        model: The model, which returns an object with ``logits``.
        task: What its inputs are. Token ids equal to the padding id are masked.
    """

    def __init__(self, model: Any, task: Task) -> None:
        super().__init__()
        self.model = model
        self.task = task
        self.channels = getattr(model.config, "num_channels", None)
        self.pad_id: Any = model.config.pad_token_id if task == "text" else None

    def forward(self, x: Tensor) -> Tensor:
        if self.task == "text":
            ids = x.long()
            logits: Tensor = self.model(input_ids=ids, attention_mask=ids.ne(self.pad_id)).logits
        else:
            if x.shape[1] == 1 and self.channels == 3:  # a greyscale image
                x = x.expand(-1, 3, -1, -1)
            logits = self.model(pixel_values=x).logits
        return logits

    @property
    def head(self) -> nn.Module:
        """The layers that are new for a new set of classes."""
        parts: dict[str, nn.Module] = {
            name: child for name, child in self.model.named_children() if list(child.parameters())
        }
        parts.pop(self.model.base_model_prefix, None)
        named = next((parts[name] for name in _HEADS if name in parts), None)
        if named is None and not parts:
            raise ValueError(f"{type(self.model).__name__} has no layer of its own for the classes")
        return list(parts.values())[-1] if named is None else named


def read(network: str) -> Backbone:
    """Read the configuration of ``hf:NAME_OR_FOLDER``; a name is looked up in the local cache, then downloaded.

    Args:
        network: The network's name.

    Returns:
        Its description. Raises ``ValueError`` or ``OSError`` if it is no image or text classifier, or not available.
    """
    import_library("hf")
    folder = local_folder(network)
    config = _read_json(network, folder, CONFIG)
    assert config is not None
    config = _without_code(config)
    task = _task(network, config)
    processor = (_read_json(network, folder, PREPROCESSOR) or {}) if task == "image" else {}
    size = _side(processor.get("crop_size")) if processor.get("do_center_crop", True) else None
    size = size or _side(processor.get("size")) or _side(config.get("image_size")) or 224
    normalised = processor.get("do_normalize", True)
    mean, std = (tuple(processor.get(name) or ()) if normalised else () for name in ("image_mean", "image_std"))
    return Backbone("hf", task, config, size, mean, std if len(std) == len(mean) else ())


def build(backbone: Backbone, *, num_classes: int, in_channels: int, image_size: int) -> HuggingFaceNetwork:
    """Build the network with random weights and a head for these classes."""
    transformers = import_library("hf")
    values = {**_without_code(backbone.config), "num_labels": num_classes}
    config = transformers.CONFIG_MAPPING[values["model_type"]].from_dict(values)
    if backbone.task == "image":
        if isinstance(getattr(config, "image_size", None), int | list | tuple):
            config.image_size = image_size
        if hasattr(config, "num_channels") and not (in_channels == 1 and config.num_channels == 3):
            config.num_channels = in_channels
    else:
        config.use_cache = False
        if config.pad_token_id is None:  # as the tokenizer pads
            config.pad_token_id = getattr(config, "eos_token_id", None) or 0
    with _quiet():
        return HuggingFaceNetwork(_class_of(config, backbone.task)(config), backbone.task)


def load_pretrained(network: str, built: HuggingFaceNetwork, native_size: int, image_size: int) -> None:
    """Load the pretrained weights of ``hf:NAME_OR_FOLDER`` in place; the head keeps its random weights.

    Args:
        network: The network's name.
        built: The network, as :func:`build` returns it.
        native_size: The image size that the weights were made for.
        image_size: That of the data.
    """
    folder = local_folder(network)
    if folder is not None and not any((folder / name).is_file() for name in (WEIGHTS, INDEX)):
        raise FileNotFoundError(
            f"network {network!r}: {folder} has no {WEIGHTS}, the only format of weights that is read: place it there, "
            "or use --no-pretrained"
        )
    kind, config = type(built.model), built.model.config

    def load(local_only: bool) -> Any:
        with _quiet():
            return kind.from_pretrained(
                str(folder) if folder else network.partition(":")[2], config=config, use_safetensors=True,
                ignore_mismatched_sizes=True, output_loading_info=True, local_files_only=local_only,
                dtype=torch.float32,
            )  # fmt: skip

    loaded, info = _from_cache_or_hub(network, load, local=folder is not None)
    head = {f"{_name_of(built.model, built.head)}.{name}" for name in built.head.state_dict()}
    unfit = sorted(str(key[0]) for key in info["mismatched_keys"] if key[0] not in head)
    if unfit and image_size != native_size and all("position" in name for name in unfit):
        raise ValueError(
            f"network {network!r} was pretrained on images of {native_size} pixels and cannot take {image_size} "
            f"({listed(unfit)} would not fit): use --image-size {native_size}, or --no-pretrained"
        )
    base = f"{kind.base_model_prefix}."
    unfit += sorted(key for key in info["missing_keys"] if key.startswith(base) and "pooler" not in key)
    if unfit:
        raise ValueError(
            f"network {network!r}: the weights of {listed(unfit)} are missing or have other shapes than {CONFIG} "
            "describes: use the matching files, or --no-pretrained"
        )
    built.model.load_state_dict({name: value for name, value in loaded.state_dict().items() if name not in head}, False)


def save_pretrained(network: HuggingFaceNetwork, folder: Path, classes: tuple[str, ...]) -> None:
    """Write the model as ``from_pretrained`` reads it.

    Args:
        network: The network.
        folder: An existing folder.
        classes: Class names, which the configuration then holds.
    """
    config = network.model.config
    config.id2label = dict(enumerate(classes))
    config.label2id = {name: number for number, name in enumerate(classes)}
    with _quiet():
        network.model.save_pretrained(folder, max_shard_size="1TB")


def _name_of(model: nn.Module, part: nn.Module) -> str:
    return next(name for name, child in model.named_children() if child is part)


def _task(network: str, config: dict[str, Any]) -> Task:
    transformers = import_library("hf")
    kind = config.get("model_type")
    if kind not in transformers.CONFIG_MAPPING:
        known = suggest(str(kind), transformers.CONFIG_MAPPING.keys())
        advice = f"; {known}" if known.startswith("did") else ""
        raise ValueError(f"network {network!r}: transformers has no model_type {kind!r}{advice}; update transformers")
    found = transformers.CONFIG_MAPPING[kind]
    for task, mapping in _MAPPINGS.items():
        if found in getattr(transformers, mapping):
            return task
    raise ValueError(f"network {network!r}: transformers has no image or text classifier for model_type {kind!r}")


def _class_of(config: Any, task: Task) -> Any:
    found = getattr(import_library("hf"), _MAPPINGS[task])[type(config)]
    return found[0] if isinstance(found, tuple) else found


def _without_code(config: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is no architecture, also in nested configurations; names with ``_`` select implementations."""
    kept = {name: value for name, value in config.items() if name not in _DROPPED and not name.startswith("_")}
    return {name: _without_code(value) if isinstance(value, dict) else value for name, value in kept.items()}


def _side(size: Any) -> int | None:
    """The side of square images from the ways in which processors and configurations write it."""
    if isinstance(size, dict):
        size = size.get("shortest_edge", size.get("height"))
    if isinstance(size, list | tuple) and size:
        size = size[0]
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None


def _read_json(network: str, folder: Path | None, file: str) -> dict[str, Any] | None:
    """A JSON file of a model folder, or of the hub; None if a folder does not have it."""
    path = None if folder is None else folder / file
    if path is None:
        from transformers.utils.hub import cached_file

        name, needed = network.partition(":")[2], file == CONFIG

        def load(local_only: bool) -> Any:
            with _quiet():
                return cached_file(
                    name, file, local_files_only=local_only, _raise_exceptions_for_missing_entries=needed
                )

        try:
            found = _from_cache_or_hub(network, load)
        except OSError:
            if needed:
                raise
            return None
        path = None if found is None else Path(found)
    if path is None or not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"network {network!r}: {path} is no JSON file: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"network {network!r}: {path} must hold a JSON object, got a {type(values).__name__}")
    return values


def _from_cache_or_hub(network: str, load: Callable[[bool], Any], local: bool = False) -> Any:
    """Call ``load(local_only)`` for the local cache first, then for the hub, and explain a failure in one sentence."""
    if local:
        return load(True)
    with contextlib.suppress(OSError):
        return load(True)
    try:
        check_hub_resolves()
        return load(False)
    except OSError as error:
        reason = str(error).strip().splitlines()[0][:120]
        raise OSError(
            f"network {network!r} is neither a folder, nor in the local cache of transformers, nor can it be "
            f"downloaded ({reason}): {what_to_place('hf')}"
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence notes and progress bars of transformers: what matters is checked and reported by us."""
    from transformers.utils import logging as their_logging

    level, hub = their_logging.get_verbosity(), logging.getLogger("huggingface_hub")
    bars, hub_level = their_logging.is_progress_bar_enabled(), hub.level
    their_logging.set_verbosity_error()
    their_logging.disable_progress_bar()
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        their_logging.set_verbosity(level)
        hub.setLevel(hub_level)
        if bars:
            their_logging.enable_progress_bar()
