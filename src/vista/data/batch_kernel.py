"""Shift, flip and normalise the images of a batch in one Triton kernel; torch needs about twenty.

Triton is installed with torch for CUDA only, so this module is imported where it is used.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # values per program


def shifted(images: Tensor, rows: Tensor, draws: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """The same bits as ``normalise(gather(images, rows, draws))`` without rotation, ``[B, H, W, C]``.

    Args:
        images: uint8 ``[N, H, W, C]``, contiguous.
        rows: The images of the batch, int64 ``[B]``.
        draws: Shift down, shift right, flipped; float32 ``[3 or more, B]``.
        scale: Per channel, of the result's dtype.
        shift: Per channel, added after scaling.
    """
    _, height, width, channels = images.shape
    out = torch.empty(len(rows), height, width, channels, dtype=scale.dtype, device=images.device)
    grid = (len(rows), triton.cdiv(height * width * channels, BLOCK))
    _shift[grid](
        images, rows, draws, draws.stride(0), draws.stride(1), scale, shift, out, height, width, channels, BLOCK,
        enable_fp_fusion=False,
    )  # fmt: skip
    return out


@triton.jit
def _shift(
    images, rows, draws, of_draw, of_image, scale, shift, out,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    image = tl.load(rows + b).to(tl.int64)
    draw = draws + b * of_image
    down, right = tl.load(draw).to(tl.int32), tl.load(draw + of_draw).to(tl.int32)
    flipped = tl.load(draw + 2 * of_draw) > 0
    channel, column, row = i % C, i // C % W, i // (C * W) + down
    column = tl.where(flipped, W - 1 - column, column) + right
    exists = i < H * W * C
    inside = exists & (row >= 0) & (row < H) & (column >= 0) & (column < W)
    value = tl.load(images + image * (H * W * C) + (row * W + column) * C + channel, mask=inside, other=0)
    value = value.to(out.dtype.element_ty)
    value = value * tl.load(scale + channel, mask=exists) + tl.load(shift + channel, mask=exists)
    tl.store(out + b.to(tl.int64) * (H * W * C) + i, value, mask=exists)
