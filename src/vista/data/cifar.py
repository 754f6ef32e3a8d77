"""Read CIFAR-10 and CIFAR-100 in their official Python layout; files with an unexpected MD5 are rejected."""

import dataclasses
import hashlib
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy._core.multiarray import _reconstruct

from vista.data.source import Source, data_folder

FOLDER10, FOLDER100 = "cifar-10-batches-py", "cifar-100-python"
SMALL_CLASSES, SMALL_PER_CLASS = 10, 100
MD5 = {
    FOLDER10: {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    },
    FOLDER100: {
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    },
}


def load_cifar10(root: str | Path | None) -> Source:
    """Read 50,000 training and 10,000 test images of 10 classes, uint8 [N, 32, 32, 3]."""
    folder = data_folder(root, "cifar10", FOLDER10)
    batches = [_read(folder, f"data_batch_{number}") for number in range(1, 6)]
    test = _read(folder, "test_batch")
    return Source(
        name="cifar10",
        inputs=np.concatenate([_images(batch) for batch in batches]),
        labels=np.concatenate([_labels(batch, b"labels") for batch in batches]),
        test_inputs=_images(test),
        test_labels=_labels(test, b"labels"),
        classes=_names(_read(folder, "batches.meta"), b"label_names"),
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
    )


def load_cifar100(root: str | Path | None) -> Source:
    """Read 50,000 training and 10,000 test images of 100 classes in 20 superclasses, uint8 [N, 32, 32, 3]."""
    folder = data_folder(root, "cifar100", FOLDER100)
    train, test = _read(folder, "train"), _read(folder, "test")
    labels = _labels(train, b"fine_labels")
    superclass = dict(zip(labels.tolist(), train[b"coarse_labels"]))
    classes = _names(_read(folder, "meta"), b"fine_label_names")
    return Source(
        name="cifar100",
        inputs=_images(train),
        labels=labels,
        test_inputs=_images(test),
        test_labels=_labels(test, b"fine_labels"),
        classes=classes,
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        groups=tuple(int(superclass[label]) for label in range(len(classes))),
    )


def load_small_cifar100(root: str | Path | None) -> Source:
    """Read the first 10 classes of CIFAR-100: the first 100 training images of each, and all of their test images."""
    full = load_cifar100(root)
    of_class = [np.flatnonzero(full.labels == label)[:SMALL_PER_CLASS] for label in range(SMALL_CLASSES)]
    chosen = np.sort(np.concatenate(of_class))
    test = full.test_labels < SMALL_CLASSES
    return dataclasses.replace(
        full,
        name="cifar100-small",
        inputs=full.inputs[chosen],
        labels=full.labels[chosen],
        test_inputs=full.test_inputs[test],
        test_labels=full.test_labels[test],
        classes=full.classes[:SMALL_CLASSES],
        groups=None,
    )


class ArrayUnpickler(pickle.Unpickler):
    """Accepts numpy arrays of numbers, and what pickle builds without calling anything: lists, dicts, text."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return _reconstruct
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if (module, name) == ("numpy", "dtype"):
            return _number_type
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed; only arrays, lists and text are")


def _number_type(code: bytes | str, *_flags: object) -> np.dtype:
    """Return the dtype named `code`; its legacy align and copy flags do not matter for plain numbers."""
    dtype = np.dtype(code.decode() if isinstance(code, bytes) else code)
    if dtype.kind not in "biuf":
        raise pickle.UnpicklingError(f"an array of {dtype} is not allowed; only numbers are")
    return dtype


def _read(folder: Path, file: str) -> dict[bytes, Any]:
    """Read an official file; the bytes are hashed and unpickled from memory, so that they cannot change in between."""
    path, expected = folder / file, MD5[folder.name][file]
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing from the official layout of {folder.name}")
    content = path.read_bytes()
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise ValueError(f"{path} is not the official file: expected md5 {expected}, got {found}")
    batch: dict[bytes, Any] = ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
    return batch


def _images(batch: dict[bytes, Any]) -> np.ndarray:
    pixels: np.ndarray = batch[b"data"]
    return np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _labels(batch: dict[bytes, Any], key: bytes) -> np.ndarray:
    return np.array(batch[key], dtype=np.int64)


def _names(meta: dict[bytes, Any], key: bytes) -> tuple[str, ...]:
    return tuple(name.decode("utf-8", "replace") for name in meta[key])
