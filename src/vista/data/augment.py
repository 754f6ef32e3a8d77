"""Shift, mirror and turn pictures by one gather: every output pixel is told which source pixel it is.

The draws of an epoch are a pure function of ``(seed, epoch)``, made at once and read by position, so that a captured
step needs no host work, and a run that was stopped in the middle of an epoch goes on with the same pictures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Augmentation:
    """What a picture may undergo and still be of its class."""

    padding: int = 4  # a shift by up to so many pixels in each direction; what comes in is black
    flip: bool = True  # mirrored with probability 1/2
    rotation: float = 0.0  # turned by up to so many degrees either way, nearest pixel, black outside

    def __post_init__(self) -> None:
        if not 0 <= self.padding <= 127:
            raise ValueError(f"padding is {self.padding}, but it must lie between 0 and 127 pixels")
        if not 0 <= self.rotation <= 180:
            raise ValueError(f"rotation is {self.rotation}, but it must lie between 0 and 180 degrees")


def generator(*key: int) -> torch.Generator:
    """A CPU generator that is a function of ``key`` alone; nearby keys give unrelated streams."""
    state = int(np.random.SeedSequence([k & 0xFFFFFFFF for k in key]).generate_state(1, np.uint64)[0])
    return torch.Generator().manual_seed(state >> 1)


def draw(augmentation: Augmentation, n: int, source: torch.Generator) -> Tensor:
    """Draws for ``n`` pictures, float32 ``[4, n]``: shift down, shift right, mirrored (0 or 1), angle in radians."""
    shift = torch.randint(0, 2 * augmentation.padding + 1, (2, n), generator=source) - augmentation.padding
    mirrored = torch.randint(0, 2, (1, n), generator=source) * int(augmentation.flip)
    angle = (torch.rand(1, n, generator=source) * 2 - 1) * math.radians(augmentation.rotation)
    return torch.cat([shift.float(), mirrored.float(), angle])


def place(draws: Tensor, height: int, width: int, rotates: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Source row and column of every output pixel, and whether it lies inside the picture, each ``[B, H, W]``.

    Turned first (nearest pixel), then mirrored, then shifted: the order in which crop, flip and rotation are usually
    applied, read backwards from the output.
    """
    down, right, mirrored, angle = (d.view(-1, 1, 1) for d in draws)
    rows = torch.arange(height, device=draws.device, dtype=torch.float32).view(1, -1, 1)
    columns = torch.arange(width, device=draws.device, dtype=torch.float32).view(1, 1, -1)
    inside = torch.ones((), dtype=torch.bool, device=draws.device)
    if rotates:
        middle_row, middle_column = (height - 1) / 2, (width - 1) / 2
        cos, sin = angle.cos(), angle.sin()
        y, x = rows - middle_row, columns - middle_column
        rows = (cos * y - sin * x + middle_row).round()
        columns = (sin * y + cos * x + middle_column).round()
        inside = _within(rows, height) & _within(columns, width)
    columns = torch.where(mirrored > 0, width - 1 - columns, columns)
    rows, columns = rows + down, columns + right
    inside = inside & _within(rows, height) & _within(columns, width)
    return rows.clamp(0, height - 1).long(), columns.clamp(0, width - 1).long(), inside


def _within(values: Tensor, size: int) -> Tensor:
    return (values >= 0) & (values < size)


def gather(images: Tensor, index: Tensor, draws: Tensor, rotates: bool) -> Tensor:
    """Augmented pictures, uint8 ``[B, H, W, C]``, of ``images`` uint8 ``[N, H, W, C]`` at ``index`` ``[B]``."""
    rows, columns, inside = place(draws, images.shape[1], images.shape[2], rotates)
    return images[index.view(-1, 1, 1), rows, columns] * inside.unsqueeze(-1)


@dataclass(frozen=True)
class CutMix:
    """A box of another picture of the batch replaces part of this one, for a whole batch with ``probability``."""

    probability: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise ValueError(f"cutmix is {self.probability}, but it is a probability between 0 and 1")


def draw_boxes(cutmix: CutMix, steps: int, height: int, width: int, source: torch.Generator) -> Tensor:
    """A box per step, float32 ``[steps, 5]``: top, bottom, left, right, and the true share left to the own picture.

    The share wanted is uniform (Beta(1, 1)); the box is cut at the border, so the share that counts is measured.
    Without CutMix in a step the box is empty and the share 1.
    """
    wanted = torch.rand(steps, generator=source)
    side = (1 - wanted).sqrt()
    box_height, box_width = (side * height).floor(), (side * width).floor()
    middle_row = torch.randint(0, height, (steps,), generator=source).float()
    middle_column = torch.randint(0, width, (steps,), generator=source).float()
    top = (middle_row - (box_height / 2).floor()).clamp(0, height)
    bottom = (middle_row - (box_height / 2).floor() + box_height).clamp(0, height)
    left = (middle_column - (box_width / 2).floor()).clamp(0, width)
    right = (middle_column - (box_width / 2).floor() + box_width).clamp(0, width)
    off = torch.rand(steps, generator=source) >= cutmix.probability
    bottom, right = torch.where(off, top, bottom), torch.where(off, left, right)
    share = 1 - (bottom - top) * (right - left) / (height * width)
    return torch.stack([top, bottom, left, right, share], dim=1)


def cut_and_mix(x: Tensor, other: Tensor, box: Tensor) -> Tensor:
    """``other`` inside the box, ``x`` outside; both ``[B, C, H, W]``, ``box`` ``[5]`` as :func:`draw_boxes` gives."""
    top, bottom, left, right, _ = box.unbind()
    rows = torch.arange(x.shape[2], device=x.device).view(-1, 1)
    columns = torch.arange(x.shape[3], device=x.device).view(1, -1)
    inside = (rows >= top) & (rows < bottom) & (columns >= left) & (columns < right)
    return torch.where(inside, other, x)
