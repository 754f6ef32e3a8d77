"""Any folder of class folders: PATH/train/<class>/* and PATH/test/<class>/*, or PATH/<class>/* alone.

Beside train/ and test/ may be val/<class>/*. A class folder may have folders in it, whose pictures are of that class
too.
"""

import os
from functools import lru_cache
from pathlib import Path

import numpy as np

from vista.data.pixels import cached, decode, fingerprint, open_image, shown_size
from vista.data.source import Source, channel_statistics, held_out, usual_padding

_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm")
_VALIDATION = ("val", "valid", "validation")  # beside train/ and test/
_IN_MEMORY = 2**30  # bytes; more is decoded into a file beside the folder and mapped from there


def load(path: str | Path, own_validation: bool = True) -> Source:
    """Images of one size, uint8 [N, H, W, C], C = 1 if all are grey; classes by name, samples by class and file name.

    Without train/ and test/ a stratified fifth becomes the test set, the same for every seed. Samples for validation
    come after those for training.
    """
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        remedy = "" if Path(path).is_absolute() else "; --root may name the folder it lies in"
        raise FileNotFoundError(f"data folder {folder} does not exist{remedy}")
    classes, (train, train_labels), (val, val_labels), (test, test_labels) = _listing(folder, own_validation)
    files, labels = train + val, np.concatenate([train_labels, val_labels])
    pixels = _pixels(folder, files + test)
    inputs, test_inputs, set_aside = pixels[: len(files)], pixels[len(files) :], None
    if not test:
        set_aside = held_out(labels, folder)
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
        padding=usual_padding(pixels),
        set_aside=set_aside,
        validation=np.arange(len(train), len(files)) if val else None,
        files=tuple(names[: len(files)]),
        test_files=tuple(names[len(files) :] if set_aside is None else (names[place] for place in set_aside)),
    )


def pictures(path: str | Path, channels: int) -> tuple[list[str], np.ndarray]:
    """Every picture below a folder, however deep: its path there, and uint8 [N, H, W, C]; C as asked for, if 1 or 3."""
    folder = Path(path).expanduser().resolve()
    files = _images(folder, folder)
    return _names(files, folder), _read(
        folder, tuple(files), fingerprint(files, folder), _IN_MEMORY, channels if channels in (1, 3) else None
    )


def _names(files: list[Path], folder: Path) -> list[str]:
    """Where the files lie in the folder, as text."""
    return [os.fsencode(path.relative_to(folder)).decode("utf-8", "replace") for path in files]


_Part = tuple[list[Path], np.ndarray]  # files, and the label of each


def _listing(folder: Path, own_validation: bool) -> tuple[list[str], _Part, _Part, _Part]:
    """Class names, then files and labels for training, validation and test; empty where there is no such part."""
    nothing: _Part = ([], np.empty(0, dtype=np.int64))
    parts = [part for part in ("train", "test") if (folder / part).is_dir()]
    if not parts:
        classes, files, labels = _class_folders(folder, folder)
        return classes, (files, labels), nothing, nothing
    for_validation = [name for name in _VALIDATION if own_validation and (folder / name).is_dir()]
    if len(parts) == 1:
        missing = "test" if parts == ["train"] else "train"
        there = " and ".join(f"{name}/" for name in (*parts, *for_validation))
        remedy = "it needs train/ and test/, or class folders alone"
        if missing == "test" and for_validation:
            remedy += f"; if {for_validation[0]}/ is for testing, call it test/"
        raise FileNotFoundError(f"{folder} has {there} but no {missing}/; {remedy}")
    if len(for_validation) > 1:
        raise ValueError(f"{folder} has {' and '.join(f'{n}/' for n in for_validation)}: which one is for validation?")
    classes, train, labels = _class_folders(folder / "train", folder)
    val = _of_classes(folder, for_validation[0], classes) if for_validation else nothing
    return classes, (train, labels), val, _of_classes(folder, "test", classes)


def _of_classes(folder: Path, part: str, classes: list[str]) -> _Part:
    """Files and labels of a part whose classes are some of those for training."""
    found, files, labels = _class_folders(folder / part, folder)
    strange = sorted(set(found) - set(classes))
    if strange:
        raise ValueError(f"{folder / part / strange[0]} is a class that {folder / 'train'} does not have")
    place = np.array([classes.index(name) for name in found], dtype=np.int64)
    return files, place[labels]


def _class_folders(part: Path, root: Path) -> tuple[list[str], list[Path], np.ndarray]:
    classes = [entry for entry in _entries(part, root) if entry.is_dir()]
    if not classes:
        raise ValueError(f"{part} holds no class folders")
    if len(classes) < 2 and part in (root, root / "train"):
        raise ValueError(f"{part} holds one class only ({classes[0].name}), but a classifier needs 2 or more")
    files: list[Path] = []
    labels: list[int] = []
    for label, folder in enumerate(classes):
        found = _images(folder, root)
        files += found
        labels += [label] * len(found)
    return [folder.name for folder in classes], files, np.array(labels, dtype=np.int64)


def _images(folder: Path, root: Path) -> list[Path]:
    """Every picture below `folder`, by its path in it."""
    waiting, found = [folder], list[Path]()
    while waiting:
        for entry in _entries(waiting.pop(), root):
            if entry.is_dir():
                waiting += [] if entry.is_symlink() else [entry]  # a link may lead up again
            elif entry.suffix.lower() in _SUFFIXES and entry.is_file():
                found.append(entry)
    if not found:
        raise ValueError(f"{folder} holds no image ({', '.join(_SUFFIXES)})")
    return sorted(found)


def _entries(folder: Path, root: Path) -> list[Path]:
    """What lies in `folder`, by name, hidden entries left out; a link that leads out of the data is refused."""
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    for entry in entries:
        if not entry.resolve().is_relative_to(root):
            raise ValueError(f"{entry} leads to {entry.resolve()}, outside of {root}")
    return entries


def _pixels(folder: Path, files: list[Path]) -> np.ndarray:
    """The pixels of all files; several runs on one folder read it once, as long as no file changes."""
    return _read(folder, tuple(files), fingerprint(files, folder), _IN_MEMORY, None)


@lru_cache(maxsize=1)
def _read(folder: Path, files: tuple[Path, ...], _fingerprint: str, in_memory: int, channels: int | None) -> np.ndarray:
    with open_image(files[0]) as first:
        width, height = shown_size(first)
    grey = True
    for path in files:  # headers only: a wrong size is found before the long work of decoding begins
        with open_image(path) as image:
            grey = grey and image.mode in ("1", "L")
            if (size := shown_size(image)) != (width, height):
                got = f"{size[0]} x {size[1]}"
                raise ValueError(f"{path} has {got} pixels, but {files[0]} has {width} x {height}: one size is needed")
    shape = (height, width, channels or (1 if grey else 3))
    if len(files) * int(np.prod(shape)) > in_memory:
        return cached(files, folder.with_name(f"{folder.name}.pixels"), shape, folder)
    pixels = np.empty((len(files), *shape), dtype=np.uint8)
    for position, decoded in enumerate(decode(files, shape)):
        pixels[position] = decoded
    return pixels
