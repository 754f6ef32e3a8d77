"""DKS (deeply-supervised knowledge synergy): the network and auxiliary branches teach each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vista.core.losses import distillation_kl, soft_cross_entropy
from vista.core.validation import not_negative, positive
from vista.methods.base import Batch, Method, Task
from vista.models.staged import Staged

NEUTRAL: dict[str, Any] = {"alpha": 0.0}
MAX_INNER_CHANNELS = 512  # inside a block; stages of bottleneck networks have many more channels than their 3x3 layers


class Terms(NamedTuple):
    """The parts of the loss, scalars that include their weights; ``main`` is the network's cross-entropy."""

    main: Tensor
    branches: Tensor
    synergy: Tensor


def compute_dks_terms(
    logits: Sequence[Tensor], targets: Tensor, *, alpha: float, temperature: float, rows: Tensor | None = None
) -> Terms:
    r""":math:`\sum_i \mathrm{CE}_i + \alpha T^2 \sum_{i \ne j} \mathrm{KL}(\bar p_j \| p_i)`.

    The bar stops the gradient. ``logits`` are those of all heads, ``[B, K]`` each, the network's own first.
    """
    losses = torch.stack([soft_cross_entropy(head, targets, rows=rows) for head in logits])
    pairs = [distillation_kl(student, teacher.detach(), temperature) for student, teacher in permutations(logits, 2)]
    return Terms(losses[0], losses[1:].sum(), alpha * torch.stack(pairs).sum())


class Block(nn.Module):
    """A residual block: two 3x3 convolutions and a shortcut, with a ReLU after their sum."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        inner = min(outputs, MAX_INNER_CHANNELS)
        self.residual = nn.Sequential(
            nn.Conv2d(inputs, inner, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.shortcut = nn.Sequential()
        if stride > 1:
            self.shortcut.append(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.residual(x) + self.shortcut(x))


class Branch(nn.Module):
    """A copy of the remaining stages: one block each, two for the last, then a classifier."""

    def __init__(self, channels: Sequence[int], num_classes: int) -> None:
        """``channels`` are those of the input map and of every repeated stage."""
        super().__init__()
        blocks = [Block(inputs, outputs, stride=2) for inputs, outputs in pairwise(channels)]
        self.blocks = nn.Sequential(*blocks, Block(channels[-1], channels[-1], stride=1))
        self.head = nn.Linear(channels[-1], num_classes)

    def forward(self, features: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(features).mean(dim=(2, 3)))
        return logits


class Dks(Method):
    name = "dks"
    family = "current epoch"
    summary = "The network and two auxiliary branches from its middle stages teach each other"
    cost = "1 forward, 1 backward, and two branches: about 1.6 to 2 times the work"
    keeps = "nothing"
    source = "Sun et al., Deeply-supervised Knowledge Synergy, CVPR 2019"
    needs_stages = True

    @dataclass(frozen=True)
    class Config:
        alpha: float = 1.0
        """Weight of the mutual distillation between the heads."""
        temperature: float = 1.0
        """Temperature of both sides of the distillation; the authors use 1, another implementation 4."""

        def __post_init__(self) -> None:
            not_negative(self.alpha, "alpha")
            positive(self.temperature, "temperature", usual=1)

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        channels = cast(Staged, network).stage_channels
        self.starts = range(max(0, len(channels) - 3), len(channels) - 1)  # the two stages before the last
        self.branches = nn.ModuleList(Branch(channels[stage:], task.num_classes) for stage in self.starts)
        self.branches.to(task.device)

    def terms(self, network: nn.Module, batch: Batch) -> Terms:
        """Return the parts of the loss for this batch."""
        staged = cast(Staged, network)
        maps = staged.stages(batch.x)
        logits = [self.observe(batch, staged.classify(staged.embed(maps[-1])))]
        logits += [branch(maps[stage]) for stage, branch in zip(self.starts, self.branches)]
        targets = self.mix_targets(batch, self.targets)
        rows = self.count_rows(targets)
        return compute_dks_terms(
            logits,
            self.weigh_targets(targets),
            alpha=self.config.alpha,
            temperature=self.config.temperature,
            rows=rows,
        )

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        return torch.stack(self.terms(network, batch)).sum()
