"""BAN (born-again networks): a new network learns from the labels and from an identical, already trained network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vista.core.losses import at_least_float32, soft_cross_entropy
from vista.core.validation import not_negative
from vista.methods.base import Batch, EarlierRun, Method, Task

NEUTRAL: dict[str, Any] = {"weight": 0.0}
TEACHER = "teacher"
MAX_GENERATIONS = 20
MAX_GENERATIONS = 20


def compute_teacher_loss(logits: Tensor, teacher: Tensor) -> Tensor:
    r""":math:`-\frac1B \sum_{ik} q_{ik} \log p_{ik}` with :math:`q` the softmax of ``teacher`` ``[B, K]``."""
    return soft_cross_entropy(logits, at_least_float32(teacher).softmax(dim=-1))


class Ban(Method):
    name = "ban"
    family = "past epochs"
    summary = "A new network learns from the labels and from an identical, already trained network"
    cost = "2 forward, 1 backward, after one full training run per earlier generation"
    keeps = "the earlier network"
    source = "Furlanello et al., Born-Again Neural Networks, ICML 2018"

    @dataclass(frozen=True)
    class Config:
        generations: int = 1
        """Number of generations after the first network, which learns from the labels alone."""
        weight: float = 1.0
        """Weight of the teacher term; the cross-entropy with the label has weight 1."""

        def __post_init__(self) -> None:
            if not 1 <= self.generations <= MAX_GENERATIONS:
                raise ValueError(
                    f"generations must be from 1 to {MAX_GENERATIONS} (use method ce for 0), got {self.generations}"
                )
            not_negative(self.weight, "weight")

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        if TEACHER not in task.earlier:
            raise ValueError(
                f"ban needs the network of an earlier run as task.earlier[{TEACHER!r}], got "
                f"{sorted(task.earlier) or 'none'}; the training loop provides those that earlier_runs() names"
            )
        self._teacher = (task.earlier[TEACHER],)  # a tuple, so that it is no submodule: neither trained nor saved

    @classmethod
    def earlier_runs(cls, config: Any) -> tuple[EarlierRun, ...]:
        if config.generations == 1:
            return (EarlierRun(TEACHER, "ce"),)
        options = {"generations": config.generations - 1, "weight": config.weight}
        return (EarlierRun(TEACHER, cls.name, options),)

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        logits = self.observe(batch, network(batch.x))
        with torch.no_grad():
            teacher = self._teacher[0](batch.x)
        hard = self.cross_entropy(logits, self.mix_targets(batch, self.targets))
        soft: Tensor = self.config.weight * compute_teacher_loss(logits, teacher)
        return hard + soft
