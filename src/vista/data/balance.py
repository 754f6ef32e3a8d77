"""Rare classes: weights for the loss, or an order of the samples in which every class is drawn equally often."""

from __future__ import annotations

import torch
from torch import Tensor


def balance_classes(labels: Tensor, num_classes: int) -> Tensor:
    r"""Class weights :math:`N / (C n_k)` for N labels, of which :math:`n_k` name class k, and C classes that occur.

    Args:
        labels: Given labels ``[N]``, -1 for a missing label.
        num_classes: Number of classes K.

    Returns:
        Weights, float32 ``[K]``, with mean one over the labels; 1 for a class that does not occur.

    Example:
        >>> balance_classes(torch.tensor([0, 0, 0, 1]), 2)
        tensor([0.6667, 2.0000])
    """
    counts = torch.bincount(labels[labels >= 0], minlength=num_classes).double()
    weights = counts.sum() / ((counts > 0).sum() * counts)
    return torch.where(counts > 0, weights, 1.0).float()


def balanced_order(labels: Tensor, source: torch.Generator) -> Tensor:
    """Draw as many samples as there are, every class equally often, each unlabelled sample once.

    Every round of draws names each class once, in random order. A class takes its samples in turn, in an order of this
    epoch: no batch repeats a sample if :func:`check_balance` accepts its size.

    Args:
        labels: Given labels ``[N]`` on the CPU, -1 for a missing label.
        source: Generator of all draws.

    Returns:
        Sample numbers, int64 ``[N]``.
    """
    shuffled = torch.randperm(len(labels), generator=source)
    grouped = shuffled[torch.argsort(labels[shuffled], stable=True)]  # the unlabelled samples first
    unlabelled = int((labels < 0).sum())
    _, counts = labels[labels >= 0].unique(return_counts=True)
    starts = unlabelled + counts.cumsum(0) - counts
    slots = len(labels) - unlabelled
    rounds = -(-slots // len(counts))
    classes = torch.rand(rounds, len(counts), generator=source).argsort(dim=1).flatten()[:slots]
    turn = torch.arange(rounds).repeat_interleave(len(counts))[:slots]
    order = torch.empty_like(shuffled)
    alone = torch.zeros(len(labels), dtype=torch.bool)
    alone[torch.randperm(len(labels), generator=source)[:unlabelled]] = True
    order[alone], order[~alone] = grouped[:unlabelled], grouped[starts[classes] + turn % counts[classes]]
    return order


def check_balance(labels: Tensor, batch_size: int) -> None:
    """Raise if a class has so few samples that a batch of :func:`balanced_order` could repeat one."""
    found, counts = labels[labels >= 0].unique(return_counts=True)
    if not len(found):
        raise ValueError("balanced_sampling needs labels, but no training sample has one")
    needed, fewest = -(-batch_size // len(found)) + 1, int(counts.argmin())
    if counts[fewest] < needed:
        raise ValueError(
            f"balanced_sampling draws up to {needed} samples of each class into a batch of {batch_size}, but class "
            f"{int(found[fewest])} has {int(counts[fewest])} training samples: use a smaller --batch-size, or "
            "--class-weights balanced instead"
        )
