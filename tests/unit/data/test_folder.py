import os
import re

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageOps

from vista.data import folder, load
from vista.data.decoding import decode


def write_image(path, value, size=(8, 6), mode="RGB"):
    """Write an image of one colour, whose first pixel value identifies it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode in ("L", "I;16") else (value, 0, 0)).save(path)


def tree(root, parts=("train", "test"), classes=("cat", "ant", "bee"), count=5, **options):
    value = 0
    for part in parts:
        for name in classes:
            for number in range(count):
                write_image(root / part / name / f"{number}.png", value, **options)
                value += 1
    return f"folder:{root}"


def test_classes_and_files_are_sorted_by_name(tmp_path):
    name = tree(tmp_path)
    (tmp_path / "train" / "ant" / "notes.txt").write_text("no image")
    (tmp_path / "train" / ".hidden").mkdir()
    source = load(name)
    assert source.classes == ("ant", "bee", "cat")
    assert source.inputs.shape == (15, 6, 8, 3)
    assert source.inputs.dtype == np.uint8
    assert source.inputs[:, 0, 0, 0].tolist() == [*range(5, 15), *range(5)]
    assert source.test_inputs[:, 0, 0, 0].tolist() == [*range(20, 30), *range(15, 20)]
    assert source.labels.tolist() == source.test_labels.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    assert source.padding == 0
    np.testing.assert_allclose(source.mean, source.inputs.mean((0, 1, 2)) / 255)


def test_greyscale_images_have_one_channel_unless_one_is_coloured(tmp_path):
    name = tree(tmp_path, mode="L", size=(32, 32))
    assert load(name).inputs.shape == (15, 32, 32, 1)
    assert load(name).padding == 4
    write_image(tmp_path / "test" / "bee" / "9.jpg", 3, size=(32, 32))
    assert load(name).inputs.shape == (15, 32, 32, 3)


def test_without_parts_a_fixed_stratified_fifth_is_held_out(tmp_path):
    name = tree(tmp_path, parts=("",), count=10)
    one, two = load(name), load(name)
    assert one.test_labels.tolist() == [0, 0, 1, 1, 2, 2]
    values = [*one.inputs[one.train_ids][:, 0, 0, 0], *one.test_samples()[:, 0, 0, 0]]
    assert sorted(values) == list(range(30))
    label_of_value = [2] * 10 + [0] * 10 + [1] * 10
    assert [label_of_value[v] for v in values] == [*one.labels[one.train_ids], *one.test_labels]
    assert np.array_equal(one.test_ids, two.test_ids)


def test_test_labels_refer_to_the_training_classes(tmp_path):
    tree(tmp_path, parts=("train",))
    name = tree(tmp_path, parts=("test",), classes=("cat",))
    assert load(name).test_labels.tolist() == [2] * 5


def test_images_are_decoded_once_until_one_changes(tmp_path, monkeypatch):
    name, decoded = tree(tmp_path), []
    monkeypatch.setattr(folder, "decode", lambda files, shape: decoded.append(len(files)) or decode(files, shape))
    first = load(name)
    assert load(name).inputs_hash == first.inputs_hash
    assert decoded == [30]
    write_image(tmp_path / "train" / "ant" / "3.png", 99)
    assert load(name).inputs[3, 0, 0, 0] == 99
    (tmp_path / "test" / "bee" / "4.png").unlink()
    assert len(load(name).test_inputs) == 14
    assert decoded == [30, 30, 29]


def test_more_than_the_memory_limit_is_mapped_from_a_file_next_to_the_folder(tmp_path, monkeypatch):
    name = tree(tmp_path / "photos")
    kept = load(name)
    monkeypatch.setattr(folder, "_IN_MEMORY", 0)
    mapped = load(name)
    assert isinstance(mapped.inputs, np.memmap)
    assert np.array_equal(mapped.inputs, kept.inputs)
    assert np.array_equal(mapped.test_inputs, kept.test_inputs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos", "photos.pixels"]


def distinct_pixels(width, height):
    """An image in which every pixel has another colour."""
    values = np.arange(width * height * 3).reshape(height, width, 3)
    return Image.fromarray((values * 255 // values.max()).astype(np.uint8))


@pytest.mark.parametrize("mapped", [False, True], ids=["in memory", "mapped"])
@pytest.mark.parametrize("suffix", ["png", "webp", "jpg", "tiff"])
def test_exif_orientation_is_applied(tmp_path, monkeypatch, suffix, mapped):
    """Each of the eight orientations, next to upright images."""
    name, shown = tree(tmp_path / "photos"), []
    monkeypatch.setattr(folder, "_IN_MEMORY", 0 if mapped else folder._IN_MEMORY)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation
        path = tmp_path / "photos" / "train" / "ant" / f"orientation{orientation}.{suffix}"
        distinct_pixels(*((8, 6) if orientation < 5 else (6, 8))).save(path, exif=exif)
        with Image.open(path) as image:
            shown.append(np.asarray(ImageOps.exif_transpose(image).convert("RGB")))
    read = load(name).inputs[5:13]
    assert read.shape == (8, 6, 8, 3)
    assert np.array_equal(read, np.stack(shown))
    assert len({image.tobytes() for image in read[:4]}) == 4


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow warns about it
@pytest.mark.parametrize("exif", [b"", b"II*", b"not exif", b"II*\0\x08\0\0\0\xff\xff", b"II*\0\xff\xff\xff\xff"])
def test_corrupt_exif_data_is_ignored(tmp_path, exif):
    name, path = tree(tmp_path), tmp_path / "train" / "ant" / "0.png"
    distinct_pixels(8, 6).save(path, exif=b"Exif\0\0" + exif)
    assert np.array_equal(load(name).inputs[0], np.asarray(distinct_pixels(8, 6)))


@pytest.mark.parametrize("kind", ["a channel", "a channel beside grey", "a colour", "a colour of a palette"])
def test_transparent_pixels_are_white(tmp_path, kind):
    """Whatever colour the transparent pixels have."""
    name, path = tree(tmp_path), tmp_path / "train" / "ant" / "0.png"
    image = Image.new("RGBA", (8, 6), (200, 10, 30, 0))
    image.paste((20, 20, 20, 255), (0, 0, 8, 3))
    if kind == "a channel":
        image.save(path)
    elif kind == "a channel beside grey":
        image.convert("LA").save(path)
    elif kind == "a colour":
        image.convert("RGB").save(path, transparency=(200, 10, 30))
    else:
        few = image.convert("RGB").quantize(2)
        few.save(path, transparency=few.getpixel((0, 5)))
    expected = np.full((6, 8, 3), 255)
    expected[:3] = 20
    assert np.array_equal(load(name).inputs[0], expected)


def test_partly_transparent_pixels_are_blended_with_white_and_opaque_ones_kept(tmp_path):
    name, value = tree(tmp_path), Image.new("RGBA", (8, 6), (0, 100, 200, 51))
    value.save(tmp_path / "train" / "ant" / "0.png")
    distinct_pixels(8, 6).convert("RGBA").save(tmp_path / "train" / "ant" / "1.png")
    read = load(name).inputs
    assert (read[0] == [204, 224, 244]).all(), "a fifth of the colour, four fifths white"
    assert np.array_equal(read[1], np.asarray(distinct_pixels(8, 6)))


def test_greyscale_images_with_a_transparent_shade_have_one_channel(tmp_path):
    name = tree(tmp_path, mode="L")
    Image.new("L", (8, 6), 7).save(tmp_path / "train" / "ant" / "0.png", transparency=7)
    read = load(name).inputs
    assert read.shape == (15, 6, 8, 1)
    assert (read[0] == 255).all()


def test_errors_name_an_image_of_another_size_where_one_size_is_needed(tmp_path):
    write_image(tmp_path / "2.png", 0)
    write_image(tmp_path / "3.png", 0, size=(9, 6))
    with pytest.raises(ValueError, match=r"3\.png must have 8 x 6 pixels like .*, got 9 x 6"):
        folder.read_images(tmp_path, 3)


@pytest.mark.parametrize("content", [b"", b"not an image", None])
def test_errors_name_a_corrupt_image(tmp_path, content):
    name = tree(tmp_path, size=(64, 64))
    path = tmp_path / "test" / "ant" / "2.png"
    path.write_bytes(path.read_bytes()[:-30] if content is None else content)
    with pytest.raises(ValueError, match=re.escape("test/ant/2.png is not a readable image")):
        load(name)


def test_errors_name_an_image_above_the_pixel_limit(tmp_path, monkeypatch):
    name = tree(tmp_path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(
        ValueError, match=re.escape(".png is not a readable image: it has 48 pixels, but at most 20 are read")
    ):
        load(name)


def test_images_of_16_bits_are_reduced_to_8(tmp_path):
    name = tree(tmp_path)
    write_image(tmp_path / "train" / "ant" / "0.png", 700, mode="I;16")
    assert (load(name).inputs[0] == 700 >> 8).all()


def test_images_of_floats_are_rejected(tmp_path):
    name = tree(tmp_path)
    Image.new("F", (8, 6), 0.5).save(tmp_path / "train" / "ant" / "0.tiff")
    message = "ant/0.tiff must have 8 or 16 bits per channel, got an image of mode F; save it as PNG"
    with pytest.raises(ValueError, match=re.escape(message)):
        load(name)


def test_errors_name_what_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load(f"folder:{tmp_path / 'no'}")
    with pytest.raises(ValueError, match="contains no class folders: put the images of each class into a folder"):
        load(f"folder:{tmp_path}")
    name = tree(tmp_path, parts=("train",))
    with pytest.raises(FileNotFoundError, match="has train/ but no test/"):
        load(name)
    tree(tmp_path, parts=("test",), classes=("ant", "yak"))
    with pytest.raises(ValueError, match=re.escape("test/yak is a class that")):
        load(name)
    (tmp_path / "train" / "zebra").mkdir()
    with pytest.raises(ValueError, match=re.escape("train/zebra contains no images")):
        load(name)
    with pytest.raises(ValueError, match=r"must have at least 2 class folders, got 1 \(ant\)"):
        load(tree(tmp_path / "one", classes=("ant",)))


def test_a_wrong_path_names_the_remedy(tmp_path):
    tree(tmp_path / "photos")
    with pytest.raises(FileNotFoundError, match="photo does not exist; did you mean 'photos'"):
        load(f"folder:{tmp_path / 'photo'}")
    image = next((tmp_path / "photos").rglob("*.png"))
    with pytest.raises(FileNotFoundError, match="is a file, but folder: needs the folder that contains the class"):
        load(f"folder:{image}")
    with pytest.raises(ValueError, match=r"contains no class folders, but \d images?: put .* --image-column NAME"):
        load(f"folder:{image.parent}")


@pytest.mark.parametrize("target", ["a file", "a class", "a part"])
def test_a_link_out_of_the_folder_is_rejected(tmp_path, target):
    name = tree(tmp_path / "data")
    write_image(tmp_path / "secret" / "x.png", 1)
    if target == "a file":
        os.symlink(tmp_path / "secret" / "x.png", tmp_path / "data" / "train" / "ant" / "x.png")
    elif target == "a part":
        os.renames(tmp_path / "data" / "train", tmp_path / "secret" / "train")
        os.symlink(tmp_path / "secret" / "train", tmp_path / "data" / "train")
    else:
        os.symlink(tmp_path / "secret", tmp_path / "data" / "train" / "secret")
    with pytest.raises(ValueError, match=r"links to .*secret.*, outside of"):
        load(name)


def test_images_in_subfolders_belong_to_the_class_folder(tmp_path):
    name = tree(tmp_path)
    write_image(tmp_path / "train" / "bee" / "3" / "deep" / "x.png", 77)
    os.symlink("..", tmp_path / "train" / "bee" / "up")
    source = load(name)
    assert source.labels.tolist() == [0] * 5 + [1] * 6 + [2] * 5
    assert source.inputs[:, 0, 0, 0].tolist() == [*range(5, 13), 77, *range(13, 15), *range(5)]
    assert source.files[7:10] == ("train/bee/2.png", "train/bee/3/deep/x.png", "train/bee/3.png")
    assert source.test_files[:2] == ("test/ant/0.png", "test/ant/1.png")


def test_uppercase_file_suffixes_are_recognised(tmp_path):
    name = tree(tmp_path)
    write_image(tmp_path / "train" / "ant" / "IMG.PNG", 99)
    source = load(name)
    assert source.files[5] == "train/ant/IMG.PNG"
    assert source.inputs[5, 0, 0, 0] == 99


@pytest.mark.parametrize(("requested", "mode", "channels"), [(1, "RGB", 1), (3, "L", 3), (4, "RGB", 3), (0, "L", 1)])
def test_read_images_converts_to_one_or_three_channels(tmp_path, requested, mode, channels):
    write_image(tmp_path / "0.png", 7, mode=mode)
    assert folder.read_images(tmp_path, requested)[1].shape == (1, 6, 8, channels)


def test_dangling_links_are_ignored(tmp_path):
    name = tree(tmp_path)
    os.symlink("gone.png", tmp_path / "train" / "ant" / "x.png")
    assert len(load(name).labels) == 15


def test_names_that_are_not_utf8_get_replacement_characters(tmp_path):
    name = tree(tmp_path)
    write_image(tmp_path / "train" / os.fsdecode(b"z\xff") / os.fsdecode(b"\xfe.png"), 99)
    source = load(name)
    assert source.classes == ("ant", "bee", "cat", "z\ufffd")
    assert source.files[15] == "train/z\ufffd/\ufffd.png"
    assert source.inputs[15, 0, 0, 0] == 99


@pytest.mark.parametrize("part", ["val", "valid", "validation"])
def test_validation_samples_follow_training_samples(tmp_path, part):
    name = tree(tmp_path)
    alone = load(name)
    assert alone.validation is None
    for number, label in enumerate(("cat", "bee", "bee")):
        write_image(tmp_path / part / label / f"{number}.png", 200 + number)
    source = load(name)
    assert source.validation.tolist() == [15, 16, 17]
    assert source.train_ids.tolist() == list(range(15))
    assert source.inputs[15:, 0, 0, 0].tolist() == [201, 202, 200]
    assert source.labels[15:].tolist() == [1, 1, 2]
    assert source.files[15:] == (f"{part}/bee/1.png", f"{part}/bee/2.png", f"{part}/cat/0.png")
    assert np.array_equal(source.inputs[:15], alone.inputs)
    assert np.array_equal(source.test_inputs, alone.test_inputs)
    assert source.test_files == alone.test_files
    assert (source.mean, source.std) == (alone.mean, alone.std), "validation images do not affect the normalisation"


@pytest.mark.parametrize("broken", ["val/.hidden", "val/dog/0.png", "valid/cat/0.png"])
def test_validation_folders_are_ignored_if_they_are_not_used(tmp_path, broken):
    name = tree(tmp_path)
    alone = load(name)
    write_image(tmp_path / "val" / "cat" / "0.png", 200)
    (write_image(tmp_path / broken, 200) if broken.endswith("png") else (tmp_path / broken).mkdir())
    source = load(name, own_validation=False)
    assert source.validation is None
    assert (source.inputs_hash, source.files) == (alone.inputs_hash, alone.files)


def test_the_validation_folder_may_have_one_class(tmp_path):
    name = tree(tmp_path)
    write_image(tmp_path / "val" / "cat" / "0.png", 200)
    assert load(name).labels[load(name).validation].tolist() == [2]


def test_a_class_folder_called_val_is_a_class(tmp_path):
    source = load(tree(tmp_path, parts=("",), classes=("val", "ant")))
    assert (source.classes, source.validation) == (("ant", "val"), None)


def test_errors_name_an_invalid_validation_folder(tmp_path):
    name = tree(tmp_path, parts=("train",))
    write_image(tmp_path / "val" / "cat" / "0.png", 200)
    message = "has train/ and val/ but no test/; use train/ and test/, or class folders alone; if val/ is"
    with pytest.raises(FileNotFoundError, match=re.escape(message)):
        load(name)
    (tmp_path / "train").rename(tmp_path / "test")
    with pytest.raises(FileNotFoundError, match=r"has test/ and val/ but no train/; .* class folders alone$"):
        load(name)
    tree(tmp_path, parts=("train",))
    write_image(tmp_path / "val" / "dog" / "0.png", 201)
    with pytest.raises(ValueError, match=r"val.dog is a class that .*train does not have"):
        load(name)
    write_image(tmp_path / "valid" / "cat" / "0.png", 201)
    with pytest.raises(ValueError, match="must have one validation folder, got val/ and valid/"):
        load(name)


def test_links_inside_the_folder_and_a_linked_folder_are_followed(tmp_path):
    tree(tmp_path / "data")
    os.symlink("0.png", tmp_path / "data" / "train" / "ant" / "x.png")
    os.symlink("data", tmp_path / "link")
    assert len(load(f"folder:{tmp_path / 'link'}").labels) == 16
