"""The network of a run: fresh from its configuration, or trained from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from vista import models, shell
from vista.training.config import TrainConfig
from vista.training.run_folder import RunFolder, Which


def load_model(run: str | Path, which: Which = "best", network: str | None = None) -> nn.Module:
    """The trained network of a run, plain, in eval mode, on the CPU.

    A network from outside (``package.module:function``) must be named here too: a run's folder may come from anybody.
    """
    if which not in ("best", "last"):
        raise ValueError(f"which is {which!r}, but it must be 'best' or 'last'")
    folder = RunFolder.open(run)
    config = folder.config()
    refuse_code_unasked_for(config, network)
    built = build_network(config, folder.data())
    built.load_state_dict(folder.weights(which))
    return built.eval()


def refuse_code_unasked_for(config: TrainConfig, network: str | None) -> None:
    """Refuse to run the code that a folder names as its network, unless whoever asks names it as well."""
    if network not in (None, config.network):
        raise ValueError(f"network is {network!r}, but the run was trained with {config.network!r}")
    if network is None and models.is_from_outside(config.network):
        named = shell.command("--network", config.network)
        raise ValueError(
            f"the network {config.network!r} of this run is code from outside, which is run only for those who ask for "
            f"it: if you trust it, add {named} (in Python network={config.network!r})"
        )


def build_network(config: TrainConfig, data: dict[str, Any]) -> nn.Module:
    """A fresh network that suits the data, its weights a function of the seed."""
    shape = tuple(data["sample_shape"])
    name = network_name(config, shape)
    features = int(torch.Size(shape).numel())
    if len(shape) != 3 or name == "mlp":
        in_channels, image_size = features, 1
    else:
        in_channels, image_size = shape[0], min(shape[1:])
        if shape[1] != shape[2] and name in models.SQUARE_ONLY:
            raise ValueError(f"network is {name!r}, which takes square pictures, but these are {shape[1]} x {shape[2]}")
    network = models.build(
        name, num_classes=len(data["classes"]), in_channels=in_channels, image_size=image_size, seed=config.seed
    )
    if any(is_lazy(part) for part in (*network.parameters(), *network.buffers())):
        _draw_lazy_weights(config, network, shape)
    return network.double() if config.precision == "fp64" else network


def _draw_lazy_weights(config: TrainConfig, network: nn.Module, shape: tuple[int, ...]) -> None:
    """Layers such as ``nn.LazyLinear`` draw their weights when they see a sample: from the seed, like all others."""
    with models.seeded(config.seed), torch.no_grad():
        try:
            network.eval()(torch.zeros(1, *shape))
        except Exception as error:
            raise does_not_take(config, shape, error) from error
    network.train()


def does_not_take(config: TrainConfig, shape: tuple[int, ...], error: Exception) -> ValueError:
    """What a network said to a sample of the data."""
    return ValueError(
        f"network {config.network!r} does not take samples of shape {in_words(shape)}: {type(error).__name__}: {error}"
    )


def in_words(shape: tuple[int, ...]) -> str:
    """A sample's shape, as 3 x 32 x 32."""
    return " x ".join(map(str, shape))


def network_name(config: TrainConfig, sample_shape: tuple[int, ...]) -> str:
    """The network's own name, where ``auto`` leaves the choice to the samples."""
    if config.network != "auto":
        return config.network
    return "mlp" if len(sample_shape) != 3 else "resnet18" if sample_shape[1] >= 24 else "small-cnn"


def on_device(network: nn.Module, device: torch.device) -> nn.Module:
    """The network where it will work, laid out as that device likes it."""
    moved: Any = network.to(device)
    return moved.to(memory_format=torch.channels_last) if device.type == "cuda" else moved  # type: ignore[no-any-return]
