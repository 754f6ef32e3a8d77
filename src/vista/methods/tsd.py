"""TSD, reconstructed: right samples learn from stored wrong predictions of their class, wrong ones from right ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vista.checks import not_negative, positive
from vista.losses import distillation_kl, wide
from vista.methods.base import Batch, Method, Task

NEUTRAL: dict[str, Any] = {"weight": 0.0}


def read_queues(queues: Tensor, written: Tensor, group: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of what the queues hold for each ``group`` ``[B]``: probabilities ``[B, K]``, and whether anything is there.

    ``queues`` ``[G * Q + 1, K]`` has Q places for each group, zero while they are free, and a spare row at the end;
    ``written`` ``[G]`` counts all predictions that ever came.
    """
    places = queues[:-1].view(len(written), -1, queues.shape[1])
    held = written.index_select(0, group).clamp(max=places.shape[1])
    return places.index_select(0, group).sum(dim=1) / held.clamp(min=1).unsqueeze(1), held > 0


def append_to_queues(queues: Tensor, written: Tensor, group: Tensor, probs: Tensor) -> None:
    """Append ``probs`` ``[B, K]`` to the queues of ``group`` ``[B]`` in place, oldest out; a group of -1 is left out.

    Of more than Q newcomers to one queue the last Q stay. What is left out goes as zeros to the spare row, so that
    nothing depends on values the host would have to look at.
    """
    size = (len(queues) - 1) // len(written)
    member = group.unsqueeze(1) == torch.arange(len(written), device=group.device)  # [B, G]
    rank = member.cumsum(dim=0)  # of each newcomer in its queue, from 1
    arrivals = rank[-1]
    own = group.clamp(min=0)
    behind = rank.gather(1, own.unsqueeze(1)).squeeze(1)
    kept = (group >= 0) & (arrivals.index_select(0, own) - behind < size)
    place = own * size + (written.index_select(0, own) + behind - 1) % size
    rows = torch.where(kept, place, len(queues) - 1)
    queues.index_copy_(0, rows, probs * kept.unsqueeze(1))
    written.add_(arrivals)


def compute_tolerant_term(logits: Tensor, teacher: Tensor, known: Tensor, temperature: float) -> Tensor:
    r"""Batch mean of :math:`T^2\,\mathrm{KL}(\text{teacher} \,\|\, p)`, both at temperature T; 0 where not ``known``.

    Logits and teacher probabilities are ``[B, K]``, ``known`` is bool ``[B]``. A row that is its own teacher adds
    nothing.
    """
    teacher_logits = teacher.clamp(min=torch.finfo(teacher.dtype).tiny).log()
    target = torch.where(known.unsqueeze(1), teacher_logits, wide(logits.detach()))
    return distillation_kl(logits, target, temperature)


class TolerantSelfDistillation(Method):
    name = "tsd"
    family = "past epochs"
    summary = "Right samples learn from stored wrong predictions of their class, wrong ones from stored right ones"
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
        """How many right and how many wrong predictions each class remembers."""

        def __post_init__(self) -> None:
            not_negative(self.weight, "weight")
            positive(self.temperature, "temperature")
            if self.queue < 1:
                raise ValueError(f"queue is {self.queue}, but at least 1 prediction must have room")

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        groups, classes = 2 * task.num_classes, task.num_classes
        self.register_buffer("queues", torch.zeros(groups * config.queue + 1, classes, device=task.device))
        self.register_buffer("written", torch.zeros(groups, dtype=torch.long, device=task.device))

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        logits = network(batch.x)
        labels = self.task.labels.index_select(0, batch.index)
        with torch.no_grad():
            probs = wide(logits).softmax(dim=1).to(self.queues.dtype)
            wrong = (probs.argmax(dim=1) != labels).long()
            classes = labels.clamp(min=0)
            # Queue 2y holds the right predictions of class y, queue 2y + 1 the wrong ones.
            teacher, known = read_queues(self.queues, self.written, 2 * classes + 1 - wrong)
            append_to_queues(self.queues, self.written, torch.where(labels >= 0, 2 * classes + wrong, -1), probs)
        term = compute_tolerant_term(logits, teacher, known & (labels >= 0), self.config.temperature)
        loss: Tensor = self.cross_entropy(logits, self.task.one_hot(batch.index)) + self.config.weight * term
        return loss
