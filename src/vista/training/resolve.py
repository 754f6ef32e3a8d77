"""Resolve a configuration once, before anything is built: method, options, device and precision.

``argv -> TrainConfig -> ResolvedRun``: everything below the loop receives the resolved run and decides nothing again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any

import torch

from vista import models
from vista.methods import Chosen, choose
from vista.runs.config import INCIDENTAL, TrainConfig


@dataclass(frozen=True)
class ResolvedRun:
    """A run with every choice made, except those that depend on the data.

    Attributes:
        config: The configuration with the method's canonical name and options, device and precision written out.
        chosen: The method's class and its checked options.
        device: The device, which exists on this machine.
        identity: Hash of everything that decides the result; see :func:`identity`.
    """

    config: TrainConfig
    chosen: Chosen
    device: torch.device
    identity: str


def resolve(config: TrainConfig) -> ResolvedRun:
    """Make every choice that the configuration leaves open.

    Args:
        config: A checked configuration, possibly with ``auto`` values.

    Returns:
        The resolved run. Raises ``ValueError`` for an unknown method, option or device.
    """
    chosen, name = choose_method(config), device_name(config.device)
    device = existing_device(name)
    precision = config.precision
    if precision == "auto":
        precision = "bf16" if device.type == "cuda" else "fp32"
    config = dataclasses.replace(
        config,
        method=chosen.name,
        options=chosen.options,
        method_version=chosen.method.version,
        device=name,
        precision=precision,
        image_size=resolve_image_size(config),
    )
    return ResolvedRun(config, chosen, device, identity(config))


def resolve_image_size(config: TrainConfig) -> int | None:
    """The working resolution of photos: unless given, the one that a network of transformers or timm was made for."""
    if config.image_size is not None or not models.is_backbone(config.network):
        return config.image_size
    reads_photos = config.data.startswith("folder:") or config.image_column is not None
    return models.read_backbone(config.network).image_size if reads_photos else None


def choose_method(config: TrainConfig) -> Chosen:
    """The method of a configuration with its options checked."""
    try:
        return choose(config.method, config.options)
    except TypeError as error:  # an option of the wrong type in a hand-edited file
        raise ValueError(f"options {config.options} do not fit method {config.method!r}: {error}") from error


def device_name(device: str) -> str:
    """``auto`` becomes ``cuda`` where a CUDA device exists, else ``cpu``."""
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def existing_device(name: str) -> torch.device:
    """The torch device of that name; an error if this machine does not have it."""
    device = torch.device(name)
    count = torch.cuda.device_count() if device.type == "cuda" else 0
    if device.type == "cuda" and (device.index or 0) >= count:
        found = f"{count} CUDA devices were found" if count != 1 else "one CUDA device was found"
        raise ValueError(f"device is {name!r}, but {found}: use --device {'cuda' if count else 'cpu'}")
    return device


def identity(config: TrainConfig) -> str:
    """A hash of everything that decides the result: equal for two runs that would end with the same bytes."""
    return hashlib.sha256(json.dumps(decisive(config), sort_keys=True).encode()).hexdigest()[:16]


def decisive(config: TrainConfig) -> dict[str, Any]:
    """The settings that decide the result and differ from their defaults.

    Defaults are left out so that a field added later does not change the identity of existing runs. A method is
    identified by its own name and the options that differ from its defaults: vista-light is vista with tau 0.01.
    """
    chosen = choose_method(config)
    default_options = dataclasses.asdict(chosen.method.Config())
    values: dict[str, Any] = {"method": chosen.method.name}
    values["options"] = {
        name: value
        for name, value in chosen.options.items()
        if value != default_options[name] and name not in chosen.method.incidental
    }
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if item.name not in (*INCIDENTAL, "method", "options") and value != item.default:
            values[item.name] = value
    return values


def differences(one: TrainConfig, other: TrainConfig) -> list[tuple[str, Any, Any]]:
    """The decisive settings in which two runs differ, as ``(name, value of one, value of other)``."""
    a, b = choose_method(one), choose_method(other)
    fields = [item.name for item in dataclasses.fields(one) if item.name not in (*INCIDENTAL, "method", "options")]
    values = [("method", a.method.name, b.method.name)]
    if a.method is b.method:
        decisive_options = [name for name in a.options if name not in a.method.incidental]
        values = [(name, a.options[name], b.options[name]) for name in decisive_options]
    values += [(name, getattr(one, name), getattr(other, name)) for name in fields]
    return [found for found in values if found[1] != found[2]]
