"""SELC (self-ensemble label correction): after an early phase, labels move to the mean of the network's predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from vista.core.validation import unit_interval
from vista.methods.base import Batch, RunningTargets, check_below_one

NEUTRAL: dict[str, Any] = {"start": 1.0}


class SelfEnsembleLabelCorrection(RunningTargets):
    name = "selc"
    family = "noise-robust"
    summary = "After an early phase, labels are replaced step by step with the mean of the network's predictions"
    cost = "1 forward, 1 backward"
    source = "Lu and He, IJCAI 2022"

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

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        logits = self.observe(batch, network(batch.x))
        targets = self.update_targets(logits, batch.index)
        return self.cross_entropy(logits, targets)

    def targets(self, index: Tensor) -> Tensor:
        return self.memory.index_select(0, index)
