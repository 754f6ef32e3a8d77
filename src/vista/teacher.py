"""From marginal coverage to the teacher: weights of the past states, and their weighted mean prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

Weights = Literal["coverage", "accuracy", "uniform"]
WEIGHTS: tuple[Weights, ...] = ("coverage", "accuracy", "uniform")
# Rows summed at a time by each thread: their float32 sum stays in the core's cache while the states stream past.
ROWS_PER_CPU_THREAD = 1024


def normalise(scores: Mapping[int, float]) -> dict[int, float]:
    """Scores as weights that sum to one, oldest state first; states at zero drop out, no positive score gives none."""
    total = sum(scores.values())
    return {s: scores[s] / total for s in sorted(scores) if scores[s] > 0}


def smooth(weights: Mapping[int, float], last: int, width: int) -> dict[int, float]:
    r"""Weights on single states that equal ``weights`` on states averaged over a centred window of ``width`` epochs.

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

    Summed in float32 in the order of the epochs, then renormalised, because float16 rows sum to one only roughly.
    """
    states = sorted(weights)
    first = predictions[states[0]]
    total = torch.empty(first.shape, dtype=torch.float32, device=first.device) if out is None else out
    rows = len(total) if total.is_cuda else min(len(total), ROWS_PER_CPU_THREAD * torch.get_num_threads())
    wide = torch.empty(0 if total.is_cuda else rows, total.shape[1])
    shares = [weights[s] for s in states]
    for part, *summands in zip(total.split(rows), *(predictions[s].split(rows) for s in states), strict=True):
        part.zero_()
        for share, narrow in zip(shares, summands, strict=True):
            # A card widens on its way to the sum, in one kernel; a processor is faster when it widens first.
            part.add_(narrow if narrow.is_cuda else wide[: len(part)].copy_(narrow), alpha=share)
        part.div_(part.sum(dim=1, keepdim=True))
    return total


def blend(hard: Tensor, soft: Tensor, beta: float) -> Tensor:
    r"""Target :math:`\tilde y = (1 - \beta)\,\text{hard} + \beta\,\text{soft}`; at 0 it is ``hard`` exactly."""
    return hard * (1.0 - beta) + soft * beta
