"""Read `folder:PATH`: images in PATH/train/<class>/* and PATH/test/<class>/*, or in PATH/<class>/* alone.

Next to train/ and test/, val/<class>/* is optional. Images in subfolders of a class folder belong to that class.
"""

import os
from functools import lru_cache
from pathlib import Path

import numpy as np

from vista.data.decoding import decode, decode_cached, fingerprint, open_image, shown_size
from vista.data.source import Source, channel_statistics, default_padding, draw_test_ids

_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm")
_VALIDATION = ("val", "valid", "validation")  # next to train/ and test/
_IN_MEMORY = 2**30  # bytes; more is decoded into a file next to the folder and memory-mapped


def load(path: str | Path, own_validation: bool = True) -> Source:
    """Read a data set from a folder of class folders.

    All images must have one size; they become uint8 [N, H, W, C], with C = 1 if all are greyscale. Classes are sorted
    by name, samples by class and file name. Without train/ and test/, a stratified fifth becomes the test set, the same
    for every seed. Validation samples follow the training samples.

    Args:
        path: The folder.
        own_validation: Whether to read val/.

    Returns:
        The data set.
    """
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        remedy = "" if Path(path).is_absolute() else "; --root can name the folder that contains it"
        raise FileNotFoundError(f"data folder {folder} does not exist{remedy}")
    classes, (train, train_labels), (val, val_labels), (test, test_labels) = _listing(folder, own_validation)
    files, labels = train + val, np.concatenate([train_labels, val_labels])
    pixels = _pixels(folder, files + test)
    inputs, test_inputs, set_aside = pixels[: len(files)], pixels[len(files) :], None
    if not test:
        set_aside = draw_test_ids(labels, folder)
        test_inputs, test_labels = inputs, labels[set_aside]
    names = _names(files + test, folder)
    mean, std = channel_statistics(inputs[: len(train)], set_aside)
    return Source(
        name=f"folder:{path}",
        inputs=inputs,
        labels=labels,
        test_inputs=test_inputs,
        test_labels=test_labels,
        classes=tuple(os.fsencode(name).decode("utf-8", "replace") for name in classes),
        mean=mean,
        std=std,
        padding=default_padding(pixels),
        set_aside=set_aside,
        validation=np.arange(len(train), len(files)) if val else None,
        files=tuple(names[: len(files)]),
        test_files=tuple(names[len(files) :] if set_aside is None else (names[position] for position in set_aside)),
    )


def read_images(path: str | Path, channels: int) -> tuple[list[str], np.ndarray]:
    """Read every image below a folder, at any depth, without labels.

    Args:
        path: The folder.
        channels: Channels to convert to, if 1 or 3; otherwise 1 if all images are greyscale, else 3.

    Returns:
        The paths relative to the folder, and uint8 [N, H, W, C].
    """
    folder = Path(path).expanduser().resolve()
    files = _images(folder, folder)
    return _names(files, folder), _read(
        folder, tuple(files), fingerprint(files, folder), _IN_MEMORY, channels if channels in (1, 3) else None
    )


def _names(files: list[Path], folder: Path) -> list[str]:
    """Return the paths relative to the folder, as text."""
    return [os.fsencode(path.relative_to(folder)).decode("utf-8", "replace") for path in files]


_Part = tuple[list[Path], np.ndarray]  # files and their labels


def _listing(folder: Path, own_validation: bool) -> tuple[list[str], _Part, _Part, _Part]:
    """Return class names, then files and labels for training, validation and test; missing parts are empty."""
    empty: _Part = ([], np.empty(0, dtype=np.int64))
    parts = [part for part in ("train", "test") if (folder / part).is_dir()]
    if not parts:
        classes, files, labels = _class_folders(folder, folder)
        return classes, (files, labels), empty, empty
    validation = [name for name in _VALIDATION if own_validation and (folder / name).is_dir()]
    if len(parts) == 1:
        missing = "test" if parts == ["train"] else "train"
        present = " and ".join(f"{name}/" for name in (*parts, *validation))
        remedy = "use train/ and test/, or class folders alone"
        if missing == "test" and validation:
            remedy += f"; if {validation[0]}/ is for testing, rename it to test/"
        raise FileNotFoundError(f"{folder} has {present} but no {missing}/; {remedy}")
    if len(validation) > 1:
        raise ValueError(f"{folder} must have one validation folder, got {' and '.join(f'{n}/' for n in validation)}")
    classes, train, labels = _class_folders(folder / "train", folder)
    val = _read_part(folder, validation[0], classes) if validation else empty
    return classes, (train, labels), val, _read_part(folder, "test", classes)


def _read_part(folder: Path, part: str, classes: list[str]) -> _Part:
    """Return files and labels of a part whose classes are a subset of the training classes."""
    found, files, labels = _class_folders(folder / part, folder)
    unknown = sorted(set(found) - set(classes))
    if unknown:
        raise ValueError(f"{folder / part / unknown[0]} is a class that {folder / 'train'} does not have")
    label_of = np.array([classes.index(name) for name in found], dtype=np.int64)
    return files, label_of[labels]


def _class_folders(part: Path, root: Path) -> tuple[list[str], list[Path], np.ndarray]:
    classes = [entry for entry in _entries(part, root) if entry.is_dir()]
    if not classes:
        raise ValueError(f"{part} contains no class folders")
    if len(classes) < 2 and part in (root, root / "train"):
        raise ValueError(f"{part} must have at least 2 class folders, got 1 ({classes[0].name})")
    files: list[Path] = []
    labels: list[int] = []
    for label, folder in enumerate(classes):
        found = _images(folder, root)
        files += found
        labels += [label] * len(found)
    return [folder.name for folder in classes], files, np.array(labels, dtype=np.int64)


def _images(folder: Path, root: Path) -> list[Path]:
    """List every image below `folder`, sorted by path."""
    waiting, found = [folder], list[Path]()
    while waiting:
        for entry in _entries(waiting.pop(), root):
            if entry.is_dir():
                waiting += [] if entry.is_symlink() else [entry]  # a link may point to a parent
            elif entry.suffix.lower() in _SUFFIXES and entry.is_file():
                found.append(entry)
    if not found:
        raise ValueError(f"{folder} contains no images ({', '.join(_SUFFIXES)})")
    return sorted(found)


def _entries(folder: Path, root: Path) -> list[Path]:
    """List `folder` sorted by name, without hidden entries; links to outside of `root` are rejected."""
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    for entry in entries:
        if not entry.resolve().is_relative_to(root):
            raise ValueError(f"{entry} links to {entry.resolve()}, outside of {root}")
    return entries


def _pixels(folder: Path, files: list[Path]) -> np.ndarray:
    """Decode all files; several runs on one folder decode it once, unless a file changes."""
    return _read(folder, tuple(files), fingerprint(files, folder), _IN_MEMORY, None)


@lru_cache(maxsize=1)
def _read(folder: Path, files: tuple[Path, ...], _fingerprint: str, in_memory: int, channels: int | None) -> np.ndarray:
    with open_image(files[0]) as first:
        width, height = shown_size(first)
    grey = True
    for path in files:  # headers only: a wrong size is reported before the slow decoding
        with open_image(path) as image:
            grey = grey and image.mode in ("1", "L")
            if (size := shown_size(image)) != (width, height):
                expected = f"{width} x {height} pixels like {files[0]}"
                raise ValueError(f"{path} must have {expected}, got {size[0]} x {size[1]}")
    shape = (height, width, channels or (1 if grey else 3))
    if len(files) * int(np.prod(shape)) > in_memory:
        return decode_cached(files, folder.with_name(f"{folder.name}.pixels"), shape, folder)
    pixels = np.empty((len(files), *shape), dtype=np.uint8)
    for position, decoded in enumerate(decode(files, shape)):
        pixels[position] = decoded
    return pixels
