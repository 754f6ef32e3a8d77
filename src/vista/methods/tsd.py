"""TSD (tolerant self-distillation, reconstruction): samples learn from stored predictions of their class.

Correctly classified samples learn from the wrong predictions, misclassified samples from the right ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vista.core.losses import at_least_float32, distillation_kl
from vista.core.validation import not_negative, positive
from vista.methods.base import Batch, Method, Task

NEUTRAL: dict[str, Any] = {"weight": 0.0}


def read_queues(queues: Tensor, written: Tensor, group: Tensor) -> tuple[Tensor, Tensor]:
    """Mean probabilities ``[B, K]`` in the queues of ``group`` ``[B]``, and whether each queue has entries.

    ``queues`` ``[G * Q + 1, K]`` has Q rows per group, zero while unused, and a spare row at the end; ``written``
    ``[G]`` counts all predictions ever appended.
    """
    slots = queues[:-1].view(len(written), -1, queues.shape[1])
    held = written.index_select(0, group).clamp(max=slots.shape[1])
    return slots.index_select(0, group).sum(dim=1) / held.clamp(min=1).unsqueeze(1), held > 0


def append_to_queues(queues: Tensor, written: Tensor, group: Tensor, probs: Tensor) -> None:
    """Append ``probs`` ``[B, K]`` to the queues of ``group`` ``[B]`` in place, replacing the oldest; skip group -1.

    If more than Q rows go to one queue, the last Q stay. Skipped rows write zeros to the spare row, so that no value
    is read on the host.
    """
    size = (len(queues) - 1) // len(written)
    member = group.unsqueeze(1) == torch.arange(len(written), device=group.device)  # [B, G]
    rank = member.cumsum(dim=0)  # order of arrival in its queue, from 1
    arrivals = rank[-1]
    own = group.clamp(min=0)
    order = rank.gather(1, own.unsqueeze(1)).squeeze(1)
    kept = (group >= 0) & (arrivals.index_select(0, own) - order < size)
    slot = own * size + (written.index_select(0, own) + order - 1) % size
    rows = torch.where(kept, slot, len(queues) - 1)
    queues.index_copy_(0, rows, probs * kept.unsqueeze(1))
    written.add_(arrivals)


def compute_tolerant_term(logits: Tensor, teacher: Tensor, known: Tensor, temperature: float) -> Tensor:
    r"""Batch mean of :math:`T^2\,\mathrm{KL}(\text{teacher} \,\|\, p)`, both at temperature T; 0 where not ``known``.

    Logits and teacher probabilities are ``[B, K]``, ``known`` is bool ``[B]``.
    """
    teacher_logits = teacher.clamp(min=torch.finfo(teacher.dtype).tiny).log()
    target = torch.where(known.unsqueeze(1), teacher_logits, at_least_float32(logits.detach()))
    return distillation_kl(logits, target, temperature)


class TolerantSelfDistillation(Method):
    name = "tsd"
    family = "past epochs"
    summary = "Right samples learn from stored wrong predictions of their class, wrong samples from right ones"
    cost = "1 forward, 1 backward"
    keeps = "2 x K queues of predictions"
    source = "Liu et al., Neural Networks 2024 (reconstruction from the abstract)"
    reconstruction = True
    composes_with_cutmix = False

    queues: Tensor
    written: Tensor

    @dataclass(frozen=True)
    class Config:
        weight: float = 1.0
        """Weight lambda of the distillation term."""
        temperature: float = 4.0
        """Temperature of both sides."""
        queue: int = 16
        """Number of right and of wrong predictions stored per class."""

        def __post_init__(self) -> None:
            not_negative(self.weight, "weight")
            positive(self.temperature, "temperature")
            if self.queue < 1:
                raise ValueError(f"queue must be at least 1, got {self.queue}")

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        groups, classes = 2 * task.num_classes, task.num_classes
        self.register_buffer("queues", torch.zeros(groups * config.queue + 1, classes, device=task.device))
        self.register_buffer("written", torch.zeros(groups, dtype=torch.long, device=task.device))

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        logits = self.observe(batch, network(batch.x))
        labels = self.task.labels.index_select(0, batch.index)
        with torch.no_grad():
            probs = at_least_float32(logits).softmax(dim=1).to(self.queues.dtype)
            wrong = (probs.argmax(dim=1) != labels).long()
            classes = labels.clamp(min=0)
            # Queue 2y holds the right predictions of class y, queue 2y + 1 the wrong ones.
            teacher, known = read_queues(self.queues, self.written, 2 * classes + 1 - wrong)
            append_to_queues(self.queues, self.written, torch.where(labels >= 0, 2 * classes + wrong, -1), probs)
        term = compute_tolerant_term(logits, teacher, known & (labels >= 0), self.config.temperature)
        loss: Tensor = self.cross_entropy(logits, self.task.one_hot(batch.index)) + self.config.weight * term
        return loss
