"""CS-KD (class-wise self-distillation): an image learns from the prediction for another image of its class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vista.core.losses import distillation_kl
from vista.core.validation import not_negative, positive
from vista.methods.base import Batch, Method

NEUTRAL: dict[str, Any] = {"weight": 0.0}


def compute_class_consistency(
    logits: Tensor,
    partner: Tensor,
    temperature: float,
    labelled: Tensor | None = None,
    rows: Tensor | None = None,
) -> Tensor:
    r""":math:`T^2\, \mathrm{KL}(\sigma(z'/T) \| \sigma(z/T))`, averaged over the ``labelled`` rows ``[B]``.

    ``logits`` ``[B, K]`` learn from the logits ``partner`` ``[B, K]``, which receive no gradient. Rows without a label
    contribute 0. ``rows`` replaces the number of labelled rows as the divisor.
    """
    partner = partner.detach()
    if labelled is None:
        return distillation_kl(logits, partner, temperature)
    partner = torch.where(labelled.unsqueeze(1), partner, logits.detach())
    rows = labelled.sum().clamp(min=1) if rows is None else rows
    return distillation_kl(logits, partner, temperature) * len(logits) / rows


class CsKd(Method):
    name = "cs-kd"
    family = "current epoch"
    summary = "An image learns from the prediction for another image of its class"
    cost = "2 forward, 1 backward"
    keeps = "nothing"
    source = "Yun et al., Regularizing Class-wise Predictions, CVPR 2020"
    composes_with_cutmix = False  # a mixed image has no single class

    @dataclass(frozen=True)
    class Config:
        weight: float = 1.0
        """Weight of the distillation term; the source uses 3 for fine-grained classes."""
        temperature: float = 4.0
        """Temperature of both predictions."""

        def __post_init__(self) -> None:
            not_negative(self.weight, "weight")
            positive(self.temperature, "temperature", usual=4)

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        logits = self.observe(batch, network(batch.x))
        with torch.no_grad():  # in train mode, as in the source: partners update BatchNorm's statistics
            partner = network(batch.view(1, batch.same_class()))
        labelled = None
        if self.task.has_missing_labels:
            labelled = self.task.labels.index_select(0, batch.index) >= 0
        targets = self.targets(batch.index)
        term = compute_class_consistency(logits, partner, self.config.temperature, labelled, self.count_rows(targets))
        loss: Tensor = self.cross_entropy(logits, targets) + self.config.weight * term
        return loss
