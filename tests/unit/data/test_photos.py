"""Folders of photos: images of several sizes, modes and formats, decoded once into a pixel file."""

import json
import multiprocessing
import os
import re
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image

from vista.data import augment, decoding, folder, load, pixel_file
from vista.data.augment import Augmentation
from vista.data.loader import Inputs, Loader
from vista.data.pixel_file import stored_size
from vista.data.streamed_photos import StreamedPhotos

COLOURS = {"ant": (250, 20, 20), "bee": (20, 250, 20)}
KINDS = [
    ("RGB", "jpg"), ("L", "jpg"), ("CMYK", "jpg"), ("RGBA", "png"), ("P", "png"), ("RGB", "webp"), ("RGB", "bmp"),
    ("P", "gif"), ("RGB", "tiff"), ("L", "png"),
]  # fmt: skip


def photo(size, colour):
    """Dark on the left, coloured on the right."""
    image = Image.new("RGB", size, colour)
    image.paste((0, 0, 0), (0, 0, size[0] // 2, size[1]))
    return image


@pytest.fixture
def photos(tmp_path):
    """Twenty photos of two classes: every kind of file, each of another size."""
    root = tmp_path / "photos"
    for name, colour in COLOURS.items():
        (root / name).mkdir(parents=True)
        for number, (mode, suffix) in enumerate(KINDS):
            size = (40 + 13 * number, 90 - 5 * number)
            photo(size, colour).convert(mode).save(root / name / f"{number}.{suffix}")
    return root


@pytest.fixture(autouse=True)
def _forget():
    folder._read.cache_clear()


def read(root, **options):
    """Load as a new process would."""
    folder._read.cache_clear()
    return load(f"folder:{root}", **options)


def test_any_mix_of_sizes_modes_and_formats_is_resized_to_squares(photos):
    source = read(photos)
    assert source.inputs.shape == (20, 73, 73, 3)
    assert source.inputs.dtype == np.uint8
    assert (source.image_size, source.padding) == (64, 0)
    for image, file in zip(source.inputs, source.files, strict=True):
        colour = COLOURS[file[:3]]
        if file not in ("ant/1.jpg", "ant/9.png", "bee/1.jpg", "bee/9.png"):  # greyscale ones
            np.testing.assert_allclose(image[10:60, 60:70].mean((0, 1)), colour, atol=12, err_msg=file)
        assert image[:, :25].max() < 40, file


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tiff"])
def test_exif_orientation_is_applied_to_photos(photos, suffix):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6  # shown rotated clockwise: the dark left side is on top
    photo((300, 200), COLOURS["ant"]).save(photos / "ant" / f"turned.{suffix}", exif=exif)
    source = read(photos)
    image = source.inputs[source.files.index(f"ant/turned.{suffix}")]
    assert image[:30].max() < 40
    assert image[45:, :, 0].min() > 200


def test_the_centre_square_is_resized_with_antialiasing(photos):
    stripes = np.zeros((400, 800, 3), dtype=np.uint8)
    stripes[:, ::2] = 255
    stripes[:, :200] = 0  # outside of the centre square
    Image.fromarray(stripes).save(photos / "ant" / "stripes.png")
    source = read(photos)
    image = source.inputs[source.files.index("ant/stripes.png")]
    assert abs(int(image[:, 2:].min()) - 127) < 8
    assert abs(int(image[:, 2:].max()) - 127) < 8


@pytest.mark.parametrize(
    ("size", "image_size", "shape"),
    [((32, 32), None, 32), ((64, 64), None, 64), ((65, 65), None, 73), ((32, 32), 32, 32), ((32, 32), 16, 18)],
)
def test_images_of_one_size_up_to_64_pixels_are_unchanged(tmp_path, size, image_size, shape):
    for name, colour in COLOURS.items():
        (tmp_path / "all" / name).mkdir(parents=True)
        for number in range(5):
            photo(size, colour).save(tmp_path / "all" / name / f"{number}.png")
    source = read(tmp_path / "all", image_size=image_size)
    assert source.inputs.shape == (10, shape, shape, 3)
    assert (source.image_size is None) == (shape in size)


def test_only_folders_have_an_image_size():
    with pytest.raises(ValueError, match="image_size is 32, but digits is no folder of images: leave out --image-size"):
        load("digits", image_size=32)


# ---------------------------------------------------------------- the pixel file


def test_photos_are_decoded_once_until_a_file_changes(photos, monkeypatch):
    first, calls = read(photos), []
    cache = photos.with_name("photos.64px.pixels")
    before = cache.read_bytes()
    decode = pixel_file.decode_square
    monkeypatch.setattr(pixel_file, "decode_square", lambda *values: calls.append(values) or decode(*values))
    again = read(photos)
    assert (again.inputs_hash, again.test_hash, again.mean, again.std) == (
        first.inputs_hash, first.test_hash, first.mean, first.std,
    )  # fmt: skip
    assert np.array_equal(again.inputs, first.inputs)
    assert not calls
    cache.unlink()
    assert read(photos).inputs_hash == first.inputs_hash
    assert cache.read_bytes() == before, "the same photos give the same bytes"
    calls.clear()
    photo((90, 90), (1, 2, 3)).save(photos / "ant" / "0.jpg")
    assert read(photos).inputs_hash != first.inputs_hash
    assert len(calls) == 20


@pytest.mark.parametrize("damage", ["cut short", "foreign", "empty", "another version"])
def test_a_damaged_pixel_file_is_replaced(photos, monkeypatch, damage):
    first, cache = read(photos), photos.with_name("photos.64px.pixels")
    content = cache.read_bytes()
    if damage == "another version":
        monkeypatch.setattr(pixel_file, "VERSION", 99)
    else:
        cache.write_bytes({"cut short": content[:-100], "foreign": b"x" * 5000, "empty": b""}[damage])
    assert np.array_equal(read(photos).inputs, first.inputs)


def test_statistics_are_stored_and_cover_the_training_images_alone(photos):
    source = read(photos)
    training = source.inputs[source.train_ids] / 255
    np.testing.assert_allclose(source.mean, training.mean((0, 1, 2)))
    np.testing.assert_allclose(source.std, training.std((0, 1, 2)))
    content = photos.with_name("photos.64px.pixels").read_bytes()
    length = int.from_bytes(content[-8:], "little")
    about = json.loads(content[-8 - length : -8])
    assert about["shape"] == [20, 73, 73, 3]
    assert about["files"][0] == [
        "ant/0.jpg",
        *(getattr((photos / "ant/0.jpg").stat(), n) for n in ("st_size", "st_mtime_ns")),
    ]
    assert about["entries"][0]["sum"] == source.inputs[0].sum((0, 1)).tolist()


def test_more_than_the_memory_limit_is_memory_mapped(photos, monkeypatch):
    kept = read(photos)
    monkeypatch.setattr(folder, "_IN_MEMORY", 0)
    mapped = read(photos)
    assert isinstance(mapped.inputs, np.memmap)
    assert np.array_equal(mapped.inputs, kept.inputs)
    mapped.inputs[:] = 0
    assert np.array_equal(read(photos).inputs, kept.inputs), "changes of the array do not reach the file"


def _load_in_process(name, waiting, results):
    count = 0
    decode = pixel_file.decode_square

    def counted(*values):
        nonlocal count
        count += 1
        return decode(*values)

    pixel_file.decode_square = counted
    waiting.wait()
    results.put((load(name).inputs_hash, count))


def test_two_processes_decode_once_and_leave_one_file(photos):
    context = multiprocessing.get_context("fork")
    waiting, results = context.Barrier(2), context.Queue()
    name = f"folder:{photos}"
    workers = [context.Process(target=_load_in_process, args=(name, waiting, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    (one, first), (two, second) = results.get(timeout=60), results.get(timeout=60)
    for worker in workers:
        worker.join()
    assert one == two
    assert sorted((first, second)) == [0, 20]
    assert sorted(path.name for path in photos.parent.iterdir()) == ["photos", "photos.64px.pixels"]


def test_a_folder_that_cannot_be_written_is_decoded_in_memory(photos, monkeypatch):
    expected = read(photos).inputs_hash
    photos.with_name("photos.64px.pixels").unlink()

    def denied(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pixel_file.tempfile, "mkstemp", denied)
    assert read(photos).inputs_hash == expected
    assert sorted(path.name for path in photos.parent.iterdir()) == ["photos"]


def test_a_full_disk_is_reported_and_leaves_no_files(photos, monkeypatch):
    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    message = f"cannot write the decoded photos ({20 * 73 * 73 * 3:,} bytes) to {photos}.64px.pixels: No space left"
    with pytest.raises(OSError, match=re.escape(message)):
        read(photos)
    assert sorted(path.name for path in photos.parent.iterdir()) == ["photos"]


# ---------------------------------------------------------------- photos that no disk has space for


@pytest.fixture
def free(monkeypatch):
    """Free bytes of the disk, which the test may change; nothing fits in memory."""
    bytes_free = [100]
    monkeypatch.setattr(folder, "_IN_MEMORY", 0)
    usage = SimpleNamespace(disk_usage=lambda _path: SimpleNamespace(free=bytes_free[0]))
    monkeypatch.setattr(pixel_file, "shutil", usage)
    return bytes_free


@pytest.mark.parametrize("denied", [False, True])
def test_photos_without_disk_space_are_decoded_whenever_they_are_read(photos, free, monkeypatch, denied):
    free[0] = 10**9
    expected = read(photos)
    cache = photos.with_name("photos.64px.pixels")
    cache.unlink()
    free[0], calls = 100, []
    if denied:
        monkeypatch.setattr(pixel_file.tempfile, "mkstemp", Mock(side_effect=PermissionError(13, "denied")))
    decode = pixel_file.decode_square
    monkeypatch.setattr(pixel_file, "decode_square", lambda *values: calls.append(values) or decode(*values))
    for scans in (20, 40 if denied else 20):  # the second time the file has hashes and statistics
        with pytest.warns(UserWarning, match=r"need 0.0 GB, which cannot be stored in .*: they are decoded again in"):
            source = read(photos)
        assert len(calls) == scans
        assert cache.exists() != denied
        assert isinstance(source.inputs, StreamedPhotos)
        assert (source.inputs_hash, source.test_hash, source.mean, source.std) == (
            expected.inputs_hash, expected.test_hash, expected.mean, expected.std,
        )  # fmt: skip
        for rows in (np.array([7, 0, 7]), np.arange(20) > 16, np.array([], dtype=int), 3, slice(4, 9)):
            assert np.array_equal(np.asarray(source.inputs[rows]), expected.inputs[rows])
    if not denied:
        assert cache.stat().st_size < 10_000
        free[0] = 10**9
        assert isinstance(read(photos).inputs, np.memmap), "the pixels are stored once there is space"


def test_damaged_photos_are_left_out_of_those_that_are_decoded_when_read(photos, free):
    (photos / "ant" / "3.png").write_bytes(b"nothing")
    for _ in range(2):
        with pytest.warns(UserWarning, match="cannot be stored"), pytest.warns(UserWarning, match="1 of 20 images"):
            source = read(photos, skip_damaged=True)
        assert len(source.inputs) == 19
        assert [path.name for path in source.inputs.files[2:5]] == ["2.jpg", "4.png", "5.webp"]
    with pytest.raises(ValueError, match=r"ant/3.png is not a readable image"):
        read(photos)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("damage", ["no image", "cut short", "oversized"])
def test_damaged_files_are_named_or_left_out_with_their_number(photos, monkeypatch, damage, uniform):
    if uniform:
        for path in sorted(photos.glob("*/*")):
            photo((40, 40), COLOURS[path.parent.name]).save(path)
    bad = photos / "bee" / "2.jpg"
    if damage == "no image":
        bad.write_bytes(b"nothing")
    elif damage == "cut short":
        bad.write_bytes(bad.read_bytes()[:-200])
    else:
        photo((200, 200), COLOURS["bee"]).save(bad)
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100 * 160)
    message = re.escape("bee/2.jpg is not a readable image: ") + ".*; replace or delete it, or .* --skip-damaged$"
    with pytest.raises(ValueError, match=message):
        read(photos)
    if damage == "oversized":
        with pytest.raises(ValueError, match="it has 40,000 pixels, but at most 32,000 are read; replace"):
            read(photos)
    assert sorted(path.name for path in photos.parent.iterdir()) == ["photos"]
    for _ in range(2):  # the second time from the pixel file
        with pytest.warns(UserWarning, match="^1 of 20 images cannot be read and is left out: .*bee/2.jpg is not"):
            source = read(photos, skip_damaged=True)
        assert len(source.files) == len(source.labels) == len(source.inputs) == 19
        assert "bee/2.jpg" not in source.files
        assert source.labels.tolist() == [0] * 10 + [1] * 9
    with pytest.raises(ValueError, match=message):
        read(photos)


def test_a_folder_without_a_readable_image_is_rejected(photos):
    for path in photos.glob("*/*"):
        path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"photos contains no readable image: .*ant/0.jpg is not a readable image"):
        read(photos, skip_damaged=True)


def test_a_class_without_a_readable_image_is_rejected(photos):
    for path in photos.glob("bee/*"):
        path.write_bytes(b"nothing")
    message = "class 'bee' of .*photos has no readable training image: add one"
    warned = pytest.warns(UserWarning, match="10 of 20 images cannot be read and are left out")
    with warned, pytest.raises(ValueError, match=message):
        read(photos, skip_damaged=True)


def test_a_class_with_one_image_is_rejected_before_anything_is_decoded(photos):
    (photos / "cat").mkdir()
    photo((50, 60), (0, 0, 0)).save(photos / "cat" / "0.png")
    message = "photos/cat must contain at least 2 images, got 1: add one, or remove the folder"
    with pytest.raises(ValueError, match=message):
        read(photos)
    assert sorted(path.name for path in photos.parent.iterdir()) == ["photos"]


# ---------------------------------------------------------------- crops on the device


def inputs_of(source):
    return Inputs(
        source.inputs, source.mean, source.std, torch.device("cpu"), torch.float32, image_size=source.image_size
    )


def test_evaluation_takes_the_centre(photos):
    source = read(photos, image_size=16)
    inputs = inputs_of(source)
    assert (inputs.sample_shape, source.inputs.shape[1]) == ((3, 16, 16), stored_size(16))
    expected = (source.inputs[[3, 5], 1:17, 1:17] / 255 - np.array(source.mean)) / np.array(source.std)
    np.testing.assert_allclose(inputs.clean(torch.tensor([3, 5])).permute(0, 2, 3, 1), expected, atol=1e-5)


def test_a_crop_of_the_whole_image_is_the_resized_image():
    images = torch.arange(2 * 3 * 16 * 16, dtype=torch.float32).view(2, 3, 16, 16)
    whole = torch.tensor([1.0, 1, 0, 0, 0, 0]).repeat(2, 1).T
    assert torch.allclose(augment.resample(images, whole, 16, rotates=False), images, atol=1e-2)
    whole[4] = 1
    assert torch.allclose(augment.resample(images, whole, 16, rotates=False), images.flip(3), atol=1e-2)
    whole[4], whole[5] = 0, np.pi / 2
    turned = augment.resample(images, whole, 16, rotates=True)
    assert torch.allclose(turned, images.rot90(1, (2, 3)), atol=1e-2) or torch.allclose(
        turned, images.rot90(-1, (2, 3)), atol=1e-2
    )


def test_a_crop_shows_its_part_of_the_image():
    image = torch.arange(16.0).view(1, 1, 1, 16).expand(1, 1, 16, 16)
    right_half = torch.tensor([[1.0], [0.5], [0], [0.5], [0], [0]])
    found = augment.resample(image, right_half, 8, rotates=False)
    assert torch.allclose(found[0, 0, 0], torch.arange(8.0, 16.0))


def test_crops_stay_inside_the_image_and_have_the_requested_area():
    draws = augment.draw(Augmentation(crop_scale=0.35), 5000, augment.generator(0))
    height, width, row, column, flipped, angle = draws
    assert (row.abs() + height <= 1 + 1e-6).all()
    assert (column.abs() + width <= 1 + 1e-6).all()
    area = height * width
    assert 0.3499 < float(area.min()) < 0.36
    assert 0.6 < float(area.mean()) < 0.7
    assert 0.75 - 1e-3 <= float((width / height).min()) < float((width / height).max()) <= 4 / 3 + 1e-3
    assert set(flipped.tolist()) == {0, 1}
    assert (angle == 0).all()
    whole = augment.draw(Augmentation(crop_scale=1.0, flip=False), 100, augment.generator(0))
    assert torch.equal(whole, torch.tensor([1.0, 1, 0, 0, 0, 0]).view(6, 1).expand(6, 100))


@pytest.mark.parametrize("value", [0, 1.5])
def test_the_crop_scale_is_a_share(value):
    with pytest.raises(ValueError, match=f"crop_scale must be greater than 0 and at most 1, got {value}"):
        Augmentation(crop_scale=value)


def test_batches_are_random_crops_that_depend_on_seed_and_epoch(photos):
    source = read(photos, image_size=16)
    inputs, labels = inputs_of(source), torch.from_numpy(source.labels)

    def batch(seed, epoch):
        loader = Loader(
            inputs, labels, (inputs, labels), batch_size=8, augmentation=Augmentation(crop_scale=0.35), cutmix=None,
            seed=seed,
        )  # fmt: skip
        loader.begin_epoch(epoch)
        return loader.batch(torch.zeros(1, dtype=torch.long), 8)

    one = batch(0, 1)
    assert one.x.shape == (8, 3, 16, 16)
    assert torch.equal(one.x, batch(0, 1).x)
    assert not torch.equal(one.x, batch(0, 2).x)
    assert not torch.equal(one.x, one.view(1))
    assert one.x.is_contiguous(memory_format=torch.channels_last)


# ---------------------------------------------------------------- colours


def test_color_jitter_multiplies_brightness_contrast_and_saturation():
    image = torch.tensor([[[[100.0, 50, 0], [0, 50, 100]]]]).repeat(4, 1, 1, 1)
    factors = torch.tensor([[1, 1, 1], [0.5, 1, 1], [1, 0, 1], [1, 1, 0]]).float().T
    same, darker, flat, grey = augment.jitter_colors(image, factors)
    assert torch.allclose(same, image[0])
    assert torch.allclose(darker, image[0] / 2)
    left, right = 0.299 * 100 + 0.587 * 50, 0.587 * 50 + 0.114 * 100
    assert torch.allclose(flat, torch.full_like(flat, (left + right) / 2))
    assert torch.allclose(grey, torch.tensor([[[left] * 3, [right] * 3]]))


def test_color_jitter_keeps_values_in_range_and_greyscale_images_grey():
    images = torch.rand(50, 4, 4, 1) * 255
    factors = augment.draw(Augmentation(color_jitter=1.0), 50, augment.generator(3))[4:]
    changed = augment.jitter_colors(images, factors)
    assert changed.shape == images.shape
    assert 0 <= float(changed.min()) <= float(changed.max()) <= 255


def test_without_color_jitter_the_other_draws_are_unchanged():
    for crop_scale in (None, 0.5):
        plain = augment.draw(Augmentation(crop_scale=crop_scale), 20, augment.generator(1))
        jittered = augment.draw(Augmentation(crop_scale=crop_scale, color_jitter=0.4), 20, augment.generator(1))
        assert torch.equal(jittered[:-3], plain)
        assert len(plain) == Augmentation(crop_scale=crop_scale).num_draws
        assert len(jittered) == Augmentation(crop_scale=crop_scale, color_jitter=0.4).num_draws
        assert float((jittered[-3:] - 1).abs().max()) <= 0.4
    with pytest.raises(ValueError, match="color_jitter must be between 0 and 1, got 2"):
        Augmentation(color_jitter=2)


def test_a_pixel_file_may_be_larger_than_the_memory(tmp_path):
    path, size = tmp_path / "pixels", 2**42
    with path.open("wb") as file:
        file.write(b"\1\2\3")
        try:
            file.truncate(size)
        except OSError:
            pytest.skip("the file system has no sparse files of this size")
    pixels = decoding.map_pixels(path, 1, (2**40, 2))
    assert pixels[0].tolist() == [2, 3]
    pixels[0] = 7
    with path.open("rb") as file:
        assert file.read(3) == b"\1\2\3"
