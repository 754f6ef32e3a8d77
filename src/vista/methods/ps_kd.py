"""PS-KD (progressive self-knowledge distillation): the target blends the label with the previous epoch's prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vista.core.options import beta, check_form
from vista.core.teacher import blend_labelled
from vista.core.validation import unit_interval
from vista.methods.base import LastPrediction, Task

NEUTRAL: dict[str, Any] = {"alpha": 0.0}


def compute_share(epoch: int, epochs: int, kind: Literal["linear", "exp"], k: float) -> float:
    r"""Value of the schedule in epoch ``t``: :math:`t / E`, or VISTA's :math:`\beta_{t-1}` (0 in epochs 1 and 2)."""
    if kind == "linear":
        return epoch / epochs
    return beta(max(epoch - 1, 1), epochs, k)


class ProgressiveSelfKD(LastPrediction):
    name = "ps-kd"
    family = "past epochs"
    summary = "The target blends the label with a growing share of the previous epoch's prediction"
    cost = "1 forward, 1 backward"
    source = "Kim et al., ICCV 2021"
    variants = {"ps-kd-beta": {"alpha": 1.0, "schedule": "exp"}}  # noqa: RUF012

    alpha: Tensor

    @dataclass(frozen=True)
    class Config:
        alpha: float = 0.8
        """Share of the previous prediction at the end of the schedule; the source uses 0.8 on CIFAR-100."""
        schedule: Literal["linear", "exp"] = "linear"
        """Growth of the share: linear, t / E as in the source, or exp, VISTA's beta."""
        k: float = 2.0
        """Curvature of the exp schedule."""

        def __post_init__(self) -> None:
            unit_interval(self.alpha, "alpha")
            if self.schedule not in ("linear", "exp"):
                raise ValueError(f"schedule must be one of linear, exp, got {self.schedule!r}")
            check_form(self.k, "exp", None)

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        self.register_buffer("alpha", torch.zeros((), device=task.device))

    def begin_epoch(self, epoch: int) -> None:
        config = self.config
        self.alpha.fill_(config.alpha * compute_share(epoch, self.task.epochs, config.schedule, config.k))

    def targets(self, index: Tensor) -> Tensor:
        return blend_labelled(self.task.one_hot(index), self.memory.index_select(0, index), self.alpha)
