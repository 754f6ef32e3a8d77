import hashlib
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from vista.data import digits, load
from vista.data.source import channel_statistics


def test_digits_are_1347_training_and_450_test_images():
    digits = load("digits")
    assert digits.inputs[digits.train_ids].shape == (1347, 8, 8, 1)
    assert digits.test_samples().shape == (450, 8, 8, 1)
    assert sorted([*digits.train_ids, *digits.test_ids]) == list(range(1797))
    assert digits.inputs.dtype == np.uint8
    assert (digits.inputs.min(), digits.inputs.max()) == (0, 255)
    assert digits.labels.dtype == digits.test_labels.dtype == np.int64
    assert (digits.num_classes, digits.is_image, digits.flip, digits.padding) == (10, True, False, 1)
    assert np.bincount(digits.test_labels).min() >= 43


def test_normalisation_uses_the_training_part():
    digits = load("digits")
    mean, std = channel_statistics(digits.inputs, digits.test_ids)
    trained = digits.inputs[digits.train_ids]
    assert digits.mean == tuple(round(value, 4) for value in mean)
    assert digits.std == tuple(round(value, 4) for value in std)
    assert mean[0] == pytest.approx(trained.mean() / 255)
    assert std[0] == pytest.approx(trained.std() / 255)


def test_the_test_set_never_changes():
    digest = hashlib.sha256(load("digits").test_samples().tobytes()).hexdigest()
    assert digest == "5669c84490ba34e7b90992b6c7360a271c7eea846eb907389fc01bc6429c4e82"


def test_an_id_is_an_index_into_scikit_learns_data():
    ours, shipped = load("digits"), load_digits()
    assert np.array_equal(ours.inputs[..., 0], np.rint(shipped.images * (255 / 16)))
    assert np.array_equal(ours.labels, shipped.target)


def test_digits_equal_scikit_learns_with_or_without_its_file(monkeypatch):
    shipped = load_digits()
    for has_file in (True, False):
        if not has_file:
            monkeypatch.setattr(Path, "exists", lambda path: False)
        pixels, labels = digits._read()
        assert np.array_equal(pixels, shipped.data)
        assert np.array_equal(labels, shipped.target)
        assert labels.dtype == np.int64
