"""Tensors that share one block of memory, so that a kernel can process all of them at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def in_memory_order(tensor: Tensor) -> Tensor:
    """The weights of a convolution with their inputs last, as channels-last memory has them; others unchanged."""
    return tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor


@torch.no_grad()
def adopt(tensors: Sequence[Tensor]) -> Tensor:
    """Copy ``tensors`` into one flat tensor and make each a view of its part. Convolutions become channels-last."""
    ordered = [in_memory_order(tensor.detach()) for tensor in tensors]
    flat = torch.cat([tensor.reshape(-1) for tensor in ordered])
    parts = flat.split([tensor.numel() for tensor in tensors])
    for tensor, like, part in zip(tensors, ordered, parts, strict=True):
        view = part.view(like.shape)
        if tensor.dim() == 4:
            view = view.permute(0, 3, 1, 2)
            if tensor.is_contiguous(memory_format=torch.channels_last):
                view = view.as_strided(tensor.shape, tensor.stride())  # those of a 1x1 kernel are ambiguous
        tensor.data = view
    return flat
