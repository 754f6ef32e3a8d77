"""SD-Dropout (self-distillation via dropout): predictions under two dropout masks learn from each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from vista.core.losses import distillation_kl
from vista.core.validation import not_negative, positive
from vista.methods.base import Batch, Method, Task, check_below_one
from vista.models.staged import Staged

NEUTRAL: dict[str, Any] = {"weight": 0.0}


def compute_dropout_consistency(first: Tensor, second: Tensor, temperature: float, detach: bool = False) -> Tensor:
    r""":math:`T^2 (\mathrm{KL}(p_1 \| p_2) + \mathrm{KL}(p_2 \| p_1))` for logits ``[B, K]``.

    ``detach`` stops the gradient through the teacher side of each term.
    """
    teachers = (first.detach(), second.detach()) if detach else (first, second)
    return distillation_kl(second, teachers[0], temperature) + distillation_kl(first, teachers[1], temperature)


class SdDropout(Method):
    name = "sd-dropout"
    family = "current epoch"
    summary = "Predictions under two dropout masks on the features learn from each other"
    cost = "1 forward, 1 backward, and the classifier two more times"
    keeps = "nothing"
    source = "Lee, Park, Seo and Kang, Self-Knowledge Distillation via Dropout, 2022"

    @dataclass(frozen=True)
    class Config:
        weight: float = 0.1
        """Weight of the two divergences; the cross-entropy has weight 1."""
        p: float = 0.5
        """Dropout probability of a feature."""
        temperature: float = 3.0
        """Temperature of both predictions."""
        detach: bool = False
        """Stop the gradient through the teacher side of each divergence."""

        def __post_init__(self) -> None:
            not_negative(self.weight, "weight")
            check_below_one(self.p, "p")
            positive(self.temperature, "temperature", usual=3)

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        if not isinstance(network, Staged):
            raise ValueError(
                f"sd-dropout needs pooled features, but {type(network).__name__} provides none; use a network of "
                "vista.models or a subclass of vista.models.Staged"
            )

    def drop_features(self, features: Tensor) -> Tensor:
        """Apply dropout to features ``[B, F]``: zero with probability ``p``, else divided by ``1 - p``."""
        draws = torch.rand(features.shape, generator=self.task.generator, device=features.device)
        kept: Tensor = features * (draws >= self.config.p) / (1.0 - self.config.p)
        return kept

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        staged, config = cast(Staged, network), self.config
        features = staged.embed(staged.stages(batch.x)[-1])
        hard = self.cross_entropy(self.observe(batch, staged.classify(features)), self.mix_targets(batch, self.targets))
        first, second = staged.classify(self.drop_features(features)), staged.classify(self.drop_features(features))
        soft: Tensor = config.weight * compute_dropout_consistency(first, second, config.temperature, config.detach)
        return hard + soft
