import re

import numpy as np
import pytest

from vista import noise
from vista.files import array_file
from vista.split import Split, stratified

LABELS = np.repeat([0, 1, 2], [50, 30, 20])


def test_each_class_gives_its_share():
    split = stratified(LABELS, 0.1, seed=0)
    assert np.bincount(LABELS[split.val]).tolist() == [5, 3, 2]
    assert len(split.train) == 90
    assert split.train.dtype == split.val.dtype == np.int64


def test_a_whole_number_asks_for_that_many():
    split = stratified(np.arange(1347) % 10, 270, seed=0)
    assert (len(split.train), len(split.val)) == (1077, 270)
    assert set(np.bincount(np.arange(1347)[split.val] % 10)) == {27}


def test_one_sample_may_be_asked_for():
    assert len(stratified(np.arange(20) % 2, 1, seed=0).val) == 1


def test_remainders_go_to_the_largest():
    split = stratified(np.repeat([0, 1, 2], [14, 13, 3]), 10, seed=0)  # quotas 4.67, 4.33, 1
    assert np.bincount(np.repeat([0, 1, 2], [14, 13, 3])[split.val]).tolist() == [5, 4, 1]


def test_a_sample_without_label_always_trains():
    labels = np.where(np.arange(100) % 2, LABELS, -1)
    split = stratified(labels, 0.2, seed=0)
    assert len(split.val) == 10
    assert (labels[split.val] >= 0).all()
    assert len(split.train) == 90


def test_the_samples_of_a_class_are_drawn_alike():
    drawn = np.zeros(100)
    for seed in range(400):
        drawn[stratified(LABELS, 0.1, seed).val] += 1
    assert abs(drawn - 40).max() < 6 * np.sqrt(40)


def test_noise_and_split_of_one_seed_are_drawn_apart():
    labels = np.zeros(10_000, dtype=np.int64)
    changed = np.flatnonzero(noise.symmetric(labels, 2, 0.1, seed=0))
    both = np.intersect1d(changed, stratified(labels, 0.1, seed=0).val)
    assert 50 < len(both) < 150


@pytest.mark.parametrize(
    ("fraction", "message"),
    [
        (0.0, "fraction must be between 0 and 1 (exclusive) as a share, got 0.0"),
        (1.0, "as a share, got 1.0"),
        (-0.1, "as a share, got -0.1"),
        (float("nan"), "as a share, got nan"),
        (0, "fraction must be at least 1 as a number of samples, got 0"),
        (-3, "as a number of samples, got -3"),
        (0.001, "fraction must leave a validation sample, got 0.001 of 100 labelled samples"),
        (0.999, "fraction must leave a training sample, got 0.999: 100 of 100 labelled samples"),
        (100, "fraction must leave a training sample, got 100: 100 of 100"),
        (10**9, "of 100 labelled samples"),
    ],
)
def test_a_fraction_that_cannot_be_is_named(fraction, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        stratified(LABELS, fraction, 0)


@pytest.mark.parametrize("fraction", ["0.1", True, None])
def test_a_fraction_must_be_a_number(fraction):
    with pytest.raises(TypeError, match="fraction must be a share"):
        stratified(LABELS, fraction, 0)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([0, 1, -2]), "labels[2] must be at least 0, or -1 for no label, got -2"),
        (np.array([0.0, 1.0]), "float64"),
        (np.zeros((4, 2), dtype=np.int64), "shape (4, 2)"),
        (np.array([], dtype=np.int64), "of 0 labelled samples"),
        (np.full(9, -1), "of 0 labelled samples"),
    ],
)
def test_bad_labels_are_named(labels, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        stratified(labels, 0.1, 0)


def test_a_bad_seed_is_named():
    with pytest.raises(ValueError, match="seed must be at least 0, got -1"):
        stratified(LABELS, 0.1, -1)


def test_saved_and_loaded_is_the_same(tmp_path):
    split = stratified(LABELS, 0.1, 7)
    split.save(tmp_path / "split.safetensors")
    back = Split.load(tmp_path / "split.safetensors")
    assert np.array_equal(back.train, split.train)
    assert np.array_equal(back.val, split.val)
    assert back.hash == split.hash
    assert [path.name for path in tmp_path.iterdir()] == ["split.safetensors"]


def test_the_hash_tells_splits_apart_and_stays_for_ever():
    split = stratified(LABELS, 0.1, 7)
    assert split.hash != stratified(LABELS, 0.1, 8).hash
    assert split.hash != Split(split.val, split.train).hash
    assert split.hash == "e0f10f30fa1d4df30a2f7a61ea796c28b4df4e6c6c8f6352b8b63394d6f82a57"


def test_a_damaged_or_foreign_artefact_is_rejected(tmp_path):
    path = tmp_path / "split.safetensors"
    stratified(LABELS, 0.1, 7).save(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is damaged"):
        Split.load(path)
    path.write_bytes(content[:50])
    with pytest.raises(ValueError, match=r"not a complete safetensors file"):
        Split.load(path)
    noise.make("none", LABELS, 3, 0).save(path)
    with pytest.raises(ValueError, match=r"is vista\.noise version 1, expected vista\.split version 1"):
        Split.load(path)
    path.write_bytes(array_file.to_bytes({"train": LABELS}, "vista.split", "1"))
    with pytest.raises(ValueError, match=r"split\.safetensors is damaged: 'val' is missing"):
        Split.load(path)


def test_a_class_gives_its_last_sample_only_where_no_other_can():
    rare = stratified(np.array([0] * 100 + [1, 2, 3, 4]), 0.2, seed=0)
    assert set(range(100, 104)) <= set(rare.train.tolist())
    assert len(rare.val) == 21
    alone = stratified(np.array([0, 1, 2, 3]), 0.5, seed=0)
    assert (len(alone.train), len(alone.val)) == (2, 2)
