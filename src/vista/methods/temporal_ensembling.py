"""Temporal ensembling: predictions are kept close to the running mean of each sample's earlier predictions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vista.core.losses import at_least_float32, soft_cross_entropy
from vista.core.validation import not_negative
from vista.methods.base import Batch, Method, Task, check_below_one

NEUTRAL: dict[str, Any] = {"weight": 0.0}


def compute_ramp(epoch: int, epochs: int, length: float) -> float:
    r""":math:`e^{-5 (1 - T)^2}` with :math:`T = \min(1, \frac{t - 1}{\text{length} \cdot E})`; 0 in epoch 1."""
    if epoch == 1:
        return 0.0
    done = min(1.0, (epoch - 1) / (length * epochs)) if length > 0 else 1.0
    return math.exp(-5.0 * (1.0 - done) ** 2)


def correct_bias(memory: Tensor) -> Tensor:
    r""":math:`Z / (1 - a^t)`, ``[B, K]``. The factor equals the row's sum, because each prediction sums to one.

    Rows of zeros (samples not seen yet) stay zero.
    """
    return memory / memory.sum(dim=1, keepdim=True).clamp(min=torch.finfo(memory.dtype).tiny)


def compute_consistency(probs: Tensor, teacher: Tensor) -> Tensor:
    r""":math:`\frac{1}{BK} \sum_i \|p_i - \tilde z_i\|^2`, both ``[B, K]``; rows without a teacher (zeros) add 0."""
    known = teacher.amax(dim=1, keepdim=True) > 0
    return F.mse_loss(probs * known, teacher)


class TemporalEnsembling(Method):
    name = "temporal-ensembling"
    family = "past epochs"
    summary = "Cross-entropy plus the distance to the running mean of each sample's earlier predictions"
    cost = "1 forward, 1 backward"
    keeps = "N x K float32"
    source = "Laine and Aila, ICLR 2017"
    composes_with_cutmix = False
    sample_buffers = ("memory",)
    version = 2  # version 1 divided the supervised sum by the labelled rows

    memory: Tensor
    weight: Tensor

    @dataclass(frozen=True)
    class Config:
        momentum: float = 0.6
        """Weight of the old running mean in each update."""
        weight: float = 100.0
        """Final weight of the squared distance (averaged over classes too), times the share of labelled samples; 100
        for CIFAR-100 in the source, 30 for CIFAR-10."""
        ramp: float = 80 / 300
        """Share of the epochs over which the weight grows; 80 of 300 in the source."""

        def __post_init__(self) -> None:
            check_below_one(self.momentum, "momentum")
            not_negative(self.weight, "weight")
            not_negative(self.ramp, "ramp")

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        self.labelled_share = float((task.labels >= 0).double().mean())
        self.register_buffer("memory", torch.zeros(task.num_samples, task.num_classes, device=task.device))
        self.register_buffer("weight", torch.zeros((), device=task.device))

    def begin_epoch(self, epoch: int) -> None:
        height = self.config.weight * self.labelled_share
        self.weight.fill_(height * compute_ramp(epoch, self.task.epochs, self.config.ramp))

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        logits = self.observe(batch, network(batch.x))
        probs = at_least_float32(logits).softmax(dim=1)
        past = self.memory.index_select(0, batch.index)
        self.memory.index_copy_(0, batch.index, probs.detach().to(past.dtype).lerp(past, self.config.momentum))
        # As in the source, samples without a label count in the divisor of both means.
        hard = soft_cross_entropy(logits, self.weigh_targets(self.task.one_hot(batch.index)))
        return hard + self.weight * compute_consistency(probs, correct_bias(past))

    def final_teacher(self) -> Tensor:
        return correct_bias(self.memory)
