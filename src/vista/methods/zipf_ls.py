"""Zipf's label smoothing: non-target classes learn a Zipf distribution, ranked by the network's dense predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vista.core.losses import at_least_float32, distillation_kl
from vista.core.validation import not_negative
from vista.methods.base import Batch, Method, Task
from vista.models.staged import Staged

NEUTRAL: dict[str, Any] = {"weight": 0.0}


def drop_target(values: Tensor, labels: Tensor) -> Tensor:
    """Remove the label's column from ``values`` ``[B, K]``, giving ``[B, K - 1]``; class 0 if the label is -1."""
    columns = torch.arange(values.shape[1] - 1, device=values.device)
    return values.gather(1, columns + (columns >= labels.clamp(min=0).unsqueeze(1)))


def count_votes(dense_logits: Tensor) -> Tensor:
    """Number of positions of the upsampled (2x) map that each class wins: ``[B, K, h, w]`` to float ``[B, K]``.

    The head is linear, so upsampling its outputs equals upsampling the features.
    """
    fine = F.interpolate(at_least_float32(dense_logits), scale_factor=2.0, mode="bilinear", align_corners=False)
    winners = fine.flatten(2).argmax(dim=1, keepdim=True)
    classes = torch.arange(fine.shape[1], device=fine.device).view(1, -1, 1)
    return (winners == classes).sum(dim=2).float()


def compute_zipf_mass(scores: Tensor) -> Tensor:
    r""":math:`Z_k \propto 1 / r_k`, rows ``[B, C]`` that sum to one; :math:`r` is the rank of the score, highest first.

    Equal scores share their best rank, so all classes without a vote have equal mass.
    """
    ascending = scores.sort(dim=1).values
    not_greater = torch.searchsorted(ascending, scores.contiguous(), right=True)
    mass = 1.0 / (scores.shape[1] - not_greater + 1)
    return mass / mass.sum(dim=1, keepdim=True)


def compute_zipf_term(logits: Tensor, scores: Tensor, labels: Tensor, rows: Tensor | None = None) -> Tensor:
    r"""Mean :math:`\mathrm{KL}(Z \,\|\, q)` over the labelled rows, with :math:`q` the softmax without the label.

    :math:`Z` is :func:`compute_zipf_mass` of all classes, with the label removed and renormalised. Logits and scores
    are ``[B, K]``, labels ``[B]``. The scores receive no gradient. ``rows`` replaces the number of labelled rows as
    the divisor.
    """
    student = drop_target(at_least_float32(logits), labels)
    labelled = labels >= 0
    with torch.no_grad():
        mass = drop_target(compute_zipf_mass(scores), labels)  # ranks include the label, as in the source
        teacher = (mass / mass.sum(dim=1, keepdim=True)).log()
        teacher = torch.where(labelled.unsqueeze(1), teacher, student)  # rows without a label contribute 0
    return distillation_kl(student, teacher) * (len(labels) / (labelled.sum().clamp(min=1) if rows is None else rows))


class ZipfLabelSmoothing(Method):
    name = "zipf-ls"
    family = "teacher-free"
    summary = "Non-target classes learn a Zipf distribution over their ranks in the dense predictions"
    cost = "1 forward, 1 backward, and a sort"
    keeps = "nothing"
    source = "Liang et al., ECCV 2022"

    @dataclass(frozen=True)
    class Config:
        weight: float = 0.1
        """Weight lambda of the Zipf term; the source uses 0.1 on CIFAR-100 and 1 on Tiny-ImageNet."""

        def __post_init__(self) -> None:
            not_negative(self.weight, "weight")

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        self.has_map = isinstance(network, Staged) and bool(network.stage_channels)

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        logits, scores = self._logits_and_scores(network, batch.x)
        self.observe(batch, logits)
        hard = self.mix_targets(batch, self.task.one_hot)
        whole = self.whole_batch
        term = self._term(logits, scores, batch.index, whole.index if whole else None)
        if batch.partner is not None and batch.share is not None:
            other = self._term(logits, scores, batch.partner, whole.partner if whole else None)
            term = (term * batch.share + other * (1.0 - batch.share)).squeeze()
        loss: Tensor = self.cross_entropy(logits, hard) + self.config.weight * term
        return loss

    def _logits_and_scores(self, network: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and ranking scores: votes, or the logits if the network has no map to vote on."""
        dense = None
        if self.has_map:
            staged = cast(Staged, network)  # or compiled, which forwards attribute access
            last_map = staged.stages(x)[-1]
            logits = staged.classify(staged.embed(last_map))
            with torch.no_grad():
                dense = staged.dense_logits(last_map)
        else:
            logits = network(x)
        if dense is None or dense.shape[2] * dense.shape[3] == 1:
            return logits, at_least_float32(logits.detach())
        return logits, count_votes(dense)

    def _term(self, logits: Tensor, scores: Tensor, index: Tensor, of_all: Tensor | None) -> Tensor:
        """Return the Zipf term for the labels of ``index``; ``of_all`` are the samples of all processes."""
        rows = None
        if of_all is not None:
            rows = (self._labels(of_all) >= 0).sum().clamp(min=1) * (len(index) / len(of_all))
        return compute_zipf_term(logits, scores, self._labels(index), rows)

    def _labels(self, index: Tensor) -> Tensor:
        return self.task.labels.index_select(0, index)
