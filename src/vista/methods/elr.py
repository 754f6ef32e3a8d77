"""ELR (early-learning regularisation): stay close to the predictions made before wrong labels were memorised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vista.core.losses import at_least_float32
from vista.core.validation import not_negative
from vista.methods.base import Batch, Method, Task, check_below_one

NEUTRAL: dict[str, Any] = {"weight": 0.0}

CLAMP = 1e-4  # the source's; keeps the logarithm finite


def compute_clamped_probs(logits: Tensor) -> Tensor:
    r""":math:`p = \mathrm{clip}(\sigma(z), 10^{-4}, 1 - 10^{-4})`, ``[B, K]``."""
    return at_least_float32(logits).softmax(dim=1).clamp(CLAMP, 1.0 - CLAMP)


def update_running_mean(targets: Tensor, probs: Tensor, momentum: float) -> Tensor:
    r""":math:`t \leftarrow b\,t + (1 - b)\,p / \sum_k p_k`, all ``[B, K]``."""
    return (probs / probs.sum(dim=1, keepdim=True)).lerp(targets, momentum)


def compute_early_learning_term(probs: Tensor, targets: Tensor) -> Tensor:
    r""":math:`\frac1B \sum_i \log(1 - \langle t_i, p_i \rangle)`, both ``[B, K]``; it decreases as they agree."""
    return (1.0 - (targets * probs).sum(dim=1)).log().mean()


class EarlyLearningRegularisation(Method):
    name = "elr"
    family = "noise-robust"
    summary = "Cross-entropy plus a term for agreement with the running mean of each sample's predictions"
    cost = "1 forward, 1 backward"
    keeps = "N x K float32"
    source = "Liu et al., NeurIPS 2020"
    composes_with_cutmix = False
    sample_buffers = ("memory",)

    memory: Tensor

    @dataclass(frozen=True)
    class Config:
        weight: float = 7.0
        """Weight lambda of the regulariser; 7 in the source's CIFAR-100 settings."""
        momentum: float = 0.9
        """Weight of the old running mean in each update."""

        def __post_init__(self) -> None:
            not_negative(self.weight, "weight")
            check_below_one(self.momentum, "momentum")

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        self.register_buffer("memory", torch.zeros(task.num_samples, task.num_classes, device=task.device))

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        logits = self.observe(batch, network(batch.x))
        probs = compute_clamped_probs(logits)
        with torch.no_grad():
            past = self.memory.index_select(0, batch.index)
            targets = update_running_mean(past, probs.to(past.dtype), self.config.momentum)
            self.memory.index_copy_(0, batch.index, targets)
        hard = self.cross_entropy(logits, self.task.one_hot(batch.index))
        loss: Tensor = hard + self.config.weight * compute_early_learning_term(probs, targets)
        return loss

    def final_teacher(self) -> Tensor:
        total = self.memory.sum(dim=1, keepdim=True)
        return self.memory / torch.where(total > 0, total, 1.0)
