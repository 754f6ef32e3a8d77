"""TF-KD (teacher-free knowledge distillation): the teacher is hand-made, or an earlier run of the same network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vista.core.losses import distillation_kl
from vista.core.validation import not_negative, positive, unit_interval
from vista.methods.base import Batch, EarlierRun, Method, Task

NEUTRAL: dict[str, Any] = {"alpha": 0.0}

CONFIDENCE = 0.99  # probability that the virtual teacher gives to the label
# The source averages the KL over classes too and weights it by 100 (reg) and 50 (self) for K = 100: 1 and 0.5 here.
DEFAULTS = {
    "reg": {"alpha": 0.1, "temperature": 20.0, "weight": 1.0},
    "self": {"alpha": 0.95, "temperature": 6.0, "weight": 0.5},
}


def compute_teacher_levels(classes: int, temperature: float) -> tuple[float, float]:
    r""":math:`\sigma(u / T)` at the label and elsewhere, with :math:`u` = 0.99 and :math:`0.01 / (K - 1)`.

    The temperature divides the probabilities :math:`u` themselves, as in the source.
    """
    label = 1.0  # both relative to the label's value, so that nothing overflows at a low temperature
    other = math.exp(((1.0 - CONFIDENCE) / (classes - 1) - CONFIDENCE) / temperature)
    total = label + (classes - 1) * other
    return label / total, other / total


def make_virtual_teacher(hard: Tensor, temperature: float) -> Tensor:
    """Teacher probabilities ``[B, K]`` for labels ``hard`` ``[B, K]``, linear in ``hard``, as CutMix requires.

    Rows of zeros (no label) stay zero.
    """
    label, other = compute_teacher_levels(hard.shape[1], temperature)
    return hard * (label - other) + hard.sum(dim=1, keepdim=True) * other


def compute_entropy(teacher: Tensor) -> Tensor:
    """Entropy ``[B]`` of each row: the difference between cross-entropy and KL."""
    return -torch.xlogy(teacher, teacher).sum(dim=1)


class TeacherFreeKD(Method):
    name = "tf-kd"
    family = "teacher-free"
    summary = "Distillation from a hand-made teacher (reg), or from an earlier run of the same network (self)"
    cost = "1 forward, 1 backward; self: 1 more forward, and a full run before"
    keeps = "nothing; self: the earlier network"
    source = "Yuan et al., CVPR 2020"
    variants = {"tf-kd-self": {"mode": "self"}}  # noqa: RUF012

    @dataclass(frozen=True)
    class Config:
        mode: Literal["reg", "self"] = "reg"
        """reg: a virtual teacher computed from the label; self: the network of an earlier run of `ce`."""
        alpha: float | None = None
        """Share of the distillation term; cross-entropy has 1 - alpha. By default 0.1 (reg) or 0.95 (self)."""
        temperature: float | None = None
        """Temperature; by default 20 (reg, teacher only) or 6 (self, both sides)."""
        weight: float | None = None
        """Factor of the KL (averaged over the batch only); by default 1 (reg) or 0.5 (self)."""

        def __post_init__(self) -> None:
            if self.mode not in DEFAULTS:
                raise ValueError(f"mode must be one of {', '.join(DEFAULTS)}, got {self.mode!r}")
            for field, default in DEFAULTS[self.mode].items():
                if getattr(self, field) is None:
                    object.__setattr__(self, field, default)  # so that the record shows the value used
            assert self.alpha is not None
            assert self.temperature is not None
            assert self.weight is not None
            unit_interval(self.alpha, "alpha")
            positive(self.temperature, "temperature")
            not_negative(self.weight, "weight")

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        self._earlier: tuple[nn.Module, ...] = ()  # a tuple, so that it is no submodule: neither trained nor saved
        if config.mode == "self":
            if "teacher" not in task.earlier:
                raise ValueError("tf-kd:mode=self needs the network of an earlier run of ce as task.earlier['teacher']")
            self._earlier = (task.earlier["teacher"],)

    @classmethod
    def earlier_runs(cls, config: Any) -> tuple[EarlierRun, ...]:
        return (EarlierRun("teacher", "ce"),) if config.mode == "self" else ()

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        logits = self.observe(batch, network(batch.x))
        hard = self.mix_targets(batch, self.task.one_hot)
        alpha, share = self.config.alpha, self.config.alpha * self.config.weight
        loss: Tensor
        if self.config.mode == "self":
            loss = self.cross_entropy(logits, hard) * (1.0 - alpha) + self._from_earlier(logits, batch) * share
            return loss
        teacher = make_virtual_teacher(hard, self.config.temperature)
        target = hard * (1.0 - alpha) + teacher * share  # KL = cross-entropy - entropy of the teacher
        loss = self.cross_entropy(logits, target) - self._entropy(batch, teacher) * share
        return loss

    def _entropy(self, batch: Batch, teacher: Tensor) -> Tensor | float:
        """Return the mean entropy over the rows with a teacher; a constant without CutMix."""
        if batch.partner is not None:
            rows = self.count_rows(teacher)
            return compute_entropy(teacher).sum() / (len(teacher) if rows is None else rows)
        label, other = compute_teacher_levels(teacher.shape[1], self.config.temperature)
        return -label * math.log(label) - ((teacher.shape[1] - 1) * other * math.log(other) if other else 0.0)

    def _from_earlier(self, logits: Tensor, batch: Batch) -> Tensor:
        with torch.no_grad():
            teacher = self._earlier[0](batch.x)
        return distillation_kl(logits, teacher, self.config.temperature)
