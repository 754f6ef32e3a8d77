"""Detect common mistakes of training loops: probabilities passed as logits, validation rows in another order."""

from __future__ import annotations

import math

import torch
from torch import Tensor

PROBABILITIES = (
    "the model returns probabilities: the rows passed to loss() are non-negative and sum to 1; loss() applies the "
    "softmax itself, so remove it from the model"
)


def are_probabilities(outputs: Tensor) -> Tensor:
    """Return whether outputs ``[B, K]`` are probabilities rather than logits, as a bool on their device.

    Rows of zeros and a single one do not count.

    >>> are_probabilities(torch.tensor([[0.25, 0.75], [0.5, 0.5]])).item()
    True
    >>> are_probabilities(torch.tensor([[0.25, 0.75], [2.0, -1.0]])).item()
    False
    """
    sums = outputs.sum(dim=1, dtype=torch.float32)
    is_soft = ((outputs > 0) & (outputs < 1)).any()
    return (outputs >= 0).all() & ((sums - 1).abs() < 0.01).all() & is_soft


def above_chance(predicted: Tensor, labels: Tensor, num_classes: int) -> tuple[float, float]:
    """Compare an accuracy with that of the same predictions in random order.

    Args:
        predicted: Predicted classes, ``[n]``.
        labels: Labels, ``[n]``.
        num_classes: Number of classes.

    Returns:
        The accuracy minus chance, and the standard deviation of that of a random order.

    >>> above_chance(torch.tensor([0, 1, 0, 1]), torch.tensor([0, 1, 0, 1]), 2)
    (0.5, 0.25)
    """
    n = max(len(labels), 1)
    shares = [torch.bincount(classes, minlength=num_classes).double() / n for classes in (predicted, labels)]
    chance = float((shares[0] * shares[1]).sum())
    accuracy = int((predicted == labels).sum()) / n
    return accuracy - chance, math.sqrt(chance * (1 - chance) / n)


def seems_shuffled(validation: tuple[float, float], training: tuple[float, float]) -> bool:
    """Return whether the validation rows may be in another order than their labels; see :func:`above_chance`.

    Validation accuracy is at chance, although training accuracy is so far above it that a third of that would be
    visible.

    >>> seems_shuffled((0.001, 0.01), (0.5, 0.002)), seems_shuffled((0.1, 0.01), (0.5, 0.002))
    (True, False)
    """
    (excess, deviation), (learned, of_training) = validation, training
    if not deviation or not of_training:
        return False
    return excess < 2 * deviation and learned / 3 > 5 * deviation and learned > 10 * of_training
