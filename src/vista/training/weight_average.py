"""A moving average of the weights beside any method: it is evaluated and saved, and leaves the training unchanged."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from vista.methods.ema import compute_rate, update_average


class WeightAverage(nn.Module):
    """The average of a network's weights, updated after every optimiser step; part of a captured step.

    Args:
        network: The network on its device; it is copied.
        decay: Weight of the old average in each step, reached after a warm-up (1 + n) / (10 + n).
    """

    step: Tensor

    def __init__(self, network: nn.Module, decay: float) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).requires_grad_(False)
        self.decay = decay
        device = next(network.parameters()).device
        self.register_buffer("step", torch.zeros((), device=device))

    def update(self, network: nn.Module) -> None:
        """Move the average towards the weights of ``network``."""
        update_average(self.network, network, compute_rate(self.step, self.decay))
        self.step.add_(1.0)
