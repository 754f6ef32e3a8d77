"""From marginal coverage to the teacher: weights of the past states, and their weighted mean prediction."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Mapping
from types import ModuleType
from typing import Literal, get_args

import torch
from torch import Tensor

Weights = Literal["coverage", "accuracy", "uniform"]
WEIGHTS: tuple[Weights, ...] = get_args(Weights)
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
    if not weights:
        raise ValueError("weights is empty, but a teacher needs at least one state")
    order = sorted(weights)
    states, shares = [predictions[s] for s in order], [weights[s] for s in order]
    total = torch.empty(states[0].shape, dtype=torch.float32, device=states[0].device) if out is None else out
    if total.is_cuda and (kernel := _kernel(total.device)) and kernel.can_sum(states, total):
        kernel.fused_sum(states, shares, total)
        return total.div_(total.sum(dim=1, keepdim=True))
    rows = len(total) if total.is_cuda else min(len(total), ROWS_PER_CPU_THREAD * torch.get_num_threads())
    summand = torch.empty(rows, total.shape[1], dtype=torch.float32, device=total.device)
    for part, *narrow in zip(total.split(rows), *(state.split(rows) for state in states), strict=True):
        wide = summand[: len(part)]
        part.zero_()
        for share, state in zip(shares, narrow, strict=True):
            part.add_(wide.copy_(state), alpha=share)
        part.div_(part.sum(dim=1, keepdim=True))
    return total


@functools.cache
def _kernel(device: torch.device) -> ModuleType | None:
    """The sum in one kernel, tried once on one number; ``None`` where Triton or the compiler it calls is missing."""
    two, out = torch.full((1,), 2.0, device=device), torch.zeros(1, device=device)
    try:
        from vista.core import teacher_kernel

        teacher_kernel.fused_sum([two, two], [1.0, 0.5], out)
    except (ImportError, RuntimeError, OSError, subprocess.SubprocessError):
        return None
    return teacher_kernel if out.item() == 3.0 else None


def blend_labelled(hard: Tensor, soft: Tensor, share: Tensor) -> Tensor:
    r""":math:`(1 - a)\,\text{hard} + a\,\text{soft}`, ``[B, K]``; a row of ``hard`` without label is ``soft`` alone."""
    labelled = hard.sum(dim=1, keepdim=True) > 0
    return torch.where(labelled, hard + (soft - hard) * share, soft)


def blend(hard: Tensor, soft: Tensor, beta: float) -> Tensor:
    r"""Target :math:`\tilde y = (1 - \beta)\,\text{hard} + \beta\,\text{soft}`; at 0 it is ``hard`` exactly."""
    return hard * (1.0 - beta) + soft * beta
