"""Read `npz:PATH`: arrays x_train, y_train, x_test, y_test, or x and y; optionally x_val and y_val."""

from pathlib import Path

import numpy as np

from vista.data.source import Source, channel_statistics, default_padding, draw_test_ids
from vista.files.npz import read_arrays
from vista.noise.label_files import looked_for

SPLIT = ("x_train", "y_train", "x_test", "y_test")
_VALIDATION = ("x_val", "y_val")


def load(path: str | Path, own_validation: bool = True) -> Source:
    """Read a data set from a `.npz` file.

    Images are uint8 [N, H, W, C] or [N, H, W], features float [N, ...]; labels are integers [N] from 0 to K-1, or
    class names, which are numbered in sorted order. With x and y alone, a stratified fifth becomes the test set, the
    same for every seed. Validation samples follow the training samples.

    Args:
        path: The file.
        own_validation: Whether to read x_val and y_val.

    Returns:
        The data set.
    """
    path = Path(path).expanduser()
    arrays = _read(path, _VALIDATION if own_validation else ())
    x_name, y_name = ("x", "y") if "x" in arrays else ("x_train", "y_train")
    inputs = validate_inputs(path, x_name, arrays[x_name])
    classes = None
    if arrays[y_name].dtype.kind == "U":
        classes = tuple(np.unique(arrays[y_name]).tolist())
        arrays |= {name: _number(path, name, arrays[name], classes) for name in arrays if name.startswith("y")}
    labels = _check_labels(path, y_name, arrays[y_name], arrays[x_name])
    num_classes = _count_classes(path, y_name, labels)
    test_ids = validation = None
    if x_name == "x":
        test_ids = draw_test_ids(labels, path)
        test_inputs, test_labels = inputs, labels[test_ids]
    else:
        test_inputs, test_labels = _read_part(path, "test", arrays, (x_name, inputs), (y_name, num_classes))
    image = inputs.dtype == np.uint8
    mean, std = channel_statistics(inputs, test_ids) if image else ((), ())
    if _VALIDATION[0] in arrays:
        val_inputs, val_labels = _read_part(path, "val", arrays, (x_name, inputs), (y_name, num_classes))
        validation = np.arange(len(inputs), len(inputs) + len(val_inputs))
        inputs, labels = np.concatenate([inputs, val_inputs]), np.concatenate([labels, val_labels])
        test_inputs = inputs if test_ids is not None else test_inputs
    return Source(
        name=f"npz:{path}",
        inputs=inputs,
        labels=labels,
        test_inputs=test_inputs,
        test_labels=test_labels,
        classes=classes or tuple(str(label) for label in range(num_classes)),
        mean=mean,
        std=std,
        flip=image,
        padding=default_padding(inputs) if image else 0,
        test_ids=test_ids,
        validation=validation,
    )


def _read(path: Path, validation: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Read the four arrays of the split, or x and y, and the validation arrays if present."""
    if path.is_dir():
        raise ValueError(
            f"data file must be an .npz file, but {path} is a folder; for a folder of images use folder:{path}"
        )
    if not path.is_file():
        remedy = "" if path.is_absolute() else "; --root can name the folder that contains it"
        raise FileNotFoundError(f"data file {path} does not exist{looked_for(path)}{remedy}")
    arrays = read_arrays(path, ("x", "y", *SPLIT, *validation))
    keys = ("x", "y") if "x" in arrays and "x_train" not in arrays else SPLIT
    missing = [key for key in keys if key not in arrays]
    if missing:
        raise ValueError(f"{path} has no key {missing[0]!r}; it needs {', '.join(SPLIT)}, or x and y")
    present = [key for key in validation if key in arrays]
    if len(present) == 1:
        raise ValueError(f"{path} has {present[0]} alone; validation needs both {' and '.join(validation)}")
    return {key: arrays[key] for key in (*keys, *validation) if key in arrays}


def validate_inputs(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    """Validate inputs of a `.npz` file.

    Args:
        path: The file, for error messages.
        name: The array's name, for error messages.
        array: The array as read.

    Returns:
        Images as uint8 [N, H, W, C], or features as float32 [N, ...] with finite values.
    """
    if array.shape[:1] == (0,):
        raise ValueError(f"{path}: {name} must have at least one sample, got shape {array.shape}")
    if 0 in array.shape[1:]:
        raise ValueError(f"{path}: {name} must have non-empty samples, got shape {array.shape}")
    if array.dtype == np.uint8 and array.ndim == 4 and array.shape[1] in (1, 3) and array.shape[3] > 4:
        raise ValueError(
            f"{path}: {name} must be [N, H, W, C], got shape {array.shape}, which looks like [N, C, H, W]; "
            f"save numpy.moveaxis({name}, 1, -1)"
        )
    if array.dtype == np.uint8 and array.ndim in (3, 4):
        return array if array.ndim == 4 else array[..., None]
    if array.dtype.kind != "f" or array.ndim < 2:
        raise ValueError(
            f"{path}: {name} must be uint8 [N, H, W, C] or [N, H, W] for images, or float [N, ...] for features, "
            f"got {array.dtype} of shape {array.shape}"
        )
    with np.errstate(over="ignore"):
        features = array.astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(features).reshape(len(features), -1).all(axis=1))
    if len(wrong):
        raise ValueError(f"{path}: {name}[{wrong[0]}] has a value that is not finite in float32")
    return features


def _number(path: Path, name: str, array: np.ndarray, classes: tuple[str, ...]) -> np.ndarray:
    """Return the class numbers of class names; other labels are returned unchanged."""
    if array.dtype.kind != "U" or array.ndim != 1:
        return array
    unknown = np.flatnonzero(~np.isin(array, classes))
    if len(unknown):
        raise ValueError(
            f"{path}: {name}[{unknown[0]}] is {str(array[unknown[0]])!r}, a class without training samples"
        )
    return np.searchsorted(classes, array)


def _check_labels(path: Path, name: str, array: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"{path}: {name} must be integers or text of shape [N], got {array.dtype} of shape {array.shape}"
        )
    if len(array) != len(inputs):
        raise ValueError(f"{path}: {name} has {len(array)} labels for {len(inputs)} samples")
    wrong = np.flatnonzero(array < 0)
    if len(wrong):
        raise ValueError(f"{path}: {name}[{wrong[0]}] must be 0 or more, got {array[wrong[0]]}")
    return array.astype(np.int64)


def _count_classes(path: Path, name: str, labels: np.ndarray) -> int:
    """Return K for training labels 0..K-1; a missing class is an error, since it is usually a numbering mistake."""
    present = np.unique(labels)
    gaps = np.flatnonzero(present != np.arange(len(present)))
    if len(gaps):
        raise ValueError(f"{path}: {name} must contain every class from 0 to {present[-1]}, but {gaps[0]} is missing")
    if len(present) < 2:
        raise ValueError(f"{path}: {name} must have at least 2 classes, got 1")
    return len(present)


def _read_part(
    path: Path, part: str, arrays: dict[str, np.ndarray], train: tuple[str, np.ndarray], classes: tuple[str, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Read inputs and labels of the part `test` or `val`; they must match the training part in type and shape."""
    x_name, y_name = f"x_{part}", f"y_{part}"
    (train_name, inputs), (labels_name, num_classes) = train, classes
    found = validate_inputs(path, x_name, arrays[x_name])
    labels = _check_labels(path, y_name, arrays[y_name], arrays[x_name])
    if found.dtype != inputs.dtype or found.shape[1:] != inputs.shape[1:]:
        raise ValueError(
            f"{path}: {x_name} must match {train_name} ({inputs.dtype} of shape {inputs.shape}), "
            f"got {found.dtype} of shape {found.shape}"
        )
    wrong = np.flatnonzero(labels >= num_classes)
    if len(wrong):
        raise ValueError(
            f"{path}: {y_name}[{wrong[0]}] is {labels[wrong[0]]}, but {labels_name} has {num_classes} classes"
        )
    return found, labels
