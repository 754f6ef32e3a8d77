"""GCE (generalised cross-entropy): a loss between cross-entropy and the mean absolute error, which noise moves less."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from vista.core.losses import at_least_float32, reduce, soft_cross_entropy
from vista.core.validation import unit_interval
from vista.methods.base import Batch, Method

NEUTRAL: dict[str, Any] = {"q": 0.0}


def compute_generalised_cross_entropy(logits: Tensor, targets: Tensor, q: float) -> Tensor:
    r""":math:`\sum_k y_k\, (1 - p_k^q) / q` of each row ``[B]``, for logits and targets ``[B, K]``.

    Cross-entropy in the limit :math:`q = 0`, half of the mean absolute error at :math:`q = 1`. Rows of zeros (no label)
    give 0.

    Example:
        >>> import torch
        >>> compute_generalised_cross_entropy(torch.zeros(1, 4), torch.tensor([[0.0, 1.0, 0.0, 0.0]]), q=1.0)
        tensor([0.7500])
    """
    if q == 0:
        return soft_cross_entropy(logits, targets, reduction="none")
    powers = (at_least_float32(logits).log_softmax(dim=1) * q).exp()
    return (targets * (1.0 - powers)).sum(dim=1) / q


class GeneralisedCrossEntropy(Method):
    name = "gce"
    family = "noise-robust"
    summary = "A loss between cross-entropy and the mean absolute error, which wrong labels influence less"
    cost = "1 forward, 1 backward"
    keeps = "nothing"
    source = "Zhang and Sabuncu, NeurIPS 2018"

    @dataclass(frozen=True)
    class Config:
        q: float = 0.7
        """Exponent: 0 is cross-entropy, 1 half of the mean absolute error."""

        def __post_init__(self) -> None:
            unit_interval(self.q, "q")

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        logits = self.observe(batch, network(batch.x))
        targets = self.mix_targets(batch, self.targets)
        losses = compute_generalised_cross_entropy(logits, self.weigh_targets(targets), self.config.q)
        return reduce(losses, "mean", None, self.count_rows(targets))
