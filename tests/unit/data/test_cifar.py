import hashlib
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from vista.data import cifar, load

NAMES = [f"class {number}".encode() for number in range(10)]


def batch(count, start, labels):
    pixels = (np.arange(count * 3072) + start).astype(np.uint8).reshape(count, 3072)
    return {b"data": pixels, b"batch_label": b"some batch", **labels}


def write(root, folder, files, monkeypatch):
    """Write files in the official layout and expect their MD5 sums instead of the official ones."""
    (root / folder).mkdir(parents=True)
    sums = {}
    for name, content in files.items():
        packed = content if isinstance(content, bytes) else pickle.dumps(content, protocol=3)
        (root / folder / name).write_bytes(packed)
        sums[name] = hashlib.md5(packed).hexdigest()
    monkeypatch.setitem(cifar.MD5, folder, sums)


@pytest.fixture
def small_cifar100(tmp_path, monkeypatch):
    fine = list(range(10)) * 2
    files = {
        "train": batch(20, 0, {b"fine_labels": fine, b"coarse_labels": [label % 5 for label in fine]}),
        "test": batch(10, 7, {b"fine_labels": fine[:10][::-1], b"coarse_labels": [0] * 10}),
        "meta": {b"fine_label_names": NAMES},
    }
    write(tmp_path, cifar.FOLDER100, files, monkeypatch)
    return tmp_path


def test_cifar100_has_images_labels_names_and_superclasses(small_cifar100):
    source = load("cifar100", small_cifar100)
    assert source.inputs.shape == (20, 32, 32, 3)
    assert source.inputs.dtype == np.uint8
    planes = np.arange(20 * 3072).astype(np.uint8).reshape(20, 3, 32, 32)
    assert source.inputs[4, 5, 6, 2] == planes[4, 2, 5, 6]
    assert source.labels.tolist() == list(range(10)) * 2
    assert source.test_labels.tolist() == list(range(10))[::-1]
    assert source.test_labels.dtype == np.int64
    assert source.classes[3] == "class 3"
    assert source.groups == (0, 1, 2, 3, 4, 0, 1, 2, 3, 4)
    assert source.mean == (0.5071, 0.4865, 0.4409)
    assert (source.flip, source.padding) == (True, 4)


def test_small_cifar100_has_the_first_images_of_the_first_classes(small_cifar100, monkeypatch):
    monkeypatch.setattr(cifar, "SMALL_CLASSES", 3)
    monkeypatch.setattr(cifar, "SMALL_PER_CLASS", 1)
    full, source = load("cifar100", small_cifar100), load("cifar100-small", small_cifar100)
    assert source.name == "cifar100-small"
    assert source.labels.tolist() == [0, 1, 2]
    assert np.array_equal(source.inputs, full.inputs[:3])
    assert source.test_labels.tolist() == [2, 1, 0]
    assert np.array_equal(source.test_inputs, full.test_inputs[7:])
    assert source.classes == full.classes[:3]
    assert source.groups is None, "the superclasses are incomplete"


def test_cifar10_joins_its_batches_in_order(tmp_path, monkeypatch):
    files = {f"data_batch_{n}": batch(2, n, {b"labels": [n, n + 1]}) for n in range(1, 6)}
    files["test_batch"] = batch(3, 0, {b"labels": [9, 8, 7]})
    files["batches.meta"] = {b"label_names": NAMES}
    write(tmp_path, cifar.FOLDER10, files, monkeypatch)
    source = load("cifar10", tmp_path)
    assert source.labels.tolist() == [1, 2, 2, 3, 3, 4, 4, 5, 5, 6]
    assert source.inputs[::2, 0, 0, 0].tolist() == [1, 2, 3, 4, 5]
    assert source.test_inputs.shape == (3, 32, 32, 3)
    assert source.num_classes == 10
    assert source.groups is None


def test_a_file_with_another_md5_is_never_unpickled(small_cifar100, monkeypatch):
    path = small_cifar100 / cifar.FOLDER100 / "train"
    path.write_bytes(path.read_bytes() + b"x")

    def never(*args, **kwargs):
        raise AssertionError("the unpickler was opened")

    monkeypatch.setattr(cifar, "ArrayUnpickler", never)
    with pytest.raises(ValueError, match=r"train is not the official file: expected md5 .*, got "):
        load("cifar100", small_cifar100)


def test_a_missing_file_is_named(small_cifar100):
    (small_cifar100 / cifar.FOLDER100 / "test").unlink()
    with pytest.raises(FileNotFoundError, match="test is missing"):
        load("cifar100", small_cifar100)


class Runs:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    "content",
    [np.array([os.mkdir], dtype=object), np.float64, {1, 2}, print, np.zeros(2, dtype="M8[s]")],
    ids=["array of objects", "class", "set", "function", "array of dates"],
)
def test_only_arrays_lists_and_text_are_unpickled(tmp_path, monkeypatch, content):
    write(tmp_path, cifar.FOLDER100, {"train": {b"data": content}}, monkeypatch)
    with pytest.raises(pickle.UnpicklingError, match="is not allowed"):
        load("cifar100", tmp_path)


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_that_would_run_code_is_rejected(tmp_path, monkeypatch, protocol):
    marker = tmp_path / "it ran"
    content = pickle.dumps(Runs(marker), protocol=protocol)
    write(tmp_path, cifar.FOLDER100, {"train": content}, monkeypatch)
    with pytest.raises(pickle.UnpicklingError, match=r"mkdir is not allowed"):
        load("cifar100", tmp_path)
    assert not marker.exists()


def real_root():
    root = os.environ.get("VISTA_DATA")
    if not root or not (Path(root) / cifar.FOLDER100).is_dir():
        pytest.skip("CIFAR-100 is not available (VISTA_DATA is not a folder that contains cifar-100-python)")
    return root


def test_the_real_cifar100():
    source = load("cifar100", real_root())
    assert source.inputs.shape == (50_000, 32, 32, 3)
    assert np.bincount(source.labels).tolist() == [500] * 100
    assert np.bincount(source.test_labels).tolist() == [100] * 100
    assert np.bincount(source.groups).tolist() == [5] * 20
    assert source.classes[:3] == ("apple", "aquarium_fish", "baby")
    assert tuple(round(float(m), 4) for m in source.inputs.mean((0, 1, 2)) / 255) == (0.5071, 0.4865, 0.4409)
