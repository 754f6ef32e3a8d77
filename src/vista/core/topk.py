"""Top-k predictions: the k largest probabilities of a row, and a uniform remainder over the other classes.

A row is k int32 numbers, 4 bytes per kept probability: the float16 probability in the upper half, the class number in
the lower half, largest first. Of equal probabilities the lower class numbers are kept, so that every device and every
number of processes stores the same bytes.
"""

from __future__ import annotations

import torch
from torch import Tensor

BYTES_PER_ENTRY = 4
MOST_CLASSES = 2**16  # that a class number of 16 bits can tell apart


def check_topk(topk: int | None, num_classes: int) -> int | None:
    """Return ``topk``, or raise an error if that many probabilities cannot be kept of ``num_classes``."""
    if topk is None:
        return None
    if not 1 <= topk < num_classes:
        raise ValueError(f"topk must be 1 to {num_classes - 1} with {num_classes} classes, got {topk}")
    if num_classes > MOST_CLASSES:
        raise ValueError(f"num_classes must be at most {MOST_CLASSES:,} with topk, got {num_classes:,}: leave topk out")
    return topk


def pack(probs: Tensor, k: int) -> Tensor:
    """Keep the ``k`` largest probabilities of each row.

    Args:
        probs: Probabilities, ``[B, K]``.
        k: How many to keep, 1 to K.

    Returns:
        An int32 tensor ``[B, k]``.

    >>> unpack(pack(torch.tensor([[0.125, 0.5, 0.125, 0.25]]), 2), 4)
    tensor([[0.1250, 0.5000, 0.1250, 0.2500]])
    """
    values, classes = probs.to(torch.float16).sort(dim=1, descending=True, stable=True)
    bits = values[:, :k].contiguous().view(torch.int16).to(torch.int32)
    return (bits << 16) | classes[:, :k].to(torch.int32)


def unpack(rows: Tensor, num_classes: int, out: Tensor | None = None) -> Tensor:
    """Return the distributions of packed rows ``[B, k]`` as float32 ``[B, K]``; ``out`` receives them if given."""
    values, classes = _split(rows)
    out = torch.empty(len(rows), num_classes, device=rows.device) if out is None else out
    remainder = (1.0 - values.sum(dim=1, keepdim=True)).clamp_(min=0.0)
    out.copy_(remainder / max(1, num_classes - rows.shape[1]))
    return out.scatter_(1, classes, values)


def largest(rows: Tensor) -> Tensor:
    """Return the most probable class of packed rows ``[B, k]``, ``[B]``."""
    return _split(rows[:, :1])[1].flatten()


def are_packed(rows: Tensor, shape: torch.Size, num_classes: int) -> bool:
    """Whether these are packed rows of this shape: probabilities that sum to at most one, of distinct classes."""
    if rows.dtype != torch.int32 or rows.shape != shape:
        return False
    for part in rows.split(2**16):
        values, classes = _split(part)
        ordered = classes.sort(dim=1).values
        valid = ((values >= 0) & (values <= 1)).all() & (values.sum(dim=1) <= 1 + 2**-8).all()
        if not valid & (classes < num_classes).all() & (ordered[:, 1:] > ordered[:, :-1]).all():
            return False
    return True


def _split(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the probabilities, float32 ``[B, k]``, and the class numbers, int64 ``[B, k]``."""
    return (rows >> 16).to(torch.int16).view(torch.float16).float(), (rows & 0xFFFF).long()
