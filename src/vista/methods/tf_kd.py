"""TF-KD: distillation without a teacher network, or with the network's own earlier training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vista.checks import unit_interval
from vista.losses import distillation_kl, wide
from vista.methods.base import Batch, EarlierRun, Method, Task

NEUTRAL: dict[str, Any] = {"alpha": 0.0}

CONFIDENCE = 0.99  # of the virtual teacher in the label
# The source multiplies a KL averaged over classes too: by 100 (reg) and 50 (self) at K = 100, so 1 and 0.5 here.
DEFAULTS = {
    "reg": {"alpha": 0.1, "temperature": 20.0, "weight": 1.0},
    "self": {"alpha": 0.95, "temperature": 6.0, "weight": 0.5},
}


def virtual_teacher(hard: Tensor, temperature: float) -> Tensor:
    r""":math:`\sigma(u / T)` ``[B, K]`` of :math:`u` = 0.99 at the label, :math:`0.01 / (K - 1)` elsewhere.

    The temperature softens the probabilities :math:`u` themselves, as the source does; a row without label is uniform.
    """
    others = hard.sum(dim=1, keepdim=True) - hard
    u = hard * CONFIDENCE + others * ((1.0 - CONFIDENCE) / (hard.shape[1] - 1))
    return (u / temperature).softmax(dim=1)


def reg_term(logits: Tensor, teacher: Tensor, labelled: Tensor | None = None) -> Tensor:
    r"""Mean :math:`\mathrm{KL}(\text{teacher} \,\|\, \sigma(z))` over the rows ``labelled`` (all unless given).

    Logits and teacher probabilities are ``[B, K]``, ``labelled`` is bool ``[B]``; the student has no temperature.
    """
    teacher_logits = teacher.log()
    if labelled is None:
        return distillation_kl(logits, teacher_logits)
    own = wide(logits.detach())  # its own teacher: such a row adds nothing
    term = distillation_kl(logits, torch.where(labelled.unsqueeze(1), teacher_logits, own))
    return term * (len(labelled) / labelled.sum().clamp(min=1))


class TeacherFreeKD(Method):
    name = "tf-kd"
    family = "teacher-free"
    summary = "Distillation from a hand-made teacher (reg), or from an earlier run of the same network (self)"
    cost = "1 forward, 1 backward; self: 1 more forward, and a whole run before"
    keeps = "nothing; self: the earlier network"
    source = "Yuan et al., CVPR 2020"
    variants = {"tf-kd-self": {"mode": "self"}}  # noqa: RUF012

    @dataclass(frozen=True)
    class Config:
        mode: Literal["reg", "self"] = "reg"
        """reg: a virtual teacher made from the label; self: the network that an earlier run of `ce` trained."""
        alpha: float | None = None
        """Share of the distillation term; the rest is cross-entropy. By default 0.1 (reg) or 0.95 (self)."""
        temperature: float | None = None
        """Temperature; by default 20 (reg, the teacher's alone) or 6 (self, both sides)."""
        weight: float | None = None
        """Factor of the KL, a mean over the batch alone; by default 1 (reg) or 0.5 (self)."""

        def __post_init__(self) -> None:
            if self.mode not in DEFAULTS:
                raise ValueError(f"mode is {self.mode!r}, but it must be one of {', '.join(DEFAULTS)}")
            for field, default in DEFAULTS[self.mode].items():
                if getattr(self, field) is None:
                    object.__setattr__(self, field, default)  # so that a record shows what was used
            assert self.alpha is not None
            assert self.temperature is not None
            assert self.weight is not None
            unit_interval(self.alpha, "alpha")
            if not self.temperature > 0:
                raise ValueError(f"temperature is {self.temperature}, but it must be greater than 0")
            if not self.weight >= 0:
                raise ValueError(f"weight is {self.weight}, but it must be at least 0")

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        self._earlier: tuple[nn.Module, ...] = ()  # a tuple, so that it is neither trained nor saved
        if config.mode == "self":
            if "teacher" not in task.earlier:
                raise ValueError("tf-kd with mode='self' needs the network of an earlier run of `ce` as its 'teacher'")
            self._earlier = (task.earlier["teacher"],)

    @classmethod
    def earlier_runs(cls, config: Any) -> tuple[EarlierRun, ...]:
        return (EarlierRun("teacher", "ce"),) if config.mode == "self" else ()

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        logits = network(batch.x)
        hard = self.cross_entropy(logits, self.mixed(batch, self.task.one_hot))
        soft = self._from_label(logits, batch) if self.config.mode == "reg" else self._from_earlier(logits, batch)
        alpha = self.config.alpha
        loss: Tensor = hard * (1.0 - alpha) + soft * (alpha * self.config.weight)
        return loss

    def _from_label(self, logits: Tensor, batch: Batch) -> Tensor:
        temperature = self.config.temperature
        teacher = self.mixed(batch, lambda index: virtual_teacher(self.task.one_hot(index), temperature))
        labelled = None
        if self.task.has_missing_labels:
            labelled = self.mixed(batch, self.task.one_hot).sum(dim=1) > 0
        return reg_term(logits, teacher, labelled)

    def _from_earlier(self, logits: Tensor, batch: Batch) -> Tensor:
        with torch.no_grad():
            teacher = self._earlier[0](batch.x)
        return distillation_kl(logits, teacher, self.config.temperature)
