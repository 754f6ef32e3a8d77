"""SELC (self-ensemble label correction): after an early phase, labels move to the mean of the network's predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vista.core.losses import wide
from vista.core.teacher import adapt_targets
from vista.core.validation import unit_interval
from vista.methods.base import Batch, Method, Task, check_below_one

NEUTRAL: dict[str, Any] = {"start": 1.0}


class SelfEnsembleLabelCorrection(Method):
    name = "selc"
    family = "noise-robust"
    summary = "After an early phase, labels are replaced step by step with the mean of the network's predictions"
    cost = "1 forward, 1 backward"
    keeps = "N x K float32"
    source = "Lu and He, IJCAI 2022"
    composes_with_cutmix = False
    sample_buffers = ("memory",)

    memory: Tensor
    momentum: Tensor

    @dataclass(frozen=True)
    class Config:
        momentum: float = 0.9
        """Weight of the old target in each update."""
        start: float = 0.1
        """Share of the epochs with plain cross-entropy at first; 20 of 200 in the source at 40 % noise on CIFAR-100, 1
        means all."""

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
        return self.cross_entropy(logits, targets)

    def targets(self, index: Tensor) -> Tensor:
        return self.memory.index_select(0, index)

    def final_teacher(self) -> Tensor:
        return self.memory
