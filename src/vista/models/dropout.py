"""Dropout whose masks come from a generator of its own."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """In training each element is zero with probability ``p``, else divided by ``1 - p``; in eval mode the identity.

    The mask is drawn from ``generator`` (None: the default one of the device), so that runs side by side in one
    process do not draw from each other's stream. ``torch.compile`` breaks its graph at a generator; a CUDA graph that
    captures one must have it registered.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"p is {p}, but a dropout probability is at least 0 and less than 1")
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
    """Let every ``Dropout`` inside the network draw from this generator, on the network's device."""
    for module in network.modules():
        if isinstance(module, Dropout):
            module.generator = generator
