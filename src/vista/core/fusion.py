"""Knowledge fusion: weights of past states that recover samples the last state has forgotten."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from vista.core import teacher
from vista.core.losses import at_least_float32


def check_options(window: int, step: float, rounds: int) -> None:
    """Check the options of :func:`fusion_weights`."""
    if window < 1 or window % 2 == 0:
        raise ValueError(f"window must be odd and at least 1 (3 is usual), got {window}")
    if not 0 < step <= 0.5:
        raise ValueError(f"step must be greater than 0 and at most 0.5 (0.05 is usual), got {step}")
    if rounds < 0:
        raise ValueError(f"rounds must be at least 0 (0 keeps the last state alone), got {rounds}")


def forget_fraction(right: Tensor, right_now: Tensor) -> Tensor:
    """Compute for each state the share of samples it predicts correctly and the present prediction does not.

    Args:
        right: Correct samples of each state, bool ``[E, m]``.
        right_now: Correct samples of the present prediction, bool ``[m]``; with the last state, the result is the
            deviation gap.

    Returns:
        A share per state, ``[E]``.
    """
    return (right & ~right_now).sum(dim=1) / right.shape[1]


def fusion_weights(
    val_probs: Sequence[Tensor], val_labels: Tensor, *, window: int = 3, step: float = 0.05, rounds: int = 10
) -> dict[int, float]:
    """Find weights of past states whose mean prediction forgets least.

    The search starts with the last state. Each round takes the epoch that predicts most of the present errors
    correctly, averages it over a centred window, and blends it in with the weight that gives the highest validation
    accuracy. The search ends when no weight improves the accuracy.

    Args:
        val_probs: Probabilities ``[m, K]`` of the validation samples in epochs 1 to E.
        val_labels: Their given labels, ``[m]``.
        window: Odd width of the window in epochs.
        step: Weights ``step, 2 step, ... 1 - step`` are tried.
        rounds: Most rounds.

    Returns:
        Weights ``{epoch: weight}`` that sum to one.
    """
    check_options(window, step, rounds)
    epochs = len(val_probs)
    if epochs == 0:
        raise ValueError(
            "val_probs must have the validation probabilities of every epoch, got none: train with the method 'kf', "
            "which stores them"
        )
    right = torch.stack([at_least_float32(probs).argmax(dim=1) == val_labels for probs in val_probs])
    shares = np.arange(1, round(1 / step)) * step
    weights, fused = {epochs: 1.0}, at_least_float32(val_probs[-1])
    for _ in range(rounds):
        right_now = fused.argmax(dim=1) == val_labels
        forgotten = forget_fraction(right, right_now).cpu().numpy()
        around = teacher.smooth({int(forgotten.argmax()) + 1: 1.0}, epochs, window)
        past = teacher.teacher({s: val_probs[s - 1] for s in around}, around)
        blends = [teacher.blend(fused, past, share) for share in shares.tolist()]
        hits = [int((blend.argmax(dim=1) == val_labels).sum()) for blend in blends]
        best = int(np.argmax(hits))
        if hits[best] <= int(right_now.sum()):
            break
        share, fused = float(shares[best]), blends[best]
        weights = {s: (1.0 - share) * weight for s, weight in weights.items()}
        for s, weight in around.items():
            weights[s] = weights.get(s, 0.0) + share * weight
    return {s: weights[s] for s in sorted(weights)}


def stored_probs(logits: Tensor) -> Tensor:
    """Convert logits to the probabilities ``[m, K]`` that are stored until the end: float16, on the CPU."""
    return at_least_float32(logits.detach()).softmax(dim=1).to(torch.float16).cpu()
