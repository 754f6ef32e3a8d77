"""Augmentation by one gather equals transforming each image by hand; CutMix's share is the share of pixels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from vista.data.augment import (
    OPERATIONS,
    Augmentation,
    CutMix,
    change_colors,
    cut_and_mix,
    draw,
    draw_boxes,
    gather,
    generator,
    resample,
)

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


# ---------------------------------------------------------------- TrivialAugment

STILL = torch.zeros(4, 1)  # neither shifted nor flipped nor rotated


def only(operation: str, level: float) -> torch.Tensor:
    return torch.tensor([[float(OPERATIONS.index(operation))], [level]])


def moved(operation: str, level: float) -> np.ndarray:
    index = torch.zeros(1, dtype=torch.long)
    return gather(torch.from_numpy(IMAGES), index, STILL, rotates=False, trivial=only(operation, level))[0].numpy()


def recoloured(image: np.ndarray, operation: str, level: float) -> np.ndarray:
    """Reference for one image, in float64."""
    x = image.astype(np.float64)
    grey = (x @ [0.299, 0.587, 0.114])[..., None]
    if operation in ("brightness", "contrast", "saturation"):
        centre = {"brightness": 0.0, "contrast": grey.mean(), "saturation": grey}[operation]
        return (centre + (x - centre) * (1 + 0.99 * level)).clip(0, 255)
    if operation == "posterize":
        lost = round(6 * abs(level))
        return ((image >> lost) << lost).astype(np.float64)
    if operation == "solarize":
        return np.where(x >= 255 - 255 * abs(level), 255 - x, x)
    if operation == "autocontrast":
        least, most = x.min((0, 1)), x.max((0, 1))
        return (x - least) / (most - least) * 255
    return x


@pytest.mark.parametrize("sign", [1, -1])
def test_geometric_operations_move_the_pixels_of_the_reference(sign: int) -> None:
    image = IMAGES[0]
    assert np.array_equal(moved("identity", 1.0), image)
    assert np.array_equal(moved("brightness", 1.0), image), "colours are changed later"
    assert np.array_equal(moved("translate-x", sign * 2 / 32), cropped(image, 0, -2 * sign, 2))
    assert np.array_equal(moved("translate-y", sign * 2 / 32), cropped(image, -2 * sign, 0, 2))
    assert np.array_equal(moved("rotate", sign * 0.3), rotated(image, sign * 0.3 * math.radians(135)))
    sheared_x, sheared_y = np.zeros_like(image), np.zeros_like(image)
    for row in range(H):
        for column in range(W):
            y, x = row - (H - 1) / 2, column - (W - 1) / 2
            c, r = round(column + sign * 0.5 * 0.99 * y), round(row + sign * 0.5 * 0.99 * x)
            if 0 <= c < W:
                sheared_x[row, column] = image[row, c]
            if 0 <= r < H:
                sheared_y[row, column] = image[r, column]
    assert np.array_equal(moved("shear-x", sign * 0.5), sheared_x)
    assert np.array_equal(moved("shear-y", sign * 0.5), sheared_y)


def test_photos_are_moved_in_the_same_resampling() -> None:
    photo = torch.from_numpy(IMAGES[:1, :6]).permute(0, 3, 1, 2).float()
    whole = torch.tensor([[1.0], [1.0], [0.0], [0.0], [0.0], [0.0]])
    right = resample(photo, whole, 6, rotates=False, trivial=only("translate-x", 2 / 32))
    assert torch.allclose(right[..., 2:], photo[..., :-2], atol=1e-2)
    assert not right[..., :2].any()
    quarter = resample(photo, whole, 6, rotates=False, trivial=only("rotate", 90 / 135))
    rotation = whole.clone()
    rotation[5] = math.pi / 2
    assert torch.allclose(quarter, resample(photo, rotation, 6, rotates=True), atol=1e-2)


def test_colour_operations_are_those_of_the_reference() -> None:
    """All operations in one batch, so that none reaches another image."""
    cases = [(operation, level) for operation in OPERATIONS for level in (-1.0, -0.4, 0.0, 0.3, 1.0)]
    trivial = torch.cat([only(*case) for case in cases], dim=1)
    images = np.stack([IMAGES[number % len(IMAGES)] // 2 + 40 for number in range(len(cases))])
    found = change_colors(torch.from_numpy(images), trivial).numpy()
    for case, image, result in zip(cases, images, found, strict=True):
        np.testing.assert_allclose(result, recoloured(image, *case), atol=0.01, err_msg=str(case))


def test_one_colour_and_greyscale_images_stay_in_range() -> None:
    trivial = draw(Augmentation(augment="trivial"), 200, generator(5))[-2:]
    for images in (torch.rand(200, 4, 4, 1) * 255, torch.full((200, 4, 4, 3), 255.0), torch.zeros(200, 4, 4, 3)):
        changed = change_colors(images, trivial)
        assert changed.shape == images.shape
        assert 0 <= float(changed.min()) <= float(changed.max()) <= 255


def test_operations_are_drawn_after_everything_else_and_depend_on_the_seed_alone() -> None:
    plain = Augmentation(color_jitter=0.4)
    trivial = Augmentation(color_jitter=0.4, augment="trivial")
    drawn = draw(trivial, 3000, generator(1))
    assert torch.equal(drawn[:-2], draw(plain, 3000, generator(1)))
    assert torch.equal(drawn, draw(trivial, 3000, generator(1)))
    assert not torch.equal(drawn[-2:], draw(trivial, 3000, generator(2))[-2:])
    geometry, colors, operations = trivial.split(drawn)
    assert [len(part) for part in (geometry, colors, operations)] == [4, 3, 2]
    assert trivial.num_draws == 9
    assert set(operations[0].int().tolist()) == set(range(len(OPERATIONS)))
    assert {round(30 * level) for level in operations[1].tolist()} == set(range(-30, 31))
    with pytest.raises(ValueError, match="augment must be none or trivial, got 'rand'"):
        Augmentation(augment="rand")  # type: ignore[arg-type]


def test_no_operation_waits_for_the_device() -> None:
    """Tensors without data: anything that read a value on the host, as `.item()` does, would raise."""
    trivial, index = torch.empty(2, 5, device="meta"), torch.empty(5, dtype=torch.long, device="meta")
    images = torch.empty(20, H, H, 3, dtype=torch.uint8, device="meta")
    shifted = gather(images, index, torch.empty(4, 5, device="meta"), False, trivial)
    assert change_colors(shifted, trivial).shape == (5, H, H, 3)
    photos = torch.empty(5, 3, 9, 9, dtype=torch.bfloat16, device="meta")
    assert resample(photos, torch.empty(6, 5, device="meta"), H, False, trivial).shape == (5, 3, H, H)
