"""Augmentation by one gather equals moving each picture by hand; CutMix's share is the share of pixels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from vista.data.augment import Augmentation, CutMix, cut_and_mix, draw, draw_boxes, gather, generator

H, W = 8, 6
PICTURES = np.random.default_rng(0).integers(1, 256, (20, H, W, 3), np.uint8)  # no black: what comes in is told apart


def cropped(picture: np.ndarray, down: int, right: int, padding: int) -> np.ndarray:
    """The window of a picture padded with black that a random crop cuts out."""
    padded = np.pad(picture, ((padding, padding), (padding, padding), (0, 0)))
    return padded[padding + down : padding + down + H, padding + right : padding + right + W]


def rotated(picture: np.ndarray, angle: float) -> np.ndarray:
    """Turned about its middle, nearest pixel, black outside: output pixel by output pixel."""
    result = np.zeros_like(picture)
    middle_row, middle_column = (H - 1) / 2, (W - 1) / 2
    for row in range(H):
        for column in range(W):
            y, x = row - middle_row, column - middle_column
            r = round(math.cos(angle) * y - math.sin(angle) * x + middle_row)
            c = round(math.sin(angle) * y + math.cos(angle) * x + middle_column)
            if 0 <= r < H and 0 <= c < W:
                result[row, column] = picture[r, c]
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
    draws = draw(augmentation, len(PICTURES), generator(0, 1))
    index = torch.randperm(len(PICTURES), generator=generator(5))
    ours = gather(torch.from_numpy(PICTURES), index, draws, augmentation.rotation > 0).numpy()
    for place, sample in enumerate(index.tolist()):
        down, right, mirrored, angle = draws[:, place].tolist()
        expected = cropped(PICTURES[sample], int(down), int(right), augmentation.padding)
        expected = expected[:, ::-1] if mirrored else expected
        expected = rotated(expected, angle) if augmentation.rotation else expected
        np.testing.assert_array_equal(ours[place], expected)


def test_draws_take_every_value_they_may_and_no_other() -> None:
    down, right, mirrored, angle = draw(Augmentation(padding=2, flip=True, rotation=10), 4000, generator(3))
    assert set(down.tolist()) == set(right.tolist()) == {-2, -1, 0, 1, 2}
    assert not torch.equal(down, right)
    assert 0.45 < mirrored.mean() < 0.55
    limit = math.radians(10)
    assert -limit <= angle.min() < -0.9 * limit
    assert 0.9 * limit < angle.max() <= limit
    still = draw(Augmentation(padding=0, flip=False), 50, generator(3))
    assert not still.any()


def test_a_generator_is_a_function_of_its_key_alone() -> None:
    def numbers(*key: int) -> list[float]:
        return torch.rand(4, generator=generator(*key)).tolist()

    assert numbers(1, 2, 3) == numbers(1, 2, 3)
    keys = [(1, 2, 0), (2, 1, 0), (1, 3, 0), (0, 2, 0), (1, 2, 1), (0, 1, 2), (-1, 2, 0)]
    assert len({tuple(numbers(*key)) for key in keys}) == len(keys)


def test_no_global_draw_is_made() -> None:
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


def test_a_box_that_no_border_cuts_is_square_and_has_the_area_wanted() -> None:
    size, steps = 1000, 400
    wanted = torch.rand(steps, generator=generator(0))  # the first that is drawn
    top, bottom, left, right, share = draw_boxes(CutMix(1.0), steps, size, size, generator(0)).unbind(1)
    whole = (top > 0) & (left > 0) & (bottom < size) & (right < size)
    assert whole.sum() > 50
    assert torch.equal((bottom - top)[whole], (right - left)[whole])
    torch.testing.assert_close(share[whole], wanted[whole], rtol=0, atol=2 / size)
    assert (share >= wanted - 1e-6).all(), "a border takes from the box alone"


def test_a_box_holds_the_other_picture_at_the_same_place() -> None:
    own, other = torch.arange(H * W).float().view(1, 1, H, W), -torch.arange(H * W).float().view(1, 1, H, W)
    mixed = cut_and_mix(own, other, torch.tensor([2.0, 5.0, 1.0, 4.0, 1 - 9 / (H * W)]))
    expected = own.clone()
    expected[:, :, 2:5, 1:4] = other[:, :, 2:5, 1:4]
    assert torch.equal(mixed, expected)


def test_a_share_of_1_leaves_the_picture() -> None:
    own, other = torch.ones(2, 3, H, W), torch.zeros(2, 3, H, W)
    boxes = draw_boxes(CutMix(0.0), 50, H, W, generator(0))
    assert (boxes[:, 4] == 1).all()
    for box in boxes:
        assert torch.equal(cut_and_mix(own, other, box), own)


def test_the_probability_is_that_of_a_batch() -> None:
    boxes = draw_boxes(CutMix(0.3), 4000, 32, 32, generator(0))
    assert (boxes[:, 4] < 1).float().mean().item() == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Augmentation(padding=-1), "padding is -1, but it must lie between 0 and 127 pixels"),
        (lambda: Augmentation(padding=128), "padding is 128"),
        (lambda: Augmentation(rotation=-5), "rotation is -5, but it must lie between 0 and 180 degrees"),
        (lambda: Augmentation(rotation=200), "rotation is 200"),
        (lambda: CutMix(1.5), "cutmix is 1.5, but it is a probability between 0 and 1"),
        (lambda: CutMix(-0.5), "cutmix is -0.5"),
    ],
)
def test_impossible_augmentations_are_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message):
        make()
