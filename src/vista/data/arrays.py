"""Any `.npz` file of arrays: x_train, y_train, x_test, y_test, or x and y; maybe x_val and y_val too."""

from pathlib import Path

import numpy as np

from vista.data.source import Source, channel_statistics, held_out, usual_padding
from vista.files.npz import read_arrays
from vista.noise.label_files import looked_for

SPLIT = ("x_train", "y_train", "x_test", "y_test")
_VALIDATION = ("x_val", "y_val")


def load(path: str | Path, own_validation: bool = True) -> Source:
    """Images uint8 [N, H, W, C] or [N, H, W], or features float [N, ...]; labels integers [N], 0..K-1.

    From x and y alone a stratified fifth becomes the test set, the same for every seed. Samples for validation come
    after those for training.
    """
    path = Path(path).expanduser()
    arrays = _read(path, _VALIDATION if own_validation else ())
    x_name, y_name = ("x", "y") if "x" in arrays else ("x_train", "y_train")
    inputs, labels = checked_inputs(path, x_name, arrays[x_name]), _labels(path, y_name, arrays[y_name], arrays[x_name])
    num_classes = _count_classes(path, y_name, labels)
    set_aside = validation = None
    if x_name == "x":
        set_aside = held_out(labels, path)
        test_inputs, test_labels = inputs, labels[set_aside]
    else:
        test_inputs, test_labels = _held_out(path, "test", arrays, (x_name, inputs), (y_name, num_classes))
    image = inputs.dtype == np.uint8
    mean, std = channel_statistics(inputs, set_aside) if image else ((), ())
    if _VALIDATION[0] in arrays:
        val_inputs, val_labels = _held_out(path, "val", arrays, (x_name, inputs), (y_name, num_classes))
        validation = np.arange(len(inputs), len(inputs) + len(val_inputs))
        inputs, labels = np.concatenate([inputs, val_inputs]), np.concatenate([labels, val_labels])
        test_inputs = inputs if set_aside is not None else test_inputs
    return Source(
        name=f"npz:{path}",
        inputs=inputs,
        labels=labels,
        test_inputs=test_inputs,
        test_labels=test_labels,
        classes=tuple(str(label) for label in range(num_classes)),
        mean=mean,
        std=std,
        flip=image,
        padding=usual_padding(inputs) if image else 0,
        set_aside=set_aside,
        validation=validation,
    )


def _read(path: Path, for_validation: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The arrays by name: all four of the split, or x and y, and those for validation, if there are such."""
    if path.is_dir():
        raise ValueError(
            f"data file {path} is a folder, but an .npz file is needed (a folder of pictures: folder:PATH)"
        )
    if not path.is_file():
        remedy = "" if path.is_absolute() else "; --root may name the folder it lies in"
        raise FileNotFoundError(f"data file {path} does not exist{looked_for(path)}{remedy}")
    arrays = read_arrays(path, ("x", "y", *SPLIT, *for_validation))
    keys = ("x", "y") if "x" in arrays and "x_train" not in arrays else SPLIT
    missing = [key for key in keys if key not in arrays]
    if missing:
        raise ValueError(f"{path} has no key {missing[0]!r}; it needs {', '.join(SPLIT)}, or x and y")
    half = [key for key in for_validation if key not in arrays]
    if len(half) == 1:
        there = next(key for key in for_validation if key in arrays)
        raise ValueError(f"{path} has {there} but no {half[0]}: for validation it needs both, or neither")
    return {key: arrays[key] for key in (*keys, *for_validation) if key in arrays}


def checked_inputs(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    """Images as uint8 [N, H, W, C], features as float32 [N, ...], every value finite."""
    if array.shape[:1] == (0,):
        raise ValueError(f"{path}: {name} has shape {array.shape}: there is no sample in it")
    if 0 in array.shape[1:]:
        raise ValueError(f"{path}: {name} has shape {array.shape}: its samples hold nothing")
    if array.dtype == np.uint8 and array.ndim == 4 and array.shape[1] in (1, 3) and array.shape[3] > 4:
        raise ValueError(
            f"{path}: {name} has shape {array.shape}, which looks like [N, C, H, W], but channels come last: "
            f"save numpy.moveaxis({name}, 1, -1)"
        )
    if array.dtype == np.uint8 and array.ndim in (3, 4):
        return array if array.ndim == 4 else array[..., None]
    if array.dtype.kind != "f" or array.ndim < 2:
        raise ValueError(
            f"{path}: {name} is {array.dtype} of shape {array.shape}, "
            "but it must be uint8 [N, H, W, C] or [N, H, W] for images, or float [N, ...] for features"
        )
    with np.errstate(over="ignore"):
        features = array.astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(features).reshape(len(features), -1).all(axis=1))
    if len(wrong):
        raise ValueError(f"{path}: {name}[{wrong[0]}] holds a value that is not finite in float32")
    return features


def _labels(path: Path, name: str, array: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"{path}: {name} must be integers of shape [N], but is {array.dtype} of shape {array.shape}")
    if len(array) != len(inputs):
        raise ValueError(f"{path}: {name} has {len(array)} labels for {len(inputs)} samples")
    wrong = np.flatnonzero(array < 0)
    if len(wrong):
        raise ValueError(f"{path}: {name}[{wrong[0]}] is {array[wrong[0]]}, but labels are 0 or more")
    return array.astype(np.int64)


def _count_classes(path: Path, name: str, labels: np.ndarray) -> int:
    """K, where the training labels are 0..K-1 with none left out: a gap is mostly a mistake in numbering."""
    present = np.unique(labels)
    gaps = np.flatnonzero(present != np.arange(len(present)))
    if len(gaps):
        raise ValueError(f"{path}: {name} goes up to {present[-1]} but has no {gaps[0]}; number the classes 0 to K-1")
    if len(present) < 2:
        raise ValueError(f"{path}: {name} holds one class only, but a classifier needs 2 or more")
    return len(present)


def _held_out(
    path: Path, part: str, arrays: dict[str, np.ndarray], train: tuple[str, np.ndarray], classes: tuple[str, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels of ``test`` or ``val``, which must be of the same kind as those for training."""
    x_name, y_name = f"x_{part}", f"y_{part}"
    (train_name, inputs), (labels_name, num_classes) = train, classes
    found = checked_inputs(path, x_name, arrays[x_name])
    labels = _labels(path, y_name, arrays[y_name], arrays[x_name])
    if found.dtype != inputs.dtype or found.shape[1:] != inputs.shape[1:]:
        raise ValueError(
            f"{path}: {x_name} is {found.dtype} of shape {found.shape}, "
            f"but {train_name} is {inputs.dtype} of shape {inputs.shape}"
        )
    wrong = np.flatnonzero(labels >= num_classes)
    if len(wrong):
        raise ValueError(
            f"{path}: {y_name}[{wrong[0]}] is {labels[wrong[0]]}, but {labels_name} has {num_classes} classes"
        )
    return found, labels
