"""SAT (self-adaptive training): targets move from the label towards the mean of the network's predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vista.core.losses import soft_cross_entropy, wide
from vista.core.teacher import adapt_targets
from vista.core.validation import unit_interval
from vista.methods.base import Batch, Method, Task, check_below_one

NEUTRAL: dict[str, Any] = {"start": 1.0}


def compute_weighted_loss(logits: Tensor, targets: Tensor) -> Tensor:
    r""":math:`\sum_i w_i\,\mathrm{CE}(t_i, p_i) / \sum_i w_i` with :math:`w_i = \max_k t_{ik}`."""
    weight = targets.amax(dim=1)
    share = weight / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)
    return soft_cross_entropy(logits, targets, reduction="sum", sample_weight=share)


class SelfAdaptiveTraining(Method):
    name = "sat"
    family = "past epochs"
    summary = "Targets move from the label to a running mean of predictions; uncertain samples weigh less"
    cost = "1 forward, 1 backward"
    keeps = "N x K float32"
    source = "Huang et al., NeurIPS 2020"
    weighs_targets = False
    composes_with_cutmix = False
    sample_buffers = ("memory",)

    memory: Tensor
    momentum: Tensor

    @dataclass(frozen=True)
    class Config:
        momentum: float = 0.9
        """Weight of the old target in each update."""
        start: float = 0.3
        """Share of the epochs with plain cross-entropy at first; 60 of 200 in the source, 1 means all."""

        def __post_init__(self) -> None:
            check_below_one(self.momentum, "momentum")
            unit_interval(self.start, "start")

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        self.register_buffer("memory", task.one_hot(torch.arange(task.num_samples, device=task.device)))
        self.register_buffer("momentum", torch.ones((), device=task.device))

    def begin_epoch(self, epoch: int) -> None:
        started = (epoch - 1) / self.task.epochs >= self.config.start
        self.momentum.fill_(self.config.momentum if started else 1.0)

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        logits = self.observe(batch, network(batch.x))
        with torch.no_grad():
            probs = wide(logits).softmax(dim=1).to(self.memory.dtype)
            targets = adapt_targets(self.memory.index_select(0, batch.index), probs, self.momentum)
            self.memory.index_copy_(0, batch.index, targets)
        return compute_weighted_loss(logits, targets)

    def final_teacher(self) -> Tensor:
        return self.memory
