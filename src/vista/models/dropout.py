"""Dropout that draws its masks from an explicit generator."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Zeroes each element with probability ``p`` and scales the rest by ``1 / (1 - p)``; the identity in eval mode.

    The mask is drawn from ``generator`` (None: the device's default), so that several runs in one process do not
    share a random stream. ``torch.compile`` breaks its graph at a generator, and a CUDA graph that captures one must
    have it registered.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"p must be at least 0 and less than 1, got {p}")
        self.p = p
        self.generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        keep = torch.empty_like(x).bernoulli_(1.0 - self.p, generator=self.generator)
        return x * keep / (1.0 - self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"


def set_generator(network: nn.Module, generator: torch.Generator | None) -> None:
    """Make every ``Dropout`` of the network draw from ``generator``, which must be on the network's device."""
    for module in network.modules():
        if isinstance(module, Dropout):
            module.generator = generator
