"""Born-again networks: a fresh network learns from the labels and from one of its kind trained before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vista.checks import not_negative
from vista.losses import soft_cross_entropy, wide
from vista.methods.base import Batch, EarlierRun, Method, Task

NEUTRAL: dict[str, Any] = {"weight": 0.0}
TEACHER = "teacher"


def compute_teacher_loss(logits: Tensor, teacher: Tensor) -> Tensor:
    r""":math:`-\frac1B \sum_{ik} q_{ik} \log p_{ik}` with :math:`q` the softmax of ``teacher``; logits ``[B, K]``."""
    return soft_cross_entropy(logits, wide(teacher).softmax(dim=-1))


MOST_GENERATIONS = 20


class Ban(Method):
    name = "ban"
    family = "past epochs"
    summary = "A fresh network learns from the labels and from one of its kind trained before"
    cost = "2 forward, 1 backward, after one whole training for each generation before"
    keeps = "the earlier network"
    source = "Furlanello et al., Born-Again Neural Networks, ICML 2018"

    @dataclass(frozen=True)
    class Config:
        generations: int = 1
        """How many times a network is born again; the first one's teacher learned from the labels alone."""
        weight: float = 1.0
        """Weight of the teacher's prediction beside the label."""

        def __post_init__(self) -> None:
            if not 1 <= self.generations <= MOST_GENERATIONS:
                raise ValueError(
                    f"generations is {self.generations}, but it must be at least 1 (0 would be plain ce) and at most "
                    f"{MOST_GENERATIONS}: each is a whole training"
                )
            not_negative(self.weight, "weight")

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        if TEACHER not in task.earlier:
            raise ValueError(
                f"ban needs the network of an earlier run as task.earlier[{TEACHER!r}], but it has "
                f"{sorted(task.earlier) or 'none'}; the training provides it from earlier_runs()"
            )
        self._teacher = (task.earlier[TEACHER],)  # in a tuple: it must neither train nor be saved with this run

    @classmethod
    def earlier_runs(cls, config: Any) -> tuple[EarlierRun, ...]:
        if config.generations == 1:
            return (EarlierRun(TEACHER, "ce"),)
        options = {"generations": config.generations - 1, "weight": config.weight}
        return (EarlierRun(TEACHER, cls.name, options),)

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        logits = network(batch.x)
        with torch.no_grad():  # of the same picture, mixed or not
            teacher = self._teacher[0](batch.x)
        hard = self.cross_entropy(logits, self.mix_targets(batch, self.targets))
        soft: Tensor = self.config.weight * compute_teacher_loss(logits, teacher)
        return hard + soft
