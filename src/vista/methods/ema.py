"""EMA: train with cross-entropy, then evaluate and save an exponential moving average of the weights."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vista.methods.base import Method, Task, check_below_one

NEUTRAL: dict[str, Any] = {"decay": 0.0}


def move_towards(average: Sequence[Tensor], current: Sequence[Tensor], rate: Tensor) -> None:
    r"""In place :math:`\bar w \leftarrow \bar w + r\,(w - \bar w)` for every tensor; ``rate`` is 0-d."""
    change = torch._foreach_sub(list(current), list(average))  # fused: one kernel for all tensors of the network
    torch._foreach_mul_(change, rate)
    torch._foreach_add_(list(average), change)


def compute_rate(step: Tensor, decay: float) -> Tensor:
    r""":math:`1 - \min(d, \frac{1 + n}{10 + n})` after ``n`` steps: the average changes faster at first."""
    return 1.0 - torch.clamp((1.0 + step) / (10.0 + step), max=decay)


@torch.no_grad()
def update_average(average: nn.Module, network: nn.Module, rate: Tensor) -> None:
    """Move every parameter and buffer of ``average`` towards those of ``network``; counters are copied."""
    pairs: list[tuple[Tensor, Tensor]] = list(zip(average.parameters(), network.parameters(), strict=True))
    for mean, latest in zip(average.buffers(), network.buffers(), strict=True):
        if mean.is_floating_point():  # BatchNorm's statistics must match the averaged weights
            pairs.append((mean, latest))
        else:
            mean.copy_(latest)
    move_towards([mean for mean, _ in pairs], [latest for _, latest in pairs], rate)


class ExponentialMovingAverage(Method):
    name = "ema"
    family = "plain"
    summary = "Cross-entropy; a moving average of the weights is evaluated and saved"
    cost = "1 forward, 1 backward, one pass over the weights"
    keeps = "a copy of the weights"
    source = "decay from Corn and Weinshall, VISTA; practice as in Morales-Brotons et al. 2024"

    step: Tensor

    @dataclass(frozen=True)
    class Config:
        decay: float = 0.999
        """Weight of the old average in each step, reached after a warm-up (1 + n) / (10 + n)."""

        def __post_init__(self) -> None:
            check_below_one(self.decay, "decay")

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        self.average = copy.deepcopy(network).requires_grad_(False)
        self.register_buffer("step", torch.zeros((), device=task.device))

    @torch.no_grad()
    def after_step(self, network: nn.Module) -> None:
        update_average(self.average, network, compute_rate(self.step, self.config.decay))
        self.step.add_(1.0)

    def evaluated(self, network: nn.Module) -> nn.Module:
        return self.average
