"""The teacher: weights of the past states, their weighted mean prediction, and its blend with the labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import torch
from torch import Tensor

from vista.core.losses import one_hot
from vista.core.topk import unpack
from vista.core.triton_support import triton_works

Weights = Literal["coverage", "accuracy", "uniform"]
WEIGHTS: tuple[Weights, ...] = get_args(Weights)
# Rows that each thread sums at a time: their float32 sum stays in the cache of the core while it reads all states.
ROWS_PER_CPU_THREAD = 1024
ROWS_UNPACKED = 2**14  # top-k rows made dense at a time on a GPU
BLEND_BLOCK = 2**20  # targets blended at a time: 4 MB of temporary memory, and few kernel launches on a GPU


def normalise(scores: Mapping[int, float]) -> dict[int, float]:
    """Scale scores to weights that sum to one, oldest state first; states with score 0 are left out."""
    total = sum(scores.values())
    return {s: scores[s] / total for s in sorted(scores) if scores[s] > 0}


def smooth(weights: Mapping[int, float], last: int, width: int) -> dict[int, float]:
    r"""Convert weights of states averaged over a centred window of ``width`` epochs to weights of single states.

    :math:`\sum_s w_s \frac{1}{|N_s|} \sum_{r \in N_s} p_r = \sum_r p_r \sum_{s : r \in N_s} w_s / |N_s|`, with the
    window :math:`N_s` cut at epochs 1 and ``last``.
    """
    half = width // 2
    spread: dict[int, float] = {}
    for s, weight in weights.items():
        window = range(max(1, s - half), min(last, s + half) + 1)
        for r in window:
            spread[r] = spread.get(r, 0.0) + weight / len(window)
    return {r: spread[r] for r in sorted(spread)}


def teacher(predictions: Mapping[int, Tensor], weights: Mapping[int, float], out: Tensor | None = None) -> Tensor:
    r""":math:`Q(x) = \sum_s w_s p_s(x)`, float32 ``[N, K]``, from predictions ``[N, K]`` of any float type.

    The sum is taken in float32 in the order of the epochs, then renormalised: float16 rows sum to one only
    approximately. ``out`` receives the result if given; top-k predictions (int32, see :mod:`vista.core.topk`) need it.
    """
    if not weights:
        raise ValueError("weights must name at least one state, got none")
    order = sorted(weights)
    states, shares = [predictions[s] for s in order], [weights[s] for s in order]
    total = torch.empty(states[0].shape, dtype=torch.float32, device=states[0].device) if out is None else out
    packed = states[0].dtype == torch.int32
    if total.is_cuda and not packed and triton_works(total.device):
        from vista.core import teacher_kernel

        if teacher_kernel.can_sum(states, total):
            teacher_kernel.fused_sum(states, shares, total)
            return total.div_(total.sum(dim=1, keepdim=True))
    rows = len(total) if total.is_cuda else min(len(total), ROWS_PER_CPU_THREAD * torch.get_num_threads())
    rows = min(rows, ROWS_UNPACKED) if packed else rows
    summand = torch.empty(rows, total.shape[1], dtype=torch.float32, device=total.device)
    for part, *parts in zip(total.split(rows), *(state.split(rows) for state in states), strict=True):
        part.zero_()
        for share, state in zip(shares, parts, strict=True):
            dense = summand[: len(part)]
            part.add_(unpack(state, part.shape[1], dense) if packed else dense.copy_(state), alpha=share)
        part.div_(part.sum(dim=1, keepdim=True))
    return total


def blend(hard: Tensor, soft: Tensor, beta: float) -> Tensor:
    r"""Target :math:`\tilde y = (1 - \beta)\,\text{hard} + \beta\,\text{soft}`; exactly ``hard`` at 0."""
    return hard * (1.0 - beta) + soft * beta


def blend_labels_(soft: Tensor, labels: Tensor, beta: float) -> None:
    """Blend labels ``[N]`` into ``soft`` ``[N, K]`` in place by :func:`blend`; a row without a label (-1) is kept.

    Rows are processed in blocks, so that the one-hot labels never exist as a whole.
    """
    classes = soft.shape[1]
    rows = max(1, BLEND_BLOCK // classes)
    for part, given in zip(soft.split(rows), labels.split(rows), strict=True):
        blended = blend(one_hot(given, classes), part, beta)
        torch.where(given.unsqueeze(1) >= 0, blended, part, out=part)


def blend_labelled(hard: Tensor, soft: Tensor, share: Tensor) -> Tensor:
    r"""Blend with a share per row, :math:`\text{hard} + a\,(\text{soft} - \text{hard})`, ``[B, K]``.

    A row of ``hard`` that is all zero (no label) becomes ``soft``.
    """
    labelled = hard.sum(dim=1, keepdim=True) > 0
    return torch.where(labelled, hard + (soft - hard) * share, soft)


def adapt_targets(targets: Tensor, probs: Tensor, momentum: Tensor) -> Tensor:
    r""":math:`t \leftarrow a t + (1 - a) p`, all ``[B, K]``; ``momentum`` is 0-d, and 1 leaves the targets unchanged.

    Rows of zeros (no label) become the prediction itself.
    """
    moved = targets * momentum + probs * (1.0 - momentum)
    empty = targets.sum(dim=1, keepdim=True) == 0
    return torch.where(empty, probs * (momentum < 1.0), moved)
