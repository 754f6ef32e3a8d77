"""Label smoothing: a share of the target is spread evenly over the other classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vista.core.validation import unit_interval
from vista.methods.base import Method

NEUTRAL: dict[str, Any] = {"epsilon": 0.0}


def smooth_labels(hard: Tensor, epsilon: float) -> Tensor:
    r"""Rows ``[B, K]`` with :math:`1 - \epsilon` at the label and :math:`\epsilon / (K - 1)` elsewhere.

    Rows of zeros (no label) stay zero.

    Example:
        >>> import torch
        >>> smooth_labels(torch.tensor([[0.0, 1.0, 0.0]]), epsilon=0.1)
        tensor([[0.0500, 0.9000, 0.0500]])
    """
    others = (hard.sum(dim=1, keepdim=True) - hard) * (epsilon / (hard.shape[1] - 1))
    return hard * (1.0 - epsilon) + others


class LabelSmoothing(Method):
    name = "label-smoothing"
    family = "teacher-free"
    summary = "A share of the target is spread evenly over the other classes"
    cost = "1 forward, 1 backward"
    keeps = "nothing"
    source = "Szegedy et al., CVPR 2016"

    @dataclass(frozen=True)
    class Config:
        epsilon: float = 0.1
        """Share of the target moved from the label to the other classes, epsilon / (K - 1) each."""

        def __post_init__(self) -> None:
            unit_interval(self.epsilon, "epsilon")

    def targets(self, index: Tensor) -> Tensor:
        return smooth_labels(self.task.one_hot(index), self.config.epsilon)
