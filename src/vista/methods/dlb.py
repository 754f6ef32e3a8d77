"""Self-distillation from the last mini-batch: its samples come again, and meet the predictions of a step ago."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vista import exchange
from vista.checks import not_negative, positive
from vista.losses import distillation_kl, rows_with_target, soft_cross_entropy, wide
from vista.methods.base import Batch, Method, Task

NEUTRAL: dict[str, Any] = {"alpha": 0.0}  # the samples of the last batch still count once more in the cross-entropy


class Terms(NamedTuple):
    """The parts of the loss, each a scalar with its weight in it."""

    hard: Tensor
    distillation: Tensor


def compute_dlb_terms(
    logits: Tensor,
    targets: Tensor,
    again: Tensor,
    again_targets: Tensor,
    previous: Tensor,
    valid: Tensor,
    *,
    alpha: float,
    temperature: float,
) -> Terms:
    r""":math:`\mathrm{CE}([p_{t-1}; p_t], [y_{t-1}; y_t]) + \alpha T^2\, \mathrm{KL}(\bar p^{\,t-1}_{t-1} \| p_{t-1})`.

    ``logits`` ``[b, K]`` are the new samples', ``again`` ``[B, K]`` those of the last batch seen once more, and
    ``previous`` ``[B, K]`` what the step before said of them. Only rows that are ``valid`` ``[B]`` count: before the
    first step there are none, and after a short batch fewer than ``B``.
    """
    both = torch.cat([targets, again_targets * valid.unsqueeze(1)])
    hard = soft_cross_entropy(torch.cat([wide(logits), wide(again)]), both, rows=rows_with_target(both))
    # Of a row that does not count student and teacher are the same, so it adds nothing; the mean is over the others.
    teacher = torch.where(valid.unsqueeze(1), previous, wide(again).detach())
    distillation = distillation_kl(again, teacher, temperature) * len(again) / valid.sum().clamp(min=1)
    return Terms(hard, alpha * distillation)


class Dlb(Method):
    """The last batch's buffers have the full batch size always, so that a captured step need not know what came."""

    name = "dlb"
    family = "current epoch"
    summary = "The last batch comes again and meets the predictions of a step ago"
    cost = "2 forward, 2 backward"
    keeps = "B x K logits and B sample numbers"
    source = "Shen et al., Self-Distillation from the Last Mini-Batch, CVPR 2022"
    composes_with_cutmix = False  # a mixed picture's prediction is no sample's, and would be met by a plain picture

    last_index: Tensor
    last_logits: Tensor
    last_valid: Tensor

    @dataclass(frozen=True)
    class Config:
        alpha: float = 1.0
        """Weight of the last step's prediction."""
        temperature: float = 3.0
        """Both sides of the distillation are softened by it."""

        def __post_init__(self) -> None:
            not_negative(self.alpha, "alpha")
            positive(self.temperature, "temperature", usual=3)

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        size, device = -(-task.batch_size // exchange.world_size()), task.device
        # Before the first step any samples do: their pictures pass through the network, their rows do not count.
        self.register_buffer("last_index", torch.arange(size, device=device) % task.num_samples)
        self.register_buffer("last_logits", torch.zeros(size, task.num_classes, device=device))
        self.register_buffer("last_valid", torch.zeros(size, dtype=torch.uint8, device=device))

    def terms(self, network: nn.Module, batch: Batch) -> Terms:
        """The parts of the loss for this batch, which then becomes the last one."""
        logits = network(batch.x)
        # A batch has draws for as many pictures as it has samples, so a short one gives the views in portions.
        views = [batch.view(1, part) for part in self.last_index.split(len(batch.index))]
        again = network(torch.cat(views))  # a forward pass of its own, as in the source
        terms = compute_dlb_terms(
            logits,
            self.targets(batch.index),
            again,
            self.targets(self.last_index),
            self.last_logits,
            self.last_valid.bool(),
            alpha=self.config.alpha,
            temperature=self.config.temperature,
        )
        size = len(batch.index)
        self.last_index[:size].copy_(batch.index)
        self.last_logits[:size].copy_(logits.detach())
        self.last_valid.zero_()
        self.last_valid[:size].fill_(1)
        return terms

    def share_state(self, seen: Tensor) -> None:
        """Nothing: each process meets its own last batch again."""

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        return torch.stack(self.terms(network, batch)).sum()
