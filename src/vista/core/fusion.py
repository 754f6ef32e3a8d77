"""Knowledge fusion: which past states, and with which weights, bring back what the last one has forgotten."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from vista.core import teacher
from vista.core.losses import wide


def check_options(window: int, step: float, rounds: int) -> None:
    """Refuse options that could not run, naming the argument."""
    if window < 1 or window % 2 == 0:
        raise ValueError(f"window is {window}, but a centred window needs an odd width of at least 1 (3 is usual)")
    if not 0 < step <= 0.5:
        raise ValueError(
            f"step is {step}, but weights are tried from step to 1 - step: 0 < step <= 0.5 (0.05 is usual)"
        )
    if rounds < 0:
        raise ValueError(f"rounds is {rounds}, but it must be at least 0 (0 keeps the last state alone)")


def forget_fraction(right: Tensor, right_now: Tensor) -> Tensor:
    """Share of samples that state ``e`` has right and the present one wrong, ``[E]``, from bools ``[E, m]``, ``[m]``.

    With the last state as the present one this is the deviation gap.
    """
    return (right & ~right_now).sum(dim=1) / right.shape[1]


def fusion_weights(
    val_probs: Sequence[Tensor], val_labels: Tensor, *, window: int = 3, step: float = 0.05, rounds: int = 10
) -> dict[int, float]:
    """Weights ``{epoch: weight}``, which sum to one, of the states whose mean prediction forgets least.

    ``val_probs`` are the probabilities ``[m, K]`` of epochs 1 to E on the validation samples, ``val_labels`` ``[m]``
    their given labels. It begins with the last state. In each round the epoch that still has most of what the present
    mean has wrong is averaged over a centred ``window`` of epochs and blended in, with the weight out of
    ``step, 2 step, ... 1 - step`` that gets most validation samples right; the first that gets no more ends it.
    """
    check_options(window, step, rounds)
    epochs = len(val_probs)
    if epochs == 0:
        raise ValueError(
            "val_probs holds no epoch: fusion needs the validation probabilities of every epoch, which a run with "
            "the method 'kf' keeps"
        )
    right = torch.stack([wide(probs).argmax(dim=1) == val_labels for probs in val_probs])
    shares = np.arange(1, round(1 / step)) * step
    weights, fused = {epochs: 1.0}, wide(val_probs[-1])
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
    """Probabilities ``[m, K]`` as they are kept until the end: float16, on the CPU."""
    return wide(logits.detach()).softmax(dim=1).to(torch.float16).cpu()
