"""Shift, flip and rotate images with one gather, or crop photos at random with one bilinear resampling; TrivialAugment
and CutMix.

All draws of an epoch are a pure function of ``(seed, epoch)``, made at its start and read by position. A captured step
therefore needs no host work, and a run resumed in the middle of an epoch sees the same images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

SHIFT_DRAWS, CROP_DRAWS = 4, 6  # rows of random numbers for the geometry of an image; those for its colours follow
_GREY = (0.299, 0.587, 0.114)  # weights of red, green and blue in the luminance
_LOG_RATIO = math.log(4 / 3)  # largest logarithm of width / height of a random crop

# TrivialAugment (Müller and Hutter, 2021) with the strengths of its wide space; sharpness and equalize are left out.
OPERATIONS = (
    "identity", "shear-x", "shear-y", "translate-x", "translate-y", "rotate",
    "brightness", "contrast", "saturation", "posterize", "solarize", "autocontrast",
)  # fmt: skip
_LEVELS = 30  # steps of the strength from 0 to 1
_SHEAR, _TRANSLATION, _ANGLE, _COLOR, _LOST_BITS = 0.99, 32, math.radians(135), 0.99, 6  # at strength 1


@dataclass(frozen=True)
class Augmentation:
    """Random transformations that keep an image's class."""

    padding: int = 4  # largest shift in pixels, in each direction; uncovered pixels are black
    flip: bool = True  # flip left to right with probability 1/2
    rotation: float = 0.0  # largest rotation in degrees, either way; nearest pixel, black outside
    crop_scale: float | None = None  # for photos: smallest share of the area in a random resized crop; no shift then
    color_jitter: float = 0.0  # largest relative change of brightness, contrast and saturation
    augment: Literal["none", "trivial"] = "none"  # trivial: one random operation of random strength per image

    def __post_init__(self) -> None:
        if not 0 <= self.padding <= 127:
            raise ValueError(f"padding must be between 0 and 127 pixels, got {self.padding}")
        if not 0 <= self.rotation <= 180:
            raise ValueError(f"rotation must be between 0 and 180 degrees, got {self.rotation}")
        if self.crop_scale is not None and not 0 < self.crop_scale <= 1:
            raise ValueError(f"crop_scale must be greater than 0 and at most 1, got {self.crop_scale}")
        if not 0 <= self.color_jitter <= 1:
            raise ValueError(f"color_jitter must be between 0 and 1, got {self.color_jitter}")
        if self.augment not in ("none", "trivial"):
            raise ValueError(f"augment must be none or trivial, got {self.augment!r}")

    @property
    def num_draws(self) -> int:
        """Random numbers per image: rows of the result of :func:`draw`."""
        return sum(self._rows())

    def split(self, draws: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Split the result of :func:`draw` into geometry, colour factors and TrivialAugment, the latter two if on."""
        geometry, colors, trivial = draws.split(self._rows())
        return geometry, colors if len(colors) else None, trivial if len(trivial) else None

    def _rows(self) -> list[int]:
        geometry = SHIFT_DRAWS if self.crop_scale is None else CROP_DRAWS
        return [geometry, 3 * (self.color_jitter > 0), 2 * (self.augment == "trivial")]


def generator(*key: int) -> torch.Generator:
    """Return a CPU generator that depends on ``key`` alone; similar keys give unrelated streams."""
    state = int(np.random.SeedSequence([k & 0xFFFFFFFF for k in key]).generate_state(1, np.uint64)[0])
    return torch.Generator().manual_seed(state >> 1)


def draw(augmentation: Augmentation, n: int, source: torch.Generator) -> Tensor:
    """Draw for ``n`` images, float32 ``[4, n]``: shift down, shift right, flipped (0 or 1), angle in radians.

    With ``crop_scale``, ``[6, n]`` for :func:`resample`: height and width of the crop as shares of the image, its
    centre (row, column) in coordinates from -1 to 1, flipped, angle. With ``color_jitter`` three more rows follow: the
    factors of brightness, contrast and saturation. With TrivialAugment two more: the index of the operation in
    ``OPERATIONS`` and its strength from -1 to 1.
    """
    if augmentation.crop_scale is None:
        geometry = _draw_shifts(augmentation, n, source)
    else:
        geometry = _draw_crops(augmentation, augmentation.crop_scale, n, source)
    draws = [geometry]
    if augmentation.color_jitter:
        draws.append(1 + (torch.rand(3, n, generator=source) * 2 - 1) * augmentation.color_jitter)
    if augmentation.augment == "trivial":
        draws.append(_draw_operations(n, source))
    return torch.cat(draws)


def _draw_operations(n: int, source: torch.Generator) -> Tensor:
    operation = torch.randint(0, len(OPERATIONS), (n,), generator=source)
    sign = torch.randint(0, 2, (n,), generator=source) * 2 - 1
    level = torch.randint(0, _LEVELS + 1, (n,), generator=source) / _LEVELS
    return torch.stack([operation.float(), sign * level])


def _draw_shifts(augmentation: Augmentation, n: int, source: torch.Generator) -> Tensor:
    shift = torch.randint(0, 2 * augmentation.padding + 1, (2, n), generator=source) - augmentation.padding
    flipped = torch.randint(0, 2, (1, n), generator=source) * int(augmentation.flip)
    angle = (torch.rand(1, n, generator=source) * 2 - 1) * math.radians(augmentation.rotation)
    return torch.cat([shift.float(), flipped.float(), angle])


def _draw_crops(augmentation: Augmentation, smallest: float, n: int, source: torch.Generator) -> Tensor:
    """Area uniform from ``smallest`` to 1; width / height up to 4/3 either way, as far as it fits; any position."""
    area = smallest + (1 - smallest) * torch.rand(n, generator=source)
    ratio = ((torch.rand(n, generator=source) * 2 - 1) * (-area.log()).clamp(0, _LOG_RATIO)).exp()
    height, width = (area / ratio).sqrt().clamp(max=1), (area * ratio).sqrt().clamp(max=1)
    row, column = (torch.rand(2, n, generator=source) * 2 - 1) * (1 - torch.stack([height, width]))
    flipped = torch.randint(0, 2, (n,), generator=source) * int(augmentation.flip)
    angle = (torch.rand(n, generator=source) * 2 - 1) * math.radians(augmentation.rotation)
    return torch.stack([height, width, row, column, flipped.float(), angle])


def resample(images: Tensor, draws: Tensor, size: int, rotates: bool, trivial: Tensor | None = None) -> Tensor:
    """Crop, scale, flip and rotate photos in one bilinear resampling, with the geometry of TrivialAugment.

    Args:
        images: Floating point ``[B, C, H, W]``.
        draws: Result of :func:`draw` with ``crop_scale``, ``[6, B]``.
        size: Height and width of the result.
        rotates: Whether the draws contain angles; pixels outside of the image are then black.
        trivial: Operations and strengths of TrivialAugment, ``[2, B]``; pixels outside of the image are then black.

    Returns:
        ``[B, C, size, size]``.
    """
    height, width, row, column, flipped, angle = (d.to(images.dtype).view(-1, 1, 1) for d in draws)
    steps = (torch.arange(size, device=images.device, dtype=images.dtype) * 2 + 1) / size - 1  # pixel centres
    y, x = steps.view(1, -1, 1), steps.view(1, 1, -1)
    if trivial is not None:
        y, x = _move(y, x, trivial.to(images.dtype), 2 / size)
    if rotates:
        y, x = angle.cos() * y - angle.sin() * x, angle.sin() * y + angle.cos() * x
    x = x * (1 - 2 * flipped)
    outside = "zeros" if rotates or trivial is not None else "border"
    grid = torch.stack(torch.broadcast_tensors(column + width * x, row + height * y), dim=-1)
    return F.grid_sample(images, grid, padding_mode=outside, align_corners=False)


def _move(y: Tensor, x: Tensor, trivial: Tensor, pixel: float) -> tuple[Tensor, Tensor]:
    """Trace coordinates around the middle back through the geometric operation of each image; ``pixel`` is a unit."""
    operation, level = trivial.view(2, -1, 1, 1)
    shear_x, shear_y, right, down, angle = (level * (operation == OPERATIONS.index(n)) for n in OPERATIONS[1:6])
    angle = angle * _ANGLE
    cos, sin = angle.cos(), angle.sin()
    moved_y = cos * y - (sin - shear_y * _SHEAR) * x - down * (_TRANSLATION * pixel)
    moved_x = cos * x + (sin + shear_x * _SHEAR) * y - right * (_TRANSLATION * pixel)
    return moved_y, moved_x


def source_pixels(
    draws: Tensor, height: int, width: int, rotates: bool, trivial: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return source row and column of every output pixel, and whether they are inside the image, each ``[B, H, W]``.

    Coordinates are moved by TrivialAugment, rotated (nearest pixel), flipped and shifted: the usual order of crop,
    flip, rotation and other operations, traced backwards from the output.
    """
    down, right, flipped, angle = (d.view(-1, 1, 1) for d in draws)
    rows = torch.arange(height, device=draws.device, dtype=torch.float32).view(1, -1, 1)
    columns = torch.arange(width, device=draws.device, dtype=torch.float32).view(1, 1, -1)
    inside = torch.ones((), dtype=torch.bool, device=draws.device)
    if rotates or trivial is not None:
        middle_row, middle_column = (height - 1) / 2, (width - 1) / 2
        cos, sin = angle.cos(), angle.sin()
        y, x = rows - middle_row, columns - middle_column
        if trivial is not None:
            y, x = _move(y, x, trivial, 1.0)
        rows = (cos * y - sin * x + middle_row).round()
        columns = (sin * y + cos * x + middle_column).round()
        inside = _within(rows, height) & _within(columns, width)
    columns = torch.where(flipped > 0, width - 1 - columns, columns)
    rows, columns = rows + down, columns + right
    inside = inside & _within(rows, height) & _within(columns, width)
    return rows.clamp(0, height - 1).long(), columns.clamp(0, width - 1).long(), inside


def _within(values: Tensor, size: int) -> Tensor:
    return (values >= 0) & (values < size)


def gather(images: Tensor, index: Tensor, draws: Tensor, rotates: bool, trivial: Tensor | None = None) -> Tensor:
    """Augment the ``images`` uint8 ``[N, H, W, C]`` at ``index`` ``[B]``; returns uint8 ``[B, H, W, C]``."""
    rows, columns, inside = source_pixels(draws, images.shape[1], images.shape[2], rotates, trivial)
    return images[index.view(-1, 1, 1), rows, columns] * inside.unsqueeze(-1)


def jitter_colors(images: Tensor, factors: Tensor) -> Tensor:
    """Multiply brightness, then contrast around the mean luminance, then saturation.

    Args:
        images: Floating point pixel values from 0 to 255, ``[B, H, W, C]``; only C = 3 has a saturation.
        factors: ``[3, B]``, 1 for no change.

    Returns:
        Values from 0 to 255 of the same shape.
    """
    brightness, contrast, saturation = factors.to(images.dtype).view(3, -1, 1, 1, 1)
    images = (images * brightness).clamp(0, 255)
    middle = _luminance(images).mean(dim=(1, 2), keepdim=True)
    images = (middle + (images - middle) * contrast).clamp(0, 255)
    if images.shape[-1] == 3:
        grey = _luminance(images)
        images = (grey + (images - grey) * saturation).clamp(0, 255)
    return images


def change_colors(images: Tensor, trivial: Tensor) -> Tensor:
    """Apply the colour operation of TrivialAugment to each image; images with another operation are returned unchanged.

    Args:
        images: Pixel values from 0 to 255, ``[B, H, W, C]``.
        trivial: Indices in ``OPERATIONS`` and strengths, ``[2, B]``.

    Returns:
        float32 values from 0 to 255 of the same shape.
    """
    images = images.float()
    operation, level = trivial.view(2, -1, 1, 1, 1)
    chosen = {name: operation == OPERATIONS.index(name) for name in OPERATIONS[6:]}
    factors = torch.stack([1 + level * chosen[name] * _COLOR for name in OPERATIONS[6:9]])
    changed = torch.where(factors.ne(1).any(dim=0), jitter_colors(images, factors), images)
    bin_width = torch.exp2((level.abs() * _LOST_BITS).round())
    posterized = images.floor().div(bin_width).floor() * bin_width
    changed = torch.where(chosen["posterize"], posterized, changed)
    inverted = torch.where(images >= 255 * (1 - level.abs()), 255 - images, images)
    changed = torch.where(chosen["solarize"], inverted, changed)
    least, span = images.amin(dim=(1, 2), keepdim=True), images.amax(dim=(1, 2), keepdim=True)
    span = span - least
    stretched = ((images - least) * (255 / span.clamp(min=1))).clamp(max=255)
    return torch.where(chosen["autocontrast"] & (span >= 1), stretched, changed)


def _luminance(images: Tensor) -> Tensor:
    """``[B, H, W, 1]``; the mean of the channels unless there are three."""
    if images.shape[-1] != 3:
        return images.mean(dim=-1, keepdim=True)
    red, green, blue = images.unbind(-1)
    return (_GREY[0] * red + _GREY[1] * green + _GREY[2] * blue).unsqueeze(-1)


@dataclass(frozen=True)
class CutMix:
    """Replace a box of each image by that of another image of the batch; applied per batch with ``probability``."""

    probability: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise ValueError(f"cutmix must be a probability between 0 and 1, got {self.probability}")


def draw_boxes(cutmix: CutMix, steps: int, height: int, width: int, source: torch.Generator) -> Tensor:
    """Draw a box per step, float32 ``[steps, 5]``: top, bottom, left, right, and the share of pixels kept.

    The requested share is uniform (Beta(1, 1)). Boxes are clipped at the border, so the returned share is that of the
    clipped box. In a step without CutMix the box is empty and the share 1.
    """
    requested = torch.rand(steps, generator=source)
    side = (1 - requested).sqrt()
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
    """Paste the box of ``other`` into ``x``, both ``[B, C, H, W]``; ``box`` is a row of :func:`draw_boxes`."""
    top, bottom, left, right, _ = box.unbind()
    rows = torch.arange(x.shape[2], device=x.device).view(-1, 1)
    columns = torch.arange(x.shape[3], device=x.device).view(1, -1)
    inside = (rows >= top) & (rows < bottom) & (columns >= left) & (columns < right)
    return torch.where(inside, other, x)
