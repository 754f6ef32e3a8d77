import os
import re

import numpy as np
import pytest
from PIL import Image

from vista.data import decoding, load, tinyimagenet

WNIDS = ["n03", "n01", "n02"]


def write_image(path, value, mode="RGB", size=(64, 64)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode == "L" else (value, value, value)).save(path, "JPEG", quality=100)


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / tinyimagenet.FOLDER
    folder.mkdir()
    (folder / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    (folder / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn02\tbee\nn99\tunused\n")
    for number, wnid in enumerate(WNIDS):
        for image in range(2):
            value = 20 * number + 10 * image
            write_image(
                folder / "train" / wnid / "images" / f"{wnid}_{image}.JPEG", value, mode="RGB" if image else "L"
            )
    lines = ["val_1.JPEG\tn02\t0\t0\t9\t9", "val_0.JPEG\tn03\t0\t0\t9\t9"]
    for number in range(2):
        write_image(folder / "val" / "images" / f"val_{number}.JPEG", 200 + number)
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_the_official_layout(root):
    source = load("tinyimagenet", root)
    assert source.classes == ("goldfish", "bee", "n03")
    assert source.inputs.shape == (6, 64, 64, 3)
    assert source.labels.tolist() == [0, 0, 1, 1, 2, 2]
    np.testing.assert_allclose(source.inputs[:, 5, 5, 1].astype(int), [20, 30, 40, 50, 0, 10], atol=2)
    np.testing.assert_allclose(source.test_inputs[:, 5, 5, 1].astype(int), [201, 200], atol=0)
    assert source.test_labels.tolist() == [1, 2]
    assert isinstance(source.inputs, np.memmap)
    assert source.is_image


def never(*args):
    raise AssertionError("decoded again")


def test_images_are_decoded_once(root, monkeypatch):
    first = load("tinyimagenet", root)
    assert sorted(path.name for path in root.iterdir()) == ["tiny-imagenet-200", "tiny-imagenet-200.pixels"]
    monkeypatch.setattr(decoding, "decode", never)
    assert np.array_equal(load("tinyimagenet", root).test_inputs, first.test_inputs)


def test_changing_the_array_does_not_change_the_cache(root):
    load("tinyimagenet", root).inputs[:] = 77
    assert load("tinyimagenet", root).inputs[0, 0, 0, 0] < 30


@pytest.mark.parametrize("change", ["new image", "touched", "truncated cache", "foreign cache", "other version"])
def test_changed_images_or_cache_are_decoded_again(root, monkeypatch, change):
    load("tinyimagenet", root)
    image = root / "tiny-imagenet-200" / "train" / "n01" / "images" / "n01_0.JPEG"
    cache = root / "tiny-imagenet-200.pixels"
    if change == "new image":
        write_image(image, 99)
    elif change == "touched":
        os.utime(image, ns=(1, 1))
    elif change == "truncated cache":
        os.truncate(cache, 5000)
    elif change == "foreign cache":
        cache.write_bytes(b"x" * cache.stat().st_size)
    else:
        monkeypatch.setattr(decoding, "VERSION", decoding.VERSION - 1)
    with monkeypatch.context() as patch:
        patch.setattr(decoding, "decode", never)
        with pytest.raises(AssertionError, match="decoded again"):
            load("tinyimagenet", root)
    value = load("tinyimagenet", root).inputs[0, 0, 0, 0]
    assert abs(int(value) - (99 if change == "new image" else 20)) <= 2


def test_a_failed_decoding_leaves_no_files(root):
    write_image(root / "tiny-imagenet-200" / "val" / "images" / "val_0.JPEG", 1, size=(64, 63))
    with pytest.raises(ValueError, match=re.escape("val_0.JPEG must have 64 x 64 pixels, got 64 x 63")):
        load("tinyimagenet", root)
    assert [path.name for path in root.iterdir()] == ["tiny-imagenet-200"]


def test_a_full_disk_leaves_no_files_and_reports_the_size_needed(root, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=re.escape(f"({4096 + 8 * 64 * 64 * 3:,} bytes) to")):
        load("tinyimagenet", root)
    assert [path.name for path in root.iterdir()] == ["tiny-imagenet-200"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("val_0.JPEG\tn77\t0", "line 1: class 'n77' is not in wnids.txt"),
        ("val_7.JPEG\tn01\t0", "line 1: image 'val_7.JPEG' is not in val/images"),
        ("../images/val_0.JPEG\tn01\t0", "line 1: image '../images/val_0.JPEG' is not in val/images"),
        ("", "lists no images"),
    ],
)
def test_errors_name_the_wrong_annotation(root, line, message):
    (root / "tiny-imagenet-200" / "val" / "val_annotations.txt").write_text(line + "\n")
    with pytest.raises(ValueError, match=re.escape(message)):
        load("tinyimagenet", root)


def test_errors_name_missing_files(root):
    folder = root / "tiny-imagenet-200"
    for image in (folder / "train" / "n02" / "images").iterdir():
        image.unlink()
    with pytest.raises(FileNotFoundError, match="images contains no images"):
        load("tinyimagenet", root)
    (folder / "wnids.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"wnids\.txt is missing"):
        load("tinyimagenet", root)
