"""DDGSD (data-distortion guided self-distillation): two augmented views of an image teach each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from vista.core.losses import at_least_float32, distillation_kl, soft_cross_entropy
from vista.core.validation import not_negative, positive
from vista.methods.base import Batch, Method, Task
from vista.models.staged import Staged

NEUTRAL: dict[str, Any] = {"weight": 0.0, "mmd": 0.0}


class Terms(NamedTuple):
    """The parts of the loss, scalars that include their weights; ``main`` is the first view's cross-entropy."""

    main: Tensor
    other: Tensor
    distillation: Tensor
    features: Tensor


def compute_mean_discrepancy(first: Tensor, second: Tensor) -> Tensor:
    """Squared distance between the batch means of the features ``[B, F]`` of two views."""
    return (at_least_float32(first).mean(dim=0) - at_least_float32(second).mean(dim=0)).square().sum()


def compute_ddgsd_terms(
    logits: tuple[Tensor, Tensor],
    features: tuple[Tensor, Tensor],
    targets: Tensor,
    *,
    weight: float,
    mmd: float,
    temperature: float,
    rows: Tensor | None = None,
) -> Terms:
    r""":math:`\mathrm{CE}_a + \mathrm{CE}_b + \lambda T^2 (\mathrm{KL}(\bar p_a \| p_b) + \mathrm{KL}(\bar p_b \| p_a))
    + \mu \|\overline{f_a} - \overline{f_b}\|^2` for logits ``[B, K]`` and features ``[B, F]`` of the views a and b."""
    first, second = logits
    mutual = distillation_kl(second, first.detach(), temperature) + distillation_kl(first, second.detach(), temperature)
    return Terms(
        soft_cross_entropy(first, targets, rows=rows),
        soft_cross_entropy(second, targets, rows=rows),
        weight * mutual,
        mmd * compute_mean_discrepancy(*features),
    )


class Ddgsd(Method):
    name = "ddgsd"
    family = "current epoch"
    summary = "Two augmented views of an image teach each other"
    cost = "2 forward, 2 backward"
    keeps = "nothing"
    source = "Xu and Liu, Data-Distortion Guided Self-Distillation, AAAI 2019"
    composes_with_cutmix = False  # a second view of a mixed image would contain other crops

    @dataclass(frozen=True)
    class Config:
        weight: float = 1.0
        """Weight of the mutual distillation between the views."""
        mmd: float = 5e-4
        """Weight of the squared distance between the views' mean features."""
        temperature: float = 1.0
        """Temperature of both predictions."""

        def __post_init__(self) -> None:
            for name in ("weight", "mmd"):
                not_negative(getattr(self, name), name)
            positive(self.temperature, "temperature", usual=1)

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        if not isinstance(network, Staged):
            raise ValueError(
                f"ddgsd needs pooled features, but {type(network).__name__} provides none; use a network of "
                "vista.models or a subclass of vista.models.Staged"
            )

    def terms(self, network: nn.Module, batch: Batch) -> Terms:
        """Return the parts of the loss for this batch; both views pass through the network as one batch."""
        staged, config = cast(Staged, network), self.config
        both = torch.cat([batch.x, batch.view(1)])
        features = staged.embed(staged.stages(both)[-1])
        logits = staged.classify(features)
        targets = self.targets(batch.index)
        first, second = logits.chunk(2)
        self.observe(batch, first)
        first_features, second_features = features.chunk(2)
        return compute_ddgsd_terms(
            (first, second),
            (first_features, second_features),
            self.weigh_targets(targets),
            weight=config.weight,
            mmd=config.mmd,
            temperature=config.temperature,
            rows=self.count_rows(targets),
        )

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        return torch.stack(self.terms(network, batch)).sum()
