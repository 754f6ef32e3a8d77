"""Whether a training can use the kernels of ``kernels/``, and the network that uses them in a step.

A method calls this network as it would call the plain one. The logits are part of autograd, so the loss is the
method's own; their gradient starts the backward pass of the kernels.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from vista.models.resnet import ResNet
from vista.training.weight_average import WeightAverage

if TYPE_CHECKING:
    from vista.training.kernels.resnet import ResNetStep

ENABLED = True
PIXELS = (32, 64)
MULTIPLE = 16  # of which batch sizes are: the tiles of the last stage hold that many images
OLDEST_CAPABILITY = (9, 0)  # Hopper: the kernels load tiles with its tensor memory accelerator


class FusedNetwork(nn.Module):
    """The network in training: full batches use the kernels, everything else the plain network."""

    def __init__(self, network: ResNet, step: ResNetStep) -> None:
        super().__init__()
        self.network, self.step = network, step
        self._anchor = torch.zeros((), requires_grad=True)  # makes the logits require a gradient

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = _Logits.apply(self.step, images, self._anchor)
        return logits

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._modules["network"], name)


class _Logits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, step: ResNetStep, images: Tensor, anchor: Tensor) -> Tensor:
        with torch.autocast(images.device.type, enabled=False):
            logits, ctx.kept = step.forward(images)
        ctx.step = step
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dlogits: Tensor) -> tuple[None, None, None]:
        ctx.step.backward(dlogits, ctx.kept)
        ctx.kept = None
        return None, None, None


class Calls:
    """Counts how a step uses a network: as a whole, and its first and last layer."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.stem = self.head = 0
        self.is_plain = True  # gradients on, training mode, and no gradient of the images

    @contextmanager
    def counted(self, network: nn.Module) -> Iterator[None]:
        """Count the calls inside."""
        if not isinstance(network, ResNet):
            yield
            return

        def note(_module: nn.Module, inputs: tuple[Any, ...]) -> None:
            images = inputs[0]
            self.shapes.append(tuple(images.shape))
            plain = torch.is_grad_enabled() and network.training and not images.requires_grad
            self.is_plain = self.is_plain and plain

        def count(part: str) -> Any:
            return lambda *_: setattr(self, part, getattr(self, part) + 1)

        hooks = [
            network.register_forward_pre_hook(note),
            network.stem.register_forward_pre_hook(count("stem")),
            network.head.register_forward_pre_hook(count("head")),
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    @property
    def is_one(self) -> bool:
        """Whether the step called the network once, as a whole, to train it."""
        return self.is_plain and len(self.shapes) == self.stem == self.head == 1


def fits(network: nn.Module, optimizer: torch.optim.Optimizer, calls: Calls, batch_size: int) -> bool:
    """Whether the kernels compute this step: ResNet-18 or -34 with SGD, called once on one batch of images."""
    if not isinstance(network, ResNet) or not calls.is_one or calls.shapes[0][0] != batch_size:
        return False
    _, channels, height, width = calls.shapes[0]
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return (
        batch_size % MULTIPLE == 0
        and channels == 3
        and height == width
        and height in PIXELS
        and network.stage_channels[0] == 64  # no bottlenecks
        and type(optimizer) is torch.optim.SGD
        and len(optimizer.param_groups) == 1
        and optimizer.param_groups[0]["momentum"] > 0
        and optimizer.param_groups[0]["scale"] == 1.0
        and {id(p) for p in parameters} == {id(p) for p in network.parameters()}
        and all(p.dtype is torch.float32 for p in parameters)
    )


def chip_fits(device: torch.device) -> bool:
    """Whether Triton and the GPU support the kernels; if not, say so once."""
    try:
        import triton.tools.tensor_descriptor  # noqa: F401
    except ImportError:
        warnings.warn("Triton 3.4 or newer is missing: training uses torch's kernels, which are slower", stacklevel=2)
        return False
    if torch.cuda.get_device_capability(device) < OLDEST_CAPABILITY:
        name = torch.cuda.get_device_name(device)
        warnings.warn(f"{name} is older than Hopper: training uses torch's kernels, which are slower", stacklevel=2)
        return False
    return True


def fuse(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: WeightAverage | None,
    calls: Calls,
    batch_size: int,
) -> FusedNetwork | None:
    """The network that uses the kernels, its tiles chosen; ``None`` if they do not compute this step.

    The weights' memory changes, but not their values; the running statistics of BatchNorm do.
    """
    if not ENABLED or not fits(network, optimizer, calls, batch_size):
        return None
    assert isinstance(network, ResNet)
    device = network.head.weight.device
    if not chip_fits(device):
        return None
    from vista.training.kernels.resnet import ResNetStep

    averaged: Any = None if average is None else average.network
    try:
        step = ResNetStep(
            network, optimizer, averaged, None if average is None else average.step,
            0.0 if average is None else average.decay, batch_size=batch_size, pixels=calls.shapes[0][2],
        )  # fmt: skip
        with torch.no_grad():  # chooses the tiles here: a backward pass in autograd's thread could not capture graphs
            logits, kept = step.forward(torch.zeros(calls.shapes[0], device=device))
            step.backward(torch.zeros_like(logits), kept)
    except Exception as error:  # of Triton's compiler, which has errors of many kinds; torch's kernels always work
        warnings.warn(f"the fast kernels failed ({error!r}): training uses torch's, which are slower", stacklevel=2)
        return None
    return FusedNetwork(network, step)
