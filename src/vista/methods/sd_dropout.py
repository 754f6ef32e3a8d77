"""Self-distillation with dropout: two thinned copies of the features must lead to the same prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from vista.checks import not_negative, positive
from vista.losses import distillation_kl
from vista.methods.base import Batch, Method, Task
from vista.models.staged import Staged

NEUTRAL: dict[str, Any] = {"weight": 0.0}


def compute_dropout_consistency(first: Tensor, second: Tensor, temperature: float, detach: bool = False) -> Tensor:
    r""":math:`T^2 (\mathrm{KL}(p_1 \| p_2) + \mathrm{KL}(p_2 \| p_1))` of two predictions' logits ``[B, K]``.

    ``detach`` stops the gradient through the teaching side of each.
    """
    teachers = (first.detach(), second.detach()) if detach else (first, second)
    return distillation_kl(second, teachers[0], temperature) + distillation_kl(first, teachers[1], temperature)


class SdDropout(Method):
    name = "sd-dropout"
    family = "current epoch"
    summary = "Two dropout masks on the features must lead to the same prediction"
    cost = "1 forward, 1 backward, and the classifier twice more"
    keeps = "nothing"
    source = "Lee, Park, Seo and Kang, Self-Knowledge Distillation via Dropout, 2022"

    @dataclass(frozen=True)
    class Config:
        weight: float = 0.1
        """Weight of the two divergences beside the cross-entropy."""
        p: float = 0.5
        """Probability that a feature is dropped."""
        temperature: float = 3.0
        """Both predictions are softened by it."""
        detach: bool = False
        """Stop the gradient through the teaching side of each divergence."""

        def __post_init__(self) -> None:
            not_negative(self.weight, "weight")
            if not 0 <= self.p < 1:
                raise ValueError(f"p is {self.p}, but a dropout probability is at least 0 and less than 1")
            positive(self.temperature, "temperature", usual=3)

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        if not isinstance(network, Staged):
            raise ValueError(
                f"sd-dropout drops pooled features, but {type(network).__name__} gives none: every network of "
                "vista.models does, a network of your own does as a subclass of vista.models.Staged"
            )

    def drop_features(self, features: Tensor) -> Tensor:
        """Features ``[B, F]``, each zero with probability ``p``, else divided by ``1 - p``."""
        draws = torch.rand(features.shape, generator=self.task.generator, device=features.device)
        thinned: Tensor = features * (draws >= self.config.p) / (1.0 - self.config.p)
        return thinned

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        staged, config = cast(Staged, network), self.config
        features = staged.embed(staged.stages(batch.x)[-1])
        hard = self.cross_entropy(staged.classify(features), self.mix_targets(batch, self.targets))
        first, second = staged.classify(self.drop_features(features)), staged.classify(self.drop_features(features))
        agreement: Tensor = config.weight * compute_dropout_consistency(
            first, second, config.temperature, config.detach
        )
        return hard + agreement
