import re

import numpy as np
import pytest

from vista.data import load

IMAGES = np.arange(12 * 8 * 8 * 3).astype(np.uint8).reshape(12, 8, 8, 3)
FEATURES = np.linspace(-1, 1, 12 * 5).reshape(12, 5)
LABELS = np.arange(12) % 3
MATCH = "must match x_train (uint8 of shape (12, 8, 8, 3)), got"


def with_value(row, value):
    features = FEATURES.copy()
    features[row, 2] = value
    return features


def save(path, **arrays):
    np.savez(path, **arrays)
    return f"npz:{path}"


def split(**changed):
    arrays = {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES[:6], "y_test": LABELS[:6]}
    return {**arrays, **changed}


def test_images(tmp_path):
    source = load(save(tmp_path / "d.npz", **split()))
    assert np.array_equal(source.inputs, IMAGES)
    assert np.array_equal(source.test_labels, LABELS[:6])
    assert source.labels.dtype == np.int64
    assert (source.num_classes, source.classes, source.is_image) == (3, ("0", "1", "2"), True)
    assert source.padding == 1
    np.testing.assert_allclose(source.mean, IMAGES.mean((0, 1, 2)) / 255)
    np.testing.assert_allclose(source.std, IMAGES.std((0, 1, 2)) / 255)


def test_images_without_channels_get_one(tmp_path):
    source = load(
        save(
            tmp_path / "d.npz",
            **split(x_train=np.full((12, 40, 40), 9, np.uint8), x_test=np.zeros((6, 40, 40), np.uint8)),
        )
    )
    assert source.test_inputs.shape == (6, 40, 40, 1)
    assert source.std == (1.0,)
    assert source.padding == 4


def test_four_channels_are_not_mistaken_for_a_width(tmp_path):
    source = load(
        save(
            tmp_path / "d.npz",
            **split(x_train=np.zeros((12, 3, 9, 4), np.uint8), x_test=np.zeros((6, 3, 9, 4), np.uint8)),
        )
    )
    assert source.inputs.shape == (12, 3, 9, 4)


def test_x_and_y_are_ignored_if_all_four_arrays_are_present(tmp_path):
    source = load(save(tmp_path / "d.npz", **split(), x=IMAGES[:3], y=LABELS[:3]))
    assert (len(source.labels), len(source.test_labels), source.test_ids) == (12, 6, None)


def test_features_become_float32_without_augmentation(tmp_path):
    source = load(save(tmp_path / "d.npz", **split(x_train=FEATURES, x_test=FEATURES[:6])))
    assert source.inputs.dtype == source.test_inputs.dtype == np.float32
    assert (source.is_image, source.flip, source.padding, source.mean, source.std) == (False, False, 0, (), ())


def test_without_a_test_set_a_fixed_stratified_fifth_is_held_out(tmp_path):
    features = np.arange(60.0).reshape(60, 1)
    labels = np.repeat([0, 1, 2], 20)
    name = save(tmp_path / "d.npz", x=features, y=labels)
    one, two = load(name), load(name)
    assert np.bincount(one.test_labels).tolist() == [4, 4, 4]
    assert np.array_equal(one.inputs, features), "an id is an index into the file's array"
    assert np.array_equal(one.labels, labels)
    assert sorted([*one.inputs[one.train_ids].ravel(), *one.test_samples().ravel()]) == list(range(60))
    assert np.array_equal(labels[one.test_samples().ravel().astype(int)], one.test_labels)
    assert np.array_equal(one.test_ids, two.test_ids)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"x_train": IMAGES.astype(np.int32)},
            "or float [N, ...] for features, got int32 of shape (12, 8, 8, 3)",
        ),
        ({"x_train": IMAGES[:, 0, 0]}, "for features, got uint8 of shape (12, 3)"),
        (
            {"x_train": np.moveaxis(IMAGES, -1, 1)},
            "got shape (12, 3, 8, 8), which looks like [N, C, H, W]; save numpy.moveaxis(x_train, 1, -1)",
        ),
        ({"x_train": IMAGES[:, :0]}, "x_train must have non-empty samples, got shape (12, 0, 8, 3)"),
        ({"x_train": FEATURES[:, :0]}, "x_train must have non-empty samples, got shape (12, 0)"),
        ({"x_train": FEATURES.ravel()}, "for features, got float64 of shape (60,)"),
        ({"x_train": with_value(7, np.nan)}, "x_train[7] has a value that is not finite"),
        ({"x_train": with_value(3, 1e300)}, "x_train[3] has a value that is not finite"),
        ({"y_train": LABELS - 1}, "y_train[0] must be 0 or more, got -1"),
        ({"y_train": LABELS + 1}, "y_train must contain every class from 0 to 3, but 0 is missing"),
        ({"y_train": LABELS * 0}, "y_train must have at least 2 classes, got 1"),
        ({"y_train": LABELS.astype(float)}, "y_train must be integers or text of shape [N], got float64"),
        (
            {"y_train": np.eye(12, dtype=int)},
            "y_train must be integers or text of shape [N], got int64 of shape (12, 12)",
        ),
        ({"y_train": LABELS[:5]}, "y_train has 5 labels for 12 samples"),
        (
            {"x_test": IMAGES[:0], "y_test": LABELS[:0]},
            "d.npz: x_test must have at least one sample, got shape (0, 8, 8, 3)",
        ),
        (
            {"x_train": FEATURES[:0], "y_train": LABELS[:0]},
            "x_train must have at least one sample, got shape (0, 5)",
        ),
        ({"y_test": LABELS[:6] + 1}, "y_test[2] is 3, but y_train has 3 classes"),
        (
            {"x_test": IMAGES[:6, :4]},
            f"x_test {MATCH} uint8 of shape (6, 4, 8, 3)",
        ),
        (
            {"x_test": FEATURES[:6]},
            f"x_test {MATCH} float32 of shape (6, 5)",
        ),
        (
            {"x_test": IMAGES[:6] / 255},
            f"x_test {MATCH} float32 of shape (6, 8, 8, 3)",
        ),
        ({"x_train": np.array([object()] * 12)}, "is not a readable .npz file of plain arrays"),
    ],
)
def test_errors_name_the_array_and_its_value(tmp_path, changed, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        load(save(tmp_path / "d.npz", **split(**changed)))


def test_validation_samples_follow_training_samples(tmp_path):
    alone = load(save(tmp_path / "d.npz", **split()))
    assert alone.validation is None
    both = load(save(tmp_path / "d.npz", **split(), x_val=255 - IMAGES[:4], y_val=LABELS[1:5]))
    assert both.validation.tolist() == [12, 13, 14, 15]
    assert both.train_ids.tolist() == list(range(12))
    assert np.array_equal(both.inputs, np.concatenate([IMAGES, 255 - IMAGES[:4]]))
    assert both.labels[12:].tolist() == LABELS[1:5].tolist()
    assert np.array_equal(both.test_samples(), alone.test_samples())
    assert (both.mean, both.std) == (alone.mean, alone.std), "validation images do not affect the normalisation"


def test_with_x_and_y_test_samples_are_held_out_of_these_not_of_x_val(tmp_path):
    features, labels = np.arange(60.0).reshape(60, 1), np.repeat([0, 1, 2], 20)
    alone = load(save(tmp_path / "d.npz", x=features, y=labels))
    both = load(save(tmp_path / "d.npz", x=features, y=labels, x_val=-features[:9], y_val=labels[:9]))
    assert np.array_equal(both.test_ids, alone.test_ids)
    assert np.array_equal(both.test_samples(), alone.test_samples())
    assert np.array_equal(both.train_ids, alone.train_ids)
    assert both.inputs[both.validation, 0].tolist() == (-features[:9, 0]).tolist()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y_val": LABELS}, "d.npz has y_val alone; validation needs both x_val and y_val"),
        ({"x_val": IMAGES}, "d.npz has x_val alone; validation needs both x_val and y_val"),
        (
            {"x_val": FEATURES, "y_val": LABELS},
            f"x_val {MATCH} float32 of shape (12, 5)",
        ),
        ({"x_val": IMAGES, "y_val": LABELS + 1}, "y_val[2] is 3, but y_train has 3 classes"),
        ({"x_val": IMAGES[:0], "y_val": LABELS[:0]}, "x_val must have at least one sample, got shape (0, 8, 8, 3)"),
        ({"x_val": IMAGES, "y_val": LABELS[:3]}, "y_val has 3 labels for 12 samples"),
    ],
)
def test_validation_arrays_are_checked_only_if_they_are_used(tmp_path, arrays, message):
    name = save(tmp_path / "d.npz", **split(), **arrays)
    with pytest.raises(ValueError, match=re.escape(message)):
        load(name)
    assert load(name, own_validation=False).inputs_hash == load(save(tmp_path / "e.npz", **split())).inputs_hash


def test_missing_keys_and_files_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"data file must be an \.npz file, but .* is a folder"):
        load(f"npz:{tmp_path}")
    with pytest.raises(ValueError, match=r"two\.npz has no test samples, and a fifth cannot be held out: "):
        load(save(tmp_path / "two.npz", x=FEATURES[:2], y=LABELS[:2]))
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load(f"npz:{tmp_path / 'no.npz'}")
    with pytest.raises(ValueError, match="has no key 'y_test'; it needs x_train, y_train, x_test, y_test, or x and y"):
        load(save(tmp_path / "d.npz", x_train=IMAGES, y_train=LABELS, x_test=IMAGES))
    with pytest.raises(ValueError, match="has no key 'y'"):
        load(save(tmp_path / "d.npz", x=IMAGES))
    for content in (b"", b"no zip", b"\x80\x04N."):
        (tmp_path / "d.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"not a readable \.npz"):
            load(f"npz:{tmp_path / 'd.npz'}")
    np.save(tmp_path / "one.npy", IMAGES)
    with pytest.raises(ValueError, match=r"not a readable \.npz"):
        load(f"npz:{tmp_path / 'one.npy'}")


def test_labels_may_be_class_names(tmp_path):
    """Numbered in sorted order; a class that is only tested is an error."""
    names = np.array(["dog", "cat", "ant"] * 4)
    arrays = {
        "x_train": np.zeros((12, 2)),
        "y_train": names,
        "x_test": np.zeros((2, 2)),
        "y_test": np.array(["ant", "dog"]),
    }
    np.savez(tmp_path / "d.npz", **arrays)
    read = load(f"npz:{tmp_path / 'd.npz'}")
    assert read.classes == ("ant", "cat", "dog")
    assert (read.labels[:3].tolist(), read.test_labels.tolist()) == ([2, 1, 0], [0, 2])
    np.savez(tmp_path / "d.npz", **arrays | {"y_test": np.array(["ant", "eel"])})
    with pytest.raises(ValueError, match=r"y_test\[1\] is 'eel', a class without training samples"):
        load(f"npz:{tmp_path / 'd.npz'}")
