"""SAT (self-adaptive training): targets move from the label towards the mean of the network's predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vista.core.losses import soft_cross_entropy
from vista.core.validation import unit_interval
from vista.methods.base import Batch, RunningTargets, check_below_one

NEUTRAL: dict[str, Any] = {"start": 1.0}


def compute_weighted_loss(logits: Tensor, targets: Tensor) -> Tensor:
    r""":math:`\sum_i w_i\,\mathrm{CE}(t_i, p_i) / \sum_i w_i` with :math:`w_i = \max_k t_{ik}`."""
    weight = targets.amax(dim=1)
    share = weight / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)
    return soft_cross_entropy(logits, targets, reduction="sum", sample_weight=share)


class SelfAdaptiveTraining(RunningTargets):
    name = "sat"
    family = "past epochs"
    summary = "Targets move from the label to a running mean of predictions; uncertain samples weigh less"
    cost = "1 forward, 1 backward"
    source = "Huang et al., NeurIPS 2020"
    weighs_targets = False

    @dataclass(frozen=True)
    class Config:
        momentum: float = 0.9
        """Weight of the old target in each update."""
        start: float = 0.3
        """Share of the epochs with plain cross-entropy at first; 60 of 200 in the source, 1 means all."""

        def __post_init__(self) -> None:
            check_below_one(self.momentum, "momentum")
            unit_interval(self.start, "start")

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        logits = self.observe(batch, network(batch.x))
        targets = self.update_targets(logits, batch.index)
        return compute_weighted_loss(logits, targets)
