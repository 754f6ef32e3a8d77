"""MentorNet with its pre-defined curriculum: samples whose loss is high for the batch wait or are left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vista.checks import positive, unit_interval
from vista.losses import reduce, soft_cross_entropy
from vista.methods.base import Batch, Method, Task

NEUTRAL: dict[str, Any] = {"burn_in": 1.0, "early_dropout": 0.0, "dropout": 0.0}


def compute_percentile(losses: Tensor, share: float, labelled: Tensor) -> Tensor:
    """The loss, 0-d, that ``share`` of the ``labelled`` ones reach at most, the nearest rank; nothing labelled: inf."""
    ascending = losses.masked_fill(~labelled, torch.inf).sort().values
    last = labelled.sum() - 1
    place = (last * share).round().long().clamp(min=0)
    return ascending.index_select(0, place.view(1)).squeeze(0)


def weigh_by_curriculum(losses: Tensor, threshold: Tensor, width: float, everything: Tensor, gradual: Tensor) -> Tensor:
    r"""Weights ``[B]`` of the samples with these losses, by their distance :math:`d` to the threshold.

    All ones while ``everything`` is true; then :math:`[d \le 0]` (self-paced), and with ``gradual``
    :math:`\mathrm{clip}(1 - d / \text{width}, 0, 1)`. The flags are 0-d bool.
    """
    distance = losses - threshold
    weight = torch.where(gradual, (1.0 - distance / width).clamp(0.0, 1.0), (distance <= 0).to(losses.dtype))
    return torch.where(everything, 1.0, weight)


def keep_random_share(draws: Tensor, share: Tensor) -> Tensor:
    """Which ``floor(B * share)`` samples stay, and one at least: those with the smallest ``draws``; bool ``[B]``."""
    return draws.argsort().argsort() < (len(draws) * share).floor().clamp(min=1)


class MentorNet(Method):
    name = "mentornet"
    family = "noise-robust"
    summary = "Samples with a high loss wait or are left out, by a pre-defined curriculum"
    cost = "1 forward, 1 backward"
    keeps = "one number"
    source = "Jiang et al., ICML 2018 (pre-defined curriculum, MentorNet PD)"

    threshold: Tensor
    everything: Tensor
    gradual: Tensor
    kept: Tensor

    @dataclass(frozen=True)
    class Config:
        percentile: float = 0.75
        """Which share of a batch's losses lies under the threshold."""
        momentum: float = 0.5
        """Share of the running threshold that each step keeps."""
        burn_in: float = 0.19
        """Share of the epochs in which every sample counts fully, before the self-paced part."""
        gradual_from: float = 0.9
        """Share of the epochs after which weights fall linearly with the loss, no longer at a stroke."""
        width: float = 1.0
        """How far above the threshold the linear weight reaches 0."""
        early_dropout: float = 0.5
        """Share of each batch left out at random early on."""
        early: float = 0.17
        """Share of the epochs that are early."""
        dropout: float = 0.05
        """Share of each batch left out at random later."""

        def __post_init__(self) -> None:
            for field in ("percentile", "momentum", "burn_in", "gradual_from", "early_dropout", "early", "dropout"):
                unit_interval(getattr(self, field), field)
            positive(self.width, "width")

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        self.register_buffer("threshold", torch.zeros((), device=task.device))
        self.register_buffer("everything", torch.ones((), dtype=torch.bool, device=task.device))
        self.register_buffer("gradual", torch.zeros((), dtype=torch.bool, device=task.device))
        # float64, so that 0.95 of 20 samples are 19
        self.register_buffer("kept", torch.ones((), dtype=torch.float64, device=task.device))

    def begin_epoch(self, epoch: int) -> None:
        config, progress = self.config, (epoch - 1) / self.task.epochs
        self.everything.fill_(progress < config.burn_in)
        self.gradual.fill_(progress >= config.gradual_from)
        self.kept.fill_(1.0 - (config.early_dropout if progress < config.early else config.dropout))

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        targets = self.mix_targets(batch, self.task.one_hot)
        losses = soft_cross_entropy(network(batch.x), targets, reduction="none")
        with torch.no_grad():
            weight = self._weights(losses.detach(), targets.sum(dim=1) > 0)
        return reduce(losses, "mean", weight, self.count_rows(targets))

    def _weights(self, losses: Tensor, labelled: Tensor) -> Tensor:
        config = self.config
        latest = compute_percentile(losses, config.percentile, labelled)
        moved = self.threshold * config.momentum + latest * (1.0 - config.momentum)
        self.threshold.copy_(torch.where(labelled.any(), moved, self.threshold))
        weight = weigh_by_curriculum(losses, self.threshold, config.width, self.everything, self.gradual)
        draws = torch.rand(losses.shape, generator=self.task.generator, device=losses.device)
        return weight * keep_random_share(draws, self.kept)
