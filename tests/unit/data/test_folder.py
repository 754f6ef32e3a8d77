import os
import re

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageOps

from vista.data import folder, load
from vista.data.pixels import decode


def picture(path, value, size=(8, 6), mode="RGB"):
    """A picture of one colour, whose first pixel value says which one it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode in ("L", "I;16") else (value, 0, 0)).save(path)


def tree(root, parts=("train", "test"), classes=("cat", "ant", "bee"), count=5, **options):
    value = 0
    for part in parts:
        for name in classes:
            for number in range(count):
                picture(root / part / name / f"{number}.png", value, **options)
                value += 1
    return f"folder:{root}"


def test_classes_and_files_are_in_the_order_of_their_names(tmp_path):
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


def test_grey_pictures_have_one_channel_unless_one_is_coloured(tmp_path):
    name = tree(tmp_path, mode="L", size=(32, 32))
    assert load(name).inputs.shape == (15, 32, 32, 1)
    assert load(name).padding == 4
    picture(tmp_path / "test" / "bee" / "9.jpg", 3, size=(32, 32))
    assert load(name).inputs.shape == (15, 32, 32, 3)


def test_without_parts_a_fixed_stratified_fifth_is_held_out(tmp_path):
    name = tree(tmp_path, parts=("",), count=10)
    one, two = load(name), load(name)
    assert one.test_labels.tolist() == [0, 0, 1, 1, 2, 2]
    values = [*one.inputs[one.for_training][:, 0, 0, 0], *one.test_samples()[:, 0, 0, 0]]
    assert sorted(values) == list(range(30))
    label_of_value = [2] * 10 + [0] * 10 + [1] * 10
    assert [label_of_value[v] for v in values] == [*one.labels[one.for_training], *one.test_labels]
    assert np.array_equal(one.set_aside, two.set_aside)


def test_test_labels_are_those_of_the_training_classes(tmp_path):
    tree(tmp_path, parts=("train",))
    name = tree(tmp_path, parts=("test",), classes=("cat",))
    assert load(name).test_labels.tolist() == [2] * 5


def test_pictures_are_decoded_once_until_one_changes(tmp_path, monkeypatch):
    name, decoded = tree(tmp_path), []
    monkeypatch.setattr(folder, "decode", lambda files, shape: decoded.append(len(files)) or decode(files, shape))
    first = load(name)
    assert load(name).inputs_hash == first.inputs_hash
    assert decoded == [30]
    picture(tmp_path / "train" / "ant" / "3.png", 99)
    assert load(name).inputs[3, 0, 0, 0] == 99
    (tmp_path / "test" / "bee" / "4.png").unlink()
    assert len(load(name).test_inputs) == 14
    assert decoded == [30, 30, 29]


def test_more_than_fits_is_mapped_from_a_file_beside_the_folder(tmp_path, monkeypatch):
    name = tree(tmp_path / "pictures")
    kept = load(name)
    monkeypatch.setattr(folder, "_IN_MEMORY", 0)
    mapped = load(name)
    assert isinstance(mapped.inputs, np.memmap)
    assert np.array_equal(mapped.inputs, kept.inputs)
    assert np.array_equal(mapped.test_inputs, kept.test_inputs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pictures", "pictures.pixels"]


def drawn(width, height):
    """Every pixel its own colour."""
    values = np.arange(width * height * 3).reshape(height, width, 3)
    return Image.fromarray((values * 255 // values.max()).astype(np.uint8))


@pytest.mark.parametrize("mapped", [False, True], ids=["in memory", "mapped"])
@pytest.mark.parametrize("suffix", ["png", "webp", "jpg", "tiff"])
def test_pictures_are_turned_as_a_viewer_shows_them(tmp_path, monkeypatch, suffix, mapped):
    """One way of lying after another, beside a picture that lies as it is shown."""
    name, shown = tree(tmp_path / "pictures"), []
    monkeypatch.setattr(folder, "_IN_MEMORY", 0 if mapped else folder._IN_MEMORY)
    for way in range(1, 9):
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = way
        path = tmp_path / "pictures" / "train" / "ant" / f"way{way}.{suffix}"
        drawn(*((8, 6) if way < 5 else (6, 8))).save(path, exif=exif)
        with Image.open(path) as image:
            shown.append(np.asarray(ImageOps.exif_transpose(image).convert("RGB")))
    read = load(name).inputs[5:13]
    assert read.shape == (8, 6, 8, 3)
    assert np.array_equal(read, np.stack(shown))
    assert len({picture.tobytes() for picture in read[:4]}) == 4


def test_a_picture_that_is_turned_to_another_size_is_named(tmp_path):
    name, exif = tree(tmp_path), Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    drawn(8, 6).save(tmp_path / "train" / "bee" / "3.png", exif=exif)
    with pytest.raises(ValueError, match=re.escape("train/bee/3.png has 6 x 8 pixels, but")):
        load(name)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of Pillow, which tells of it
@pytest.mark.parametrize("note", [b"", b"II*", b"no such note", b"II*\0\x08\0\0\0\xff\xff", b"II*\0\xff\xff\xff\xff"])
def test_a_picture_whose_notes_are_broken_is_read_as_it_lies(tmp_path, note):
    name, path = tree(tmp_path), tmp_path / "train" / "ant" / "0.png"
    drawn(8, 6).save(path, exif=b"Exif\0\0" + note)
    assert np.array_equal(load(name).inputs[0], np.asarray(drawn(8, 6)))


@pytest.mark.parametrize("kind", ["a channel", "a channel beside grey", "a colour", "a colour of a palette"])
def test_what_is_transparent_is_white(tmp_path, kind):
    """Whatever colour lies hidden there."""
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


def test_what_is_half_transparent_is_mixed_with_white_and_what_is_opaque_stays(tmp_path):
    name, value = tree(tmp_path), Image.new("RGBA", (8, 6), (0, 100, 200, 51))
    value.save(tmp_path / "train" / "ant" / "0.png")
    drawn(8, 6).convert("RGBA").save(tmp_path / "train" / "ant" / "1.png")
    read = load(name).inputs
    assert (read[0] == [204, 224, 244]).all(), "a fifth of it, four of white"
    assert np.array_equal(read[1], np.asarray(drawn(8, 6)))


def test_grey_pictures_with_a_transparent_shade_have_one_channel(tmp_path):
    name = tree(tmp_path, mode="L")
    Image.new("L", (8, 6), 7).save(tmp_path / "train" / "ant" / "0.png", transparency=7)
    read = load(name).inputs
    assert read.shape == (15, 6, 8, 1)
    assert (read[0] == 255).all()


def test_a_picture_of_another_size_is_named(tmp_path):
    name = tree(tmp_path)
    picture(tmp_path / "train" / "bee" / "3.png", 0, size=(9, 6))
    with pytest.raises(ValueError, match=re.escape("train/bee/3.png has 9 x 6 pixels, but")):
        load(name)


@pytest.mark.parametrize("content", [b"", b"no picture", None])
def test_a_broken_picture_is_named(tmp_path, content):
    name = tree(tmp_path, size=(64, 64))
    path = tmp_path / "test" / "ant" / "2.png"
    path.write_bytes(path.read_bytes()[:-30] if content is None else content)
    with pytest.raises(ValueError, match=re.escape("test/ant/2.png is no readable image")):
        load(name)


def test_a_picture_too_large_to_be_one_is_named(tmp_path, monkeypatch):
    name = tree(tmp_path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(ValueError, match=re.escape(".png is no readable image: Image size")):
        load(name)


def test_a_picture_of_16_bits_is_refused(tmp_path):
    name = tree(tmp_path)
    picture(tmp_path / "train" / "ant" / "0.png", 700, mode="I;16")
    with pytest.raises(ValueError, match=re.escape("train/ant/0.png is an image of mode I;16")):
        load(name)


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load(f"folder:{tmp_path / 'no'}")
    with pytest.raises(ValueError, match="holds no class folders"):
        load(f"folder:{tmp_path}")
    name = tree(tmp_path, parts=("train",))
    with pytest.raises(FileNotFoundError, match="has train/ but no test/"):
        load(name)
    tree(tmp_path, parts=("test",), classes=("ant", "yak"))
    with pytest.raises(ValueError, match=re.escape("test/yak is a class that")):
        load(name)
    (tmp_path / "train" / "zebra").mkdir()
    with pytest.raises(ValueError, match=re.escape("train/zebra holds no image")):
        load(name)
    with pytest.raises(ValueError, match=r"holds one class only \(ant\)"):
        load(tree(tmp_path / "one", classes=("ant",)))


@pytest.mark.parametrize("target", ["a file", "a class"])
def test_a_link_that_leaves_the_folder_is_refused(tmp_path, target):
    name = tree(tmp_path / "data")
    picture(tmp_path / "secret" / "x.png", 1)
    if target == "a file":
        os.symlink(tmp_path / "secret" / "x.png", tmp_path / "data" / "train" / "ant" / "x.png")
    else:
        os.symlink(tmp_path / "secret", tmp_path / "data" / "train" / "secret")
    with pytest.raises(ValueError, match=r"leads to .*secret.*, outside of"):
        load(name)


def test_pictures_deeper_in_a_class_folder_are_of_that_class(tmp_path):
    name = tree(tmp_path)
    picture(tmp_path / "train" / "bee" / "3" / "deep" / "x.png", 77)
    os.symlink("..", tmp_path / "train" / "bee" / "up")
    source = load(name)
    assert source.labels.tolist() == [0] * 5 + [1] * 6 + [2] * 5
    assert source.inputs[:, 0, 0, 0].tolist() == [*range(5, 13), 77, *range(13, 15), *range(5)]
    assert source.files[7:10] == ("train/bee/2.png", "train/bee/3/deep/x.png", "train/bee/3.png")
    assert source.test_files[:2] == ("test/ant/0.png", "test/ant/1.png")


def test_a_picture_is_known_by_its_ending_in_capitals_too(tmp_path):
    name = tree(tmp_path)
    picture(tmp_path / "train" / "ant" / "IMG.PNG", 99)
    source = load(name)
    assert source.files[5] == "train/ant/IMG.PNG"
    assert source.inputs[5, 0, 0, 0] == 99


@pytest.mark.parametrize(("asked", "mode", "channels"), [(1, "RGB", 1), (3, "L", 3), (4, "RGB", 3), (0, "L", 1)])
def test_new_pictures_have_the_channels_asked_for_if_pictures_can_have_so_many(tmp_path, asked, mode, channels):
    picture(tmp_path / "0.png", 7, mode=mode)
    assert folder.pictures(tmp_path, asked)[1].shape == (1, 6, 8, channels)


def test_what_is_no_file_is_no_picture(tmp_path):
    name = tree(tmp_path)
    os.symlink("gone.png", tmp_path / "train" / "ant" / "x.png")
    assert len(load(name).labels) == 15


def test_names_that_are_no_text_are_shown_as_far_as_they_are(tmp_path):
    name = tree(tmp_path)
    picture(tmp_path / "train" / os.fsdecode(b"z\xff") / os.fsdecode(b"\xfe.png"), 99)
    source = load(name)
    assert source.classes == ("ant", "bee", "cat", "z\ufffd")
    assert source.files[15] == "train/z\ufffd/\ufffd.png"
    assert source.inputs[15, 0, 0, 0] == 99


@pytest.mark.parametrize("part", ["val", "valid", "validation"])
def test_a_part_for_validation_comes_after_that_for_training(tmp_path, part):
    name = tree(tmp_path)
    alone = load(name)
    assert alone.validation is None
    for number, label in enumerate(("cat", "bee", "bee")):
        picture(tmp_path / part / label / f"{number}.png", 200 + number)
    source = load(name)
    assert source.validation.tolist() == [15, 16, 17]
    assert source.for_training.tolist() == list(range(15))
    assert source.inputs[15:, 0, 0, 0].tolist() == [201, 202, 200]
    assert source.labels[15:].tolist() == [1, 1, 2]
    assert source.files[15:] == (f"{part}/bee/1.png", f"{part}/bee/2.png", f"{part}/cat/0.png")
    assert np.array_equal(source.inputs[:15], alone.inputs)
    assert np.array_equal(source.test_inputs, alone.test_inputs)
    assert source.test_files == alone.test_files
    assert (source.mean, source.std) == (alone.mean, alone.std), "it has no say in how pictures are normalised"


@pytest.mark.parametrize("broken", ["val/.hidden", "val/dog/0.png", "valid/cat/0.png"])
def test_whoever_does_not_want_it_may_have_any_part_for_validation(tmp_path, broken):
    name = tree(tmp_path)
    alone = load(name)
    picture(tmp_path / "val" / "cat" / "0.png", 200)
    (picture(tmp_path / broken, 200) if broken.endswith("png") else (tmp_path / broken).mkdir())
    source = load(name, own_validation=False)
    assert source.validation is None
    assert (source.inputs_hash, source.files) == (alone.inputs_hash, alone.files)


def test_one_class_may_be_all_there_is_for_validation(tmp_path):
    name = tree(tmp_path)
    picture(tmp_path / "val" / "cat" / "0.png", 200)
    assert load(name).labels[load(name).validation].tolist() == [2]


def test_a_class_folder_called_val_is_a_class(tmp_path):
    source = load(tree(tmp_path, parts=("",), classes=("val", "ant")))
    assert (source.classes, source.validation) == (("ant", "val"), None)


def test_a_part_for_validation_that_cannot_be_read_is_named(tmp_path):
    name = tree(tmp_path, parts=("train",))
    picture(tmp_path / "val" / "cat" / "0.png", 200)
    message = "has train/ and val/ but no test/; it needs train/ and test/, or class folders alone; if val/ is"
    with pytest.raises(FileNotFoundError, match=re.escape(message)):
        load(name)
    (tmp_path / "train").rename(tmp_path / "test")
    with pytest.raises(FileNotFoundError, match=r"has test/ and val/ but no train/; .* class folders alone$"):
        load(name)
    tree(tmp_path, parts=("train",))
    picture(tmp_path / "val" / "dog" / "0.png", 201)
    with pytest.raises(ValueError, match=r"val.dog is a class that .*train does not have"):
        load(name)
    picture(tmp_path / "valid" / "cat" / "0.png", 201)
    with pytest.raises(ValueError, match="has val/ and valid/: which one is for validation"):
        load(name)


def test_a_link_inside_the_folder_and_a_linked_folder_are_fine(tmp_path):
    tree(tmp_path / "data")
    os.symlink("0.png", tmp_path / "data" / "train" / "ant" / "x.png")
    os.symlink("data", tmp_path / "link")
    assert len(load(f"folder:{tmp_path / 'link'}").labels) == 16
