"""DLB (distillation from the last mini-batch): each batch is repeated and learns from the previous step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vista.core import collectives
from vista.core.losses import at_least_float32, distillation_kl, rows_with_target, soft_cross_entropy
from vista.core.validation import not_negative, positive
from vista.methods.base import Batch, Method, Task

NEUTRAL: dict[str, Any] = {"alpha": 0.0}  # the last batch still takes part in the cross-entropy


class Terms(NamedTuple):
    """The parts of the loss, scalars that include their weights."""

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

    ``logits`` ``[b, K]`` are those of the new samples, ``again`` ``[B, K]`` those of the repeated last batch, and
    ``previous`` ``[B, K]`` the logits of that batch one step ago. Only ``valid`` rows ``[B]`` count: none in the first
    step, fewer than ``B`` after a short batch.
    """
    both = torch.cat([targets, again_targets * valid.unsqueeze(1)])
    hard = soft_cross_entropy(
        torch.cat([at_least_float32(logits), at_least_float32(again)]), both, rows=rows_with_target(both)
    )
    # Invalid rows have equal student and teacher, so their divergence is 0; the mean is over the valid rows.
    teacher = torch.where(valid.unsqueeze(1), previous, at_least_float32(again).detach())
    distillation = distillation_kl(again, teacher, temperature) * len(again) / valid.sum().clamp(min=1)
    return Terms(hard, alpha * distillation)


class Dlb(Method):
    """The buffers of the last batch always have the full batch size, so that a captured step can use them."""

    name = "dlb"
    family = "current epoch"
    summary = "Each batch is repeated one step later and learns from its previous predictions"
    cost = "2 forward, 2 backward"
    keeps = "B x K logits and B sample indices"
    source = "Shen et al., Self-Distillation from the Last Mini-Batch, CVPR 2022"
    composes_with_cutmix = False  # predictions for mixed images belong to no single sample

    last_index: Tensor
    last_logits: Tensor
    last_valid: Tensor

    @dataclass(frozen=True)
    class Config:
        alpha: float = 1.0
        """Weight of the distillation from the previous step."""
        temperature: float = 3.0
        """Temperature of both sides of the distillation."""

        def __post_init__(self) -> None:
            not_negative(self.alpha, "alpha")
            positive(self.temperature, "temperature", usual=3)

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        size, device = -(-task.batch_size // collectives.world_size()), task.device
        # Placeholder samples for the first step: they pass through the network, but their rows are invalid.
        self.register_buffer("last_index", torch.arange(size, device=device) % task.num_samples)
        self.register_buffer("last_logits", torch.zeros(size, task.num_classes, device=device))
        self.register_buffer("last_valid", torch.zeros(size, dtype=torch.uint8, device=device))

    def terms(self, network: nn.Module, batch: Batch) -> Terms:
        """Return the parts of the loss and store this batch as the last one."""
        logits = self.observe(batch, network(batch.x))
        # A batch has random draws for as many views as it has samples; a short one needs several calls.
        views = [batch.view(1, part) for part in self.last_index.split(len(batch.index))]
        again = network(torch.cat(views))  # a separate forward pass, as in the source
        terms = compute_dlb_terms(
            logits,
            self.weigh_targets(self.targets(batch.index)),
            again,
            self.weigh_targets(self.targets(self.last_index)),
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
        """Do nothing: each process repeats its own last batch."""

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        return torch.stack(self.terms(network, batch)).sum()
