"""Networks of other libraries: ``hf:NAME_OR_FOLDER`` (transformers) and ``timm:NAME_OR_FOLDER``.

A backbone is described by plain JSON, which a run stores: its network is then rebuilt without the original folder, and
nothing but the installed library is executed. Weights are read from safetensors only.
"""

from __future__ import annotations

import importlib
import os
import re
import socket
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

Task = Literal["image", "text"]
LIBRARIES = {"hf": ("transformers", "huggingface"), "timm": ("timm", "timm")}  # prefix: package and our extra
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class Backbone:
    """How to build a network of another library.

    Attributes:
        library: ``hf`` or ``timm``.
        task: What its inputs are: images, or token ids of a text.
        config: The library's own configuration of the architecture.
        image_size: Height and width of the images that it was made for.
        mean, std: Normalisation of pixels / 255 that its pretrained weights expect; empty if unknown.
    """

    library: str
    task: Task
    config: dict[str, Any] = field(default_factory=dict)
    image_size: int = 224
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The JSON object that a run stores."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Backbone:
        """Read what :meth:`to_json` wrote."""
        try:
            found = cls(**{**values, "mean": tuple(values["mean"]), "std": tuple(values["std"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"backbone has an unusable value: {str(values)[:80]}") from error
        if found.library not in LIBRARIES or not isinstance(found.config, dict):
            raise ValueError(f"backbone has an unusable value: {str(values)[:80]}")
        return found

    def with_padding(self, pad_id: int) -> Backbone:
        """The same network for texts padded with this token id."""
        return replace(self, config={**self.config, "pad_token_id": pad_id})

    def statistics(self, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """Mean and std for images with that many channels; their averages for greyscale images; None if unknown."""
        if len(self.mean) == channels:
            return self.mean, self.std
        if channels == 1 and self.mean:
            return (sum(self.mean) / len(self.mean),), (sum(self.std) / len(self.std),)
        return None


def is_backbone(name: str) -> bool:
    """Return whether ``name`` is a network of another library.

    >>> is_backbone("hf:microsoft/resnet-50"), is_backbone("resnet18")
    (True, False)
    """
    return name.partition(":")[0] in LIBRARIES and ":" in name


def import_library(prefix: str) -> Any:
    """Import the library of a prefix; the error names the extra to install."""
    package, extra = LIBRARIES[prefix]
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"--network {prefix}: needs {error.name}, which is not installed: pip install 'vista-distill[{extra}]'",
            name=error.name,
        ) from error


def local_folder(network: str) -> Path | None:
    """Return the folder of ``hf:FOLDER`` or ``timm:FOLDER``; None for a name; an error for a path without a folder."""
    prefix, _, name = network.partition(":")
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / CONFIG).is_file():
            raise FileNotFoundError(f"network {network!r}: {path} has no {CONFIG}; {what_to_place(prefix)}")
        return path
    if name.startswith(".") or not _HUB_NAME.fullmatch(name):
        raise FileNotFoundError(f"network {network!r}: the folder {path} does not exist; {what_to_place(prefix)}")
    return None


def what_to_place(prefix: str, folder: object = "FOLDER") -> str:
    """Return which files a folder needs in order to be used as a network."""
    also = " and preprocessor_config.json (for text: the tokenizer's files)" if prefix == "hf" else ""
    return f"place {CONFIG}, {WEIGHTS}{also} in a folder and use --network {prefix}:{folder}"


def check_hub_resolves() -> None:
    """Raise OSError at once without a network, where the hub's library would retry for half a minute."""
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return  # the proxy resolves the name
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    try:
        socket.getaddrinfo(host, 443)
    except OSError as error:
        raise OSError(f"no connection to {host}") from error


def listed(names: list[str], most: int = 3) -> str:
    """Return the first few names of weights for a message."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
