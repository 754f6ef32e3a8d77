"""The network of a run: untrained from its configuration, or trained from its folder."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from vista import models
from vista.core.calibration import SMALLEST
from vista.files import shell
from vista.runs.config import TrainConfig
from vista.runs.description import DataDescription
from vista.runs.folder import WEIGHTS, RunFolder, Which


class Calibrated(nn.Module):
    """A network whose logits are divided by a temperature.

    Args:
        network: The network.
        temperature: The divisor, as :func:`vista.calibrate` fits it.
    """

    def __init__(self, network: nn.Module, temperature: float) -> None:
        super().__init__()
        self.network = network
        self.temperature = temperature

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        return logits / self.temperature


def load_model(
    run: str | Path, which: Which = "best", network: str | None = None, *, calibrated: bool = False
) -> nn.Module:
    """Load the trained network of a run.

    Its inputs are resized and normalised samples, with the ``image_size``, ``mean`` and ``std`` in the run's
    ``data.json``; :func:`vista.predict` does that itself.

    Args:
        run: The run folder.
        which: The weights of the best validation epoch, or of the last epoch.
        network: The network's name, required only for a custom one (``package.module:function``): code that a run
            folder names is executed only if the caller names it too.
        calibrated: Divide the logits by the temperature that the run fitted on its validation labels.

    Returns:
        The plain ``nn.Module`` in eval mode on the CPU; with ``calibrated``, in a module that divides its logits.

    Example:
        >>> model = vista.load_model("runs/digits-none-vista-seed0", calibrated=True)  # doctest: +SKIP
        >>> probabilities = model(normalised_images).softmax(dim=1)  # doctest: +SKIP
    """
    if which not in ("best", "last"):
        raise ValueError(f"which must be 'best' or 'last', got {which!r}")
    folder = RunFolder.open(run)
    config = folder.config()
    check_code_is_trusted(config, network)
    built = build_network(config, folder.data())
    try:
        built.load_state_dict(folder.weights(which))
    except RuntimeError as error:  # torch lists the names and shapes, a line for each kind of difference
        differences = "; ".join(line.strip() for line in str(error).splitlines()[1:])
        path = folder.path / WEIGHTS[which]
        raise ValueError(
            f"the weights in {path} do not fit network {config.network!r}: {textwrap.shorten(differences, 300)}"
        ) from error
    if not calibrated:
        return built.eval()
    temperature = folder.temperature(which)
    if temperature is None:
        raise ValueError(
            f"{folder.path} has no calibration, which needs a run of this version with at least {SMALLEST} validation "
            "labels: use calibrated=False, and vista.calibrate with your own labels"
        )
    return Calibrated(built, temperature).eval()


def check_code_is_trusted(config: TrainConfig, network: str | None) -> None:
    """Code that a run folder names as its network is executed only if the caller names it as well."""
    if network not in (None, config.network):
        raise ValueError(f"network is {network!r}, but the run was trained with {config.network!r}")
    if network is None and models.is_custom_network(config.network):
        named = shell.command("--network", config.network)
        raise ValueError(
            f"the network {config.network!r} of this run is custom code, which is executed only if you name it: "
            f"if you trust it, add {named} (in Python network={config.network!r})"
        )


def build_network(config: TrainConfig, data: DataDescription) -> nn.Module:
    """An untrained network for this data, its weights a function of the seed."""
    shape = data.sample_shape
    name = network_name(config, shape)
    in_channels, image_size = input_size(name, shape)
    backbone = None if data.backbone is None else models.Backbone.from_json(data.backbone)
    if backbone is not None:
        _check_task(config, backbone, data)
    network = models.build(
        name,
        num_classes=len(data.classes),
        in_channels=in_channels,
        image_size=image_size,
        seed=config.seed,
        backbone=backbone,
    )
    if any(is_lazy(part) for part in (*network.parameters(), *network.buffers())):
        _draw_lazy_weights(config, network, shape)
    return network.double() if config.precision == "fp64" else network


def input_size(name: str, sample_shape: tuple[int, ...]) -> tuple[int, int]:
    """Channels and image size that a network is built with; features count as the channels of one pixel."""
    if len(sample_shape) != 3 or name == "mlp":
        return int(torch.Size(sample_shape).numel()), 1
    channels, height, width = sample_shape
    if height != width and name in models.SQUARE_ONLY:
        raise ValueError(f"network {name!r} needs square images, got {height} x {width}")
    return channels, min(height, width)


def initial_network(config: TrainConfig, data: DataDescription) -> nn.Module:
    """The network before its first step: with pretrained weights and a new head if the run asks for them."""
    network = build_network(config, data)
    if config.pretrained and models.is_backbone(config.network):
        models.load_pretrained(config.network, network, image_size=data.sample_shape[-1], seed=config.seed)
    return network


def _check_task(config: TrainConfig, backbone: models.Backbone, data: DataDescription) -> None:
    """A text network needs token ids ``[L]``, any other one images ``[C, H, W]``."""
    fits = data.tokenizer is not None if backbone.task == "text" else len(data.sample_shape) == 3
    if not fits:
        needed = "a text column (--text-column)" if backbone.task == "text" else "images"
        raise ValueError(f"network {config.network!r} needs {needed}, but {data.name} has other samples")


def _draw_lazy_weights(config: TrainConfig, network: nn.Module, shape: tuple[int, ...]) -> None:
    """Initialise layers such as ``nn.LazyLinear`` with one sample, their weights drawn from the seed."""
    with models.seed_context(config.seed), torch.no_grad():
        try:
            network.eval()(torch.zeros(1, *shape))
        except Exception as error:
            raise does_not_take(config, shape, error) from error
    network.train()


def does_not_take(config: TrainConfig, shape: tuple[int, ...], error: Exception) -> ValueError:
    """The error of a network that cannot process a sample of the data."""
    remedy = ""
    if models.is_backbone(config.network) and len(shape) == 3:
        remedy = f" (it was made for {models.read_backbone(config.network).image_size} pixels: see --image-size)"
    return ValueError(
        f"network {config.network!r} does not accept samples of shape {in_words(shape)}: "
        f"{type(error).__name__}: {error}{remedy}"
    )


def in_words(shape: tuple[int, ...]) -> str:
    """A shape for messages, such as ``3 x 32 x 32``."""
    return " x ".join(map(str, shape))


def network_name(config: TrainConfig, sample_shape: tuple[int, ...]) -> str:
    """The network's name; ``auto`` chooses by the shape of a sample."""
    if config.network != "auto":
        return config.network
    return "mlp" if len(sample_shape) != 3 else "resnet18" if sample_shape[1] >= 24 else "small-cnn"


def on_device(network: nn.Module, device: torch.device) -> nn.Module:
    """The network on its device; channels-last on CUDA, where convolutions are faster with it."""
    moved: Any = network.to(device)
    return moved.to(memory_format=torch.channels_last) if device.type == "cuda" else moved  # type: ignore[no-any-return]
