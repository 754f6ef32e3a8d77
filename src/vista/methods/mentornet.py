"""MentorNet with its pre-defined curriculum (PD): samples with a high loss get less weight or none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vista.core.losses import reduce, soft_cross_entropy
from vista.core.validation import positive, unit_interval
from vista.methods.base import Batch, Method, Task

NEUTRAL: dict[str, Any] = {"burn_in": 1.0, "early_dropout": 0.0, "dropout": 0.0}


def compute_percentile(losses: Tensor, share: float, labelled: Tensor) -> Tensor:
    """Nearest-rank quantile ``share`` of the ``labelled`` losses, 0-d; infinity if none is labelled."""
    ascending = losses.masked_fill(~labelled, torch.inf).sort().values
    last = labelled.sum() - 1
    rank = (last * share).round().long().clamp(min=0)
    return ascending.index_select(0, rank.view(1)).squeeze(0)


def weigh_by_curriculum(losses: Tensor, threshold: Tensor, width: float, everything: Tensor, gradual: Tensor) -> Tensor:
    r"""Sample weights ``[B]`` from the distance :math:`d` of the losses ``[B]`` to the threshold.

    All ones if ``everything``, else :math:`\mathrm{clip}(1 - d / \text{width}, 0, 1)` if ``gradual``, else
    :math:`[d \le 0]` (self-paced). Both flags are 0-d bool.
    """
    distance = losses - threshold
    weight = torch.where(gradual, (1.0 - distance / width).clamp(0.0, 1.0), (distance <= 0).to(losses.dtype))
    return torch.where(everything, 1.0, weight)


def keep_random_share(draws: Tensor, share: Tensor) -> Tensor:
    """Mask ``[B]`` of the ``floor(B * share)`` samples, at least one, with the smallest ``draws`` ``[B]``."""
    return draws.argsort().argsort() < (len(draws) * share).floor().clamp(min=1)


class MentorNet(Method):
    name = "mentornet"
    family = "noise-robust"
    summary = "Samples with a high loss get less weight or none, by a pre-defined curriculum"
    cost = "1 forward, 1 backward"
    keeps = "one number"
    source = "Jiang et al., ICML 2018 (pre-defined curriculum, MentorNet PD)"
    weighs_targets = False

    threshold: Tensor
    everything: Tensor
    gradual: Tensor
    kept: Tensor

    @dataclass(frozen=True)
    class Config:
        percentile: float = 0.75
        """Quantile of a batch's losses that the threshold follows."""
        momentum: float = 0.5
        """Weight of the old threshold in each update."""
        burn_in: float = 0.19
        """Share of the epochs, from the start, in which every sample has weight 1."""
        gradual_from: float = 0.9
        """Share of the epochs after which weights decrease linearly with the loss instead of stepwise."""
        width: float = 1.0
        """Distance above the threshold at which the linear weight reaches 0."""
        early_dropout: float = 0.5
        """Share of each batch dropped at random during the early epochs."""
        early: float = 0.17
        """Share of the epochs that count as early."""
        dropout: float = 0.05
        """Share of each batch dropped at random afterwards."""

        def __post_init__(self) -> None:
            for field in ("percentile", "momentum", "burn_in", "gradual_from", "early_dropout", "early", "dropout"):
                unit_interval(getattr(self, field), field)
            positive(self.width, "width")

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        self.register_buffer("threshold", torch.zeros((), device=task.device))
        self.register_buffer("everything", torch.ones((), dtype=torch.bool, device=task.device))
        self.register_buffer("gradual", torch.zeros((), dtype=torch.bool, device=task.device))
        # float64, so that floor(0.95 * 20) is 19
        self.register_buffer("kept", torch.ones((), dtype=torch.float64, device=task.device))

    def begin_epoch(self, epoch: int) -> None:
        config, progress = self.config, (epoch - 1) / self.task.epochs
        self.everything.fill_(progress < config.burn_in)
        self.gradual.fill_(progress >= config.gradual_from)
        self.kept.fill_(1.0 - (config.early_dropout if progress < config.early else config.dropout))

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        targets = self.mix_targets(batch, self.task.one_hot)
        losses = soft_cross_entropy(self.observe(batch, network(batch.x)), targets, reduction="none")
        with torch.no_grad():
            weight = self._weights(losses.detach(), targets.sum(dim=1) > 0)
        return reduce(losses, "mean", weight, self.count_rows(targets))

    def _weights(self, losses: Tensor, labelled: Tensor) -> Tensor:
        """Update the threshold and return the sample weights ``[B]``."""
        config = self.config
        latest = compute_percentile(losses, config.percentile, labelled)
        moved = self.threshold * config.momentum + latest * (1.0 - config.momentum)
        self.threshold.copy_(torch.where(labelled.any(), moved, self.threshold))
        weight = weigh_by_curriculum(losses, self.threshold, config.width, self.everything, self.gradual)
        draws = torch.rand(losses.shape, generator=self.task.generator, device=losses.device)
        return weight * keep_random_share(draws, self.kept)
