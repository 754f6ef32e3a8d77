"""Networks of timm, by name or from a folder with ``config.json`` and ``model.safetensors``."""

from __future__ import annotations

import contextlib
import inspect
import json
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from vista.core.validation import suggest
from vista.models.backbone import (
    CONFIG,
    WEIGHTS,
    Backbone,
    check_hub_resolves,
    import_library,
    listed,
    local_folder,
    what_to_place,
)


class TimmNetwork(nn.Module):
    """A network of timm that also accepts greyscale images where it was made for three channels.

    Args:
        model: The network.
        channels: Channels of its input.
    """

    def __init__(self, model: Any, channels: int) -> None:
        super().__init__()
        self.model = model
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x.expand(-1, 3, -1, -1) if x.shape[1] == 1 and self.channels == 3 else x)
        return logits

    @property
    def head(self) -> nn.Module:
        """The layers that are new for a new set of classes."""
        found: nn.Module = self.model.get_classifier()
        return found


def read(network: str) -> Backbone:
    """Read the configuration of ``timm:NAME_OR_FOLDER``.

    Args:
        network: The network's name.

    Returns:
        Its description. Raises ``ValueError`` for an unknown name.
    """
    timm = import_library("timm")
    folder, name = local_folder(network), network.partition(":")[2]
    stored: dict[str, Any] = {}
    if folder is not None:
        stored = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        name = stored.get("architecture", "")
    if not timm.is_model(name):
        raise ValueError(f"network {network!r}: timm has no network {name!r}; {suggest(name, timm.list_models())}")
    about = timm.get_pretrained_cfg(name)
    given = {**(about.to_dict() if about is not None else {}), **stored.get("pretrained_cfg", {})}
    channels, size = (given.get("input_size") or (3, 224, 224))[:2]
    config = {
        "architecture": name,
        "channels": channels,
        "fixed_size": bool(given.get("fixed_input_size")),
        "arguments": dict(stored.get("model_args", {})),
    }
    return Backbone("timm", "image", config, int(size), tuple(given.get("mean", ())), tuple(given.get("std", ())))


def build(backbone: Backbone, *, num_classes: int, in_channels: int, image_size: int) -> TimmNetwork:
    """Build the network with random weights and a head for these classes."""
    timm, config = import_library("timm"), backbone.config
    if not timm.is_model(config["architecture"]):  # also rejects names that timm would download
        raise ValueError(f"timm has no network {config['architecture']!r}")
    channels = 3 if in_channels == 1 and config["channels"] == 3 else in_channels
    options = dict(config["arguments"])
    if config["fixed_size"] and image_size != backbone.image_size:
        options["img_size"] = image_size
    model = timm.create_model(
        config["architecture"], pretrained=False, num_classes=num_classes, in_chans=channels, **options
    )
    return TimmNetwork(model, channels)


def load_pretrained(network: str, built: TimmNetwork, backbone: Backbone) -> None:
    """Load the pretrained weights of ``timm:NAME_OR_FOLDER`` in place; the head keeps random weights.

    Args:
        network: The network's name.
        built: The network, as :func:`build` returns it.
        backbone: Its description.
    """
    theirs = import_library("timm").models
    path = _weights(network, backbone.config["architecture"])
    found = theirs.load_state_dict(str(path), device="cpu")
    about = built.model.pretrained_cfg
    convert = getattr(inspect.getmodule(type(built.model)), "checkpoint_filter_fn", None)
    if convert is not None:  # such as position embeddings resized to another grid
        found = convert(found, built.model)
    first = about.get("first_conv")
    for name in [first] if isinstance(first, str) else (first or ()):
        if f"{name}.weight" in found and built.channels != 3:
            found[f"{name}.weight"] = theirs.adapt_input_conv(built.channels, found[f"{name}.weight"])
    own = built.model.state_dict()
    names = about.get("classifier") or ()
    heads = tuple(f"{name}." for name in ([names] if isinstance(names, str) else names))
    kept = {name for name in own if name.startswith(heads)} if heads else set()
    unfit = sorted(
        name for name in own if name not in kept and (name not in found or found[name].shape != own[name].shape)
    )
    if unfit:
        raise ValueError(
            f"network {network!r}: the weights of {listed(unfit)} in {path} are missing or have other shapes than the "
            "network: use the matching files, or --no-pretrained"
        )
    built.model.load_state_dict({**own, **{name: found[name] for name in own if name not in kept}})


def _weights(network: str, architecture: str) -> Path:
    """The weights in the folder, in the local cache of the hub, or downloaded."""
    folder = local_folder(network)
    if folder is not None:
        if not (folder / WEIGHTS).is_file():
            raise FileNotFoundError(
                f"network {network!r}: {folder} has no {WEIGHTS}, the only format of weights that is read: place it "
                "there, or use --no-pretrained"
            )
        return folder / WEIGHTS
    about = import_library("timm").get_pretrained_cfg(architecture)
    hub = None if about is None else about.hf_hub_id
    if not hub:
        raise FileNotFoundError(
            f"network {network!r} has no pretrained weights in safetensors: use --no-pretrained, or "
            f"{what_to_place('timm')}"
        )
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    with contextlib.suppress(LocalEntryNotFoundError):
        return Path(hf_hub_download(hub, WEIGHTS, local_files_only=True))
    try:
        check_hub_resolves()
        return Path(hf_hub_download(hub, WEIGHTS))
    except Exception as error:  # several libraries' errors: no connection, no such file, no access
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
        raise OSError(
            f"network {network!r}: {WEIGHTS} of {hub} is not in the local cache and cannot be downloaded ({reason}): "
            f"{what_to_place('timm')}"
        ) from error
