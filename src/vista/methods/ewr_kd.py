"""EWR-KD (reconstruction): PS-KD whose share of the previous prediction shrinks with its entropy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vista.core.teacher import blend_labelled
from vista.core.validation import unit_interval
from vista.methods.base import LastPrediction, Task

NEUTRAL: dict[str, Any] = {"alpha": 0.0}


def measure_uncertainty(probs: Tensor) -> Tensor:
    r""":math:`u_i = H(p_i) / \log K`, ``[B, 1]`` from ``[B, K]``: 0 for a one-hot row, 1 for a uniform one."""
    entropy: Tensor = torch.special.entr(probs).sum(dim=1, keepdim=True)
    return entropy / math.log(probs.shape[1])


def blend_by_certainty(hard: Tensor, previous: Tensor, alpha: Tensor) -> Tensor:
    r""":math:`(1 - a_i)\,\text{hard} + a_i\,\text{previous}` with :math:`a_i = \alpha (1 - u_i)`, all ``[B, K]``.

    Rows without a label are the previous prediction.
    """
    trust = alpha * (1.0 - measure_uncertainty(previous)).clamp(min=0.0)
    return blend_labelled(hard, previous, trust)


class EpochWiseRegularisation(LastPrediction):
    name = "ewr-kd"
    family = "past epochs"
    summary = "PS-KD with a smaller share of the previous prediction where that was uncertain"
    cost = "1 forward, 1 backward"
    source = "Xia et al., IJCNN 2021 (reconstruction from the abstract)"
    reconstruction = True

    alpha: Tensor

    @dataclass(frozen=True)
    class Config:
        alpha: float = 0.8
        """Share of a fully certain previous prediction in the last epoch; PS-KD's value, the source's is unknown."""

        def __post_init__(self) -> None:
            unit_interval(self.alpha, "alpha")

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        self.register_buffer("alpha", torch.zeros((), device=task.device))

    def begin_epoch(self, epoch: int) -> None:
        self.alpha.fill_(self.config.alpha * epoch / self.task.epochs)

    def targets(self, index: Tensor) -> Tensor:
        return blend_by_certainty(self.task.one_hot(index), self.memory.index_select(0, index), self.alpha)
