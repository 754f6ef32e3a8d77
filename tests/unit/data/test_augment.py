"""Augmentation by one gather equals transforming each image by hand; CutMix's share is the share of pixels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from vista.data.augment import Augmentation, CutMix, cut_and_mix, draw, draw_boxes, gather, generator

H, W = 8, 6
IMAGES = np.random.default_rng(0).integers(1, 256, (20, H, W, 3), np.uint8)  # no black: padding is distinct


def cropped(image: np.ndarray, down: int, right: int, padding: int) -> np.ndarray:
    """The window that a random crop cuts out of an image padded with black."""
    padded = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    return padded[padding + down : padding + down + H, padding + right : padding + right + W]


def rotated(image: np.ndarray, angle: float) -> np.ndarray:
    """Rotate about the centre, nearest pixel, black outside, one output pixel at a time."""
    result = np.zeros_like(image)
    middle_row, middle_column = (H - 1) / 2, (W - 1) / 2
    for row in range(H):
        for column in range(W):
            y, x = row - middle_row, column - middle_column
            r = round(math.cos(angle) * y - math.sin(angle) * x + middle_row)
            c = round(math.sin(angle) * y + math.cos(angle) * x + middle_column)
            if 0 <= r < H and 0 <= c < W:
                result[row, column] = image[r, c]
    return result


@pytest.mark.parametrize(
    "augmentation",
    [
        Augmentation(padding=0, flip=False),
        Augmentation(padding=3, flip=False),
        Augmentation(padding=0, flip=True),
        Augmentation(padding=2, flip=True),
        Augmentation(padding=0, flip=False, rotation=30),
        Augmentation(padding=2, flip=True, rotation=180),
    ],
)
def test_crop_flip_and_rotation_as_done_by_hand(augmentation: Augmentation) -> None:
    draws = draw(augmentation, len(IMAGES), generator(0, 1))
    index = torch.randperm(len(IMAGES), generator=generator(5))
    ours = gather(torch.from_numpy(IMAGES), index, draws, augmentation.rotation > 0).numpy()
    for position, sample in enumerate(index.tolist()):
        down, right, flipped, angle = draws[:, position].tolist()
        expected = cropped(IMAGES[sample], int(down), int(right), augmentation.padding)
        expected = expected[:, ::-1] if flipped else expected
        expected = rotated(expected, angle) if augmentation.rotation else expected
        np.testing.assert_array_equal(ours[position], expected)


def test_draws_cover_exactly_the_allowed_values() -> None:
    down, right, flipped, angle = draw(Augmentation(padding=2, flip=True, rotation=10), 4000, generator(3))
    assert set(down.tolist()) == set(right.tolist()) == {-2, -1, 0, 1, 2}
    assert not torch.equal(down, right)
    assert 0.45 < flipped.mean() < 0.55
    limit = math.radians(10)
    assert -limit <= angle.min() < -0.9 * limit
    assert 0.9 * limit < angle.max() <= limit
    still = draw(Augmentation(padding=0, flip=False), 50, generator(3))
    assert not still.any()


def test_a_generator_depends_on_its_key_alone() -> None:
    def numbers(*key: int) -> list[float]:
        return torch.rand(4, generator=generator(*key)).tolist()

    assert numbers(1, 2, 3) == numbers(1, 2, 3)
    keys = [(1, 2, 0), (2, 1, 0), (1, 3, 0), (0, 2, 0), (1, 2, 1), (0, 1, 2), (-1, 2, 0)]
    assert len({tuple(numbers(*key)) for key in keys}) == len(keys)


def test_global_random_state_is_not_used() -> None:
    before = torch.get_rng_state()
    draw(Augmentation(rotation=5), 10, generator(0))
    draw_boxes(CutMix(0.5), 5, H, W, generator(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_the_share_of_a_box_is_its_share_of_pixels() -> None:
    own, other = torch.ones(2, 3, H, W), torch.zeros(2, 3, H, W)
    boxes = draw_boxes(CutMix(1.0), 500, H, W, generator(0))
    for box in boxes:
        mixed = cut_and_mix(own, other, box)
        assert mixed.mean().item() == pytest.approx(box[4].item(), abs=1e-6)
        assert torch.equal(mixed[0], mixed[1])
    shares = boxes[:, 4]
    assert shares.min() < 0.3
    assert shares.max() > 0.95
    assert ((shares >= 0) & (shares <= 1)).all()


def test_an_unclipped_box_is_square_and_has_the_requested_area() -> None:
    size, steps = 1000, 400
    requested = torch.rand(steps, generator=generator(0))  # the first draw
    top, bottom, left, right, share = draw_boxes(CutMix(1.0), steps, size, size, generator(0)).unbind(1)
    whole = (top > 0) & (left > 0) & (bottom < size) & (right < size)
    assert whole.sum() > 50
    assert torch.equal((bottom - top)[whole], (right - left)[whole])
    torch.testing.assert_close(share[whole], requested[whole], rtol=0, atol=2 / size)
    assert (share >= requested - 1e-6).all(), "clipping only shrinks the box"


def test_a_box_shows_the_same_region_of_the_other_image() -> None:
    own, other = torch.arange(H * W).float().view(1, 1, H, W), -torch.arange(H * W).float().view(1, 1, H, W)
    mixed = cut_and_mix(own, other, torch.tensor([2.0, 5.0, 1.0, 4.0, 1 - 9 / (H * W)]))
    expected = own.clone()
    expected[:, :, 2:5, 1:4] = other[:, :, 2:5, 1:4]
    assert torch.equal(mixed, expected)


def test_a_share_of_1_leaves_the_image_unchanged() -> None:
    own, other = torch.ones(2, 3, H, W), torch.zeros(2, 3, H, W)
    boxes = draw_boxes(CutMix(0.0), 50, H, W, generator(0))
    assert (boxes[:, 4] == 1).all()
    for box in boxes:
        assert torch.equal(cut_and_mix(own, other, box), own)


def test_cutmix_is_applied_per_batch_with_its_probability() -> None:
    boxes = draw_boxes(CutMix(0.3), 4000, 32, 32, generator(0))
    assert (boxes[:, 4] < 1).float().mean().item() == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Augmentation(padding=-1), "padding must be between 0 and 127 pixels, got -1"),
        (lambda: Augmentation(padding=128), "padding must be between 0 and 127 pixels, got 128"),
        (lambda: Augmentation(rotation=-5), "rotation must be between 0 and 180 degrees, got -5"),
        (lambda: Augmentation(rotation=200), "rotation must be between 0 and 180 degrees, got 200"),
        (lambda: CutMix(1.5), "cutmix must be a probability between 0 and 1, got 1.5"),
        (lambda: CutMix(-0.5), "cutmix must be a probability between 0 and 1, got -0.5"),
    ],
)
def test_values_out_of_range_are_rejected(make, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message):
        make()
