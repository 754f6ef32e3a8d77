"""Read `folder:PATH`: images in PATH/train/<class>/* and PATH/test/<class>/*, or in PATH/<class>/* alone.

Next to train/ and test/, val/<class>/* is optional. Images in subfolders of a class folder belong to that class.

Images of one size up to 64 pixels are used unchanged. Photos of any other size, or of several sizes, become squares:
the shorter side is resized to 8/7 of the working resolution and the centre cropped, once, into a pixel file next to the
folder. Evaluation uses the centre of these squares, training a random resized crop.
"""

import difflib
import errno
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from vista.data import pixel_file
from vista.data.decoding import (
    GREY,
    DamagedImage,
    decode,
    decode_cached,
    decode_one,
    fingerprint,
    in_threads,
    names_below,
    open_image,
    shown_size,
)
from vista.data.pixel_file import Headers, Photos, stored_size
from vista.data.source import Source, channel_statistics, default_padding, draw_test_ids

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm")
_VALIDATION = ("val", "valid", "validation")  # next to train/ and test/
_IN_MEMORY = 2**30  # bytes; more is memory-mapped from a file next to the folder
PHOTO_SIZE = 64  # default working resolution of photos; images of one size up to this are used unchanged


def load(
    path: str | Path, own_validation: bool = True, image_size: int | None = None, skip_damaged: bool = False
) -> Source:
    """Read a data set from a folder of class folders.

    Images may have any size, mode and format; C = 1 if all are greyscale. Classes are sorted by name, samples by class
    and file name. Without train/ and test/, a stratified fifth becomes the test set, the same for every seed.
    Validation samples follow the training samples.

    Args:
        path: The folder.
        own_validation: Whether to read val/.
        image_size: Working resolution; by default 64, or none if all images have one size up to 64 pixels.
        skip_damaged: Leave out files that cannot be decoded, with a warning, instead of raising ``ValueError``.

    Returns:
        The data set.
    """
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        raise _no_folder(path, folder)
    classes, (train, train_labels), (val, val_labels), (test, test_labels) = _listing(folder, own_validation)
    if not test:
        _check_counts(folder, classes, train_labels)
    files, labels = train + val + test, np.concatenate([train_labels, val_labels, test_labels])
    read = read_listed(folder, files, image_size, skip_damaged)
    files, labels = [files[position] for position in read.kept], labels[read.kept]
    ends = np.searchsorted(read.kept, [len(train), len(train) + len(val)])
    _check_parts(folder, classes, labels, ends, bool(test))
    training, known = (int(end) for end in ends)  # files up to `known` are training and validation samples
    inputs, test_inputs, test_labels, test_ids = read.pixels[:known], read.pixels[known:], labels[known:], None
    labels = labels[:known]
    if not test:
        test_ids = draw_test_ids(labels, folder)
        test_inputs, test_labels = inputs, labels[test_ids]
    names = _names(files, folder)
    if read.photos is None:
        mean, std = channel_statistics(inputs[:training], test_ids)
    else:
        mean, std = read.photos.statistics(np.setdiff1d(np.arange(training), () if test_ids is None else test_ids))
    return Source(
        name=f"folder:{path}",
        inputs=inputs,
        labels=labels,
        test_inputs=test_inputs,
        test_labels=test_labels,
        classes=tuple(os.fsencode(name).decode("utf-8", "replace") for name in classes),
        mean=mean,
        std=std,
        padding=default_padding(read.pixels) if read.photos is None else 0,
        test_ids=test_ids,
        validation=np.arange(training, known) if known > training else None,
        files=tuple(names[:known]),
        test_files=tuple(names[known:] if test_ids is None else (names[position] for position in test_ids)),
        image_size=read.image_size,
        image_hashes=None if read.photos is None else read.photos.hashes,
    )


def count(path: str | Path, own_validation: bool = True) -> tuple[int, int, int, bool]:
    """Count classes, training and validation images without opening them, and tell whether there is a test set.

    Args:
        path: The folder.
        own_validation: Whether val/ is read.

    Returns:
        Number of classes, of training images and of images in val/, and whether test/ exists. Without test/, the
        training images include those that become the test set.
    """
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        raise _no_folder(path, folder)
    classes, (train, _), (val, _), (test, _) = _listing(folder, own_validation)
    return len(classes), len(train), len(val), bool(test)


def _no_folder(path: str | Path, folder: Path) -> FileNotFoundError:
    if folder.is_file():
        return FileNotFoundError(f"{folder} is a file, but folder: needs the folder that contains the class folders")
    beside = [entry.name for entry in folder.parent.iterdir() if entry.is_dir()] if folder.parent.is_dir() else []
    near = difflib.get_close_matches(folder.name, sorted(beside), n=1)
    remedy = "" if Path(path).is_absolute() else "; --root can name the folder that contains it"
    if near:
        remedy = f"; did you mean {near[0]!r}?"
    return FileNotFoundError(f"data folder {folder} does not exist{remedy}")


def read_listed(
    folder: Path, files: Sequence[Path], image_size: int | None, skip_damaged: bool, base: Path | None = None
) -> "Decoded":
    """Decode listed image files.

    Args:
        folder: Their folder.
        files: The files, below `folder`.
        image_size: Working resolution; see :func:`load`.
        skip_damaged: Leave out damaged files, with a warning, instead of raising ``ValueError``.
        base: What the pixel file is named after and stored next to; `folder` by default.

    Returns:
        The images, and which files they are of.
    """
    state = fingerprint(files, folder)
    try:
        read = _read(folder, tuple(files), state, _IN_MEMORY, image_size, skip_damaged, base or folder)
    except DamagedImage as error:
        raise _damaged(error) from error
    _report_damaged(folder, read.damaged, len(files))
    return read


def read_images(
    path: str | Path, channels: int, image_size: int | None = None, skip_damaged: bool = False
) -> tuple[list[str], np.ndarray]:
    """Read an image file, or every image below a folder at any depth, without labels.

    Args:
        path: The file or folder.
        channels: Channels to convert to, if 1 or 3; otherwise 1 if all images are greyscale, else 3.
        image_size: Working resolution of a run on photos: images are resized as for that run. None leaves their size,
            which must then be the same for all.
        skip_damaged: Leave out damaged files, with a warning, instead of raising ``ValueError``.

    Returns:
        The paths of the readable files relative to the folder, and uint8 [N, H, W, C].
    """
    found = Path(path).expanduser().resolve()
    folder, files = (found.parent, [found]) if found.is_file() else (found, _images(found, found))
    kept, pixels = read_files(folder, files, channels, image_size, skip_damaged)
    return _names([files[position] for position in kept], folder), pixels


def count_images(path: str | Path) -> int:
    """Count the images below a folder at any depth, without opening them."""
    folder = Path(path).expanduser().resolve()
    return len(_images(folder, folder))


def read_files(
    folder: Path, files: Sequence[Path], channels: int, image_size: int | None, skip_damaged: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Read listed image files below `folder`; see :func:`read_images`.

    Returns:
        Positions of the readable files, and uint8 [N, H, W, C].
    """
    wanted = channels if channels in (1, 3) else None
    read: Decoded | Photos
    try:
        if image_size is None:
            read = _read_unchanged(folder, tuple(files), _IN_MEMORY, wanted, skip_damaged)
        else:
            read = _read_resized(folder, files, image_size, wanted == 1, skip_damaged)
    except DamagedImage as error:
        raise _damaged(error) from error
    _report_damaged(folder, read.damaged, len(files))
    return read.kept, read.pixels


def _read_resized(folder: Path, files: Sequence[Path], image_size: int, grey: bool, skip_damaged: bool) -> Photos:
    size, channels = stored_size(image_size), 1 if grey else 3
    if len(files) * size**2 * channels <= _IN_MEMORY:
        return pixel_file.decode_all(files, folder, size, channels, skip_damaged)
    cache = _cache(folder, image_size, ".new")
    return pixel_file.open_photos(cache, files, folder, size, Headers(None, grey), skip_damaged, _IN_MEMORY)


def _damaged(error: DamagedImage) -> ValueError:
    return ValueError(f"{error}; replace or delete it, or leave out such files with --skip-damaged")


def _check_counts(folder: Path, classes: list[str], labels: np.ndarray) -> None:
    """Without a test folder, every class needs an image to train on and another to test on."""
    for label in np.flatnonzero(np.bincount(labels, minlength=len(classes)) < 2):
        raise ValueError(
            f"{folder / classes[label]} must contain at least 2 images, got 1: add one, or remove the folder"
        )


def _report_damaged(folder: Path, damaged: Sequence[str], total: int) -> None:
    """Warn of files that are left out, and raise ``ValueError`` if none is left."""
    count = len(damaged)
    if count == total:
        raise ValueError(f"{folder} contains no readable image: {damaged[0]}")
    if count:
        images = f"{count:,} of {total:,} images cannot be read and {'is' if count == 1 else 'are'} left out"
        warnings.warn(f"{images}: {'; '.join(damaged[:3])}{' ...' if count > 3 else ''}", stacklevel=3)


def _check_parts(folder: Path, classes: list[str], labels: np.ndarray, ends: np.ndarray, has_test: bool) -> None:
    """Every class must have a readable training image, and a test folder a readable image."""
    missing = np.setdiff1d(np.arange(len(classes)), labels[: ends[0]])
    if len(missing):
        raise ValueError(f"class {classes[missing[0]]!r} of {folder} has no readable training image: add one")
    if has_test and ends[1] == len(labels):
        raise ValueError(f"{folder / 'test'} contains no readable image: add one")


def _names(files: list[Path], folder: Path) -> list[str]:
    """Return the paths relative to the folder, as text."""
    return [os.fsencode(name).decode("utf-8", "replace") for name in names_below(files, folder)]


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
    classes = [Path(entry.path) for entry in _entries(part, root) if entry.is_dir()]
    if not classes:
        images = sum(entry.suffix.lower() in SUFFIXES for entry in part.iterdir())
        instead = f", but {images:,} image{'' if images == 1 else 's'}" if images else ""
        raise ValueError(
            f"{part} contains no class folders{instead}: put the images of each class into a folder named after it, or "
            "list images and labels in a table (--data csv:FILE --image-column NAME)"
        )
    if len(classes) < 2 and part in (root, root / "train"):
        raise ValueError(
            f"{part} must have at least 2 class folders, got 1 ({classes[0].name}): add one for each other class"
        )
    files: list[Path] = []
    labels: list[int] = []
    for label, folder in enumerate(classes):
        found = _images(folder, root)
        files += found
        labels += [label] * len(found)
    return [folder.name for folder in classes], files, np.array(labels, dtype=np.int64)


def _images(folder: Path, root: Path) -> list[Path]:
    """List every image below `folder`, sorted by path."""
    waiting, found = [os.fspath(folder)], list[str]()
    while waiting:
        for entry in _entries(waiting.pop(), root):
            if entry.is_dir():
                waiting += [] if entry.is_symlink() else [entry.path]  # a link may point to a parent
            elif os.path.splitext(entry.name)[1].lower() in SUFFIXES and entry.is_file():
                found.append(entry.path)
    if not found:
        raise ValueError(f"{folder} contains no images ({', '.join(SUFFIXES)}): add some, or remove the folder")
    return [Path(path) for path in sorted(found, key=lambda path: path.split(os.sep))]


def _entries(folder: str | Path, root: Path) -> list[os.DirEntry[str]]:
    """List `folder` sorted by name, without hidden entries; links to outside of `root` are rejected."""
    with os.scandir(folder) as listed:
        entries = sorted((e for e in listed if not e.name.startswith(".")), key=lambda entry: entry.name)
    links = [entry.path for entry in entries if entry.is_symlink()]
    for path in (folder, *links):  # what is not a link is where its folder is
        if not (target := Path(path).resolve()).is_relative_to(root):
            raise ValueError(f"{path} links to {target}, outside of {root}")
    return entries


@dataclass(frozen=True)
class Decoded:
    """Images of a folder: `kept` are the positions of the readable files, `photos` the pixel file if one is used."""

    pixels: np.ndarray
    kept: np.ndarray
    damaged: tuple[str, ...] = ()
    image_size: int | None = None
    photos: Photos | None = None


@lru_cache(maxsize=1)
def _read(
    folder: Path,
    files: tuple[Path, ...],
    _fingerprint: str,
    in_memory: int,
    image_size: int | None,
    skip_damaged: bool,
    base: Path,
) -> Decoded:
    """Decode all files; several runs on one folder decode it once, unless a file changes."""
    working = PHOTO_SIZE if image_size is None else image_size
    cache = _cache(base, working)
    about = pixel_file.read_description(cache, files, folder)
    headers = pixel_file.read_headers(files) if about is None else pixel_file.headers_of(about)
    if headers.size is not None and is_unchanged(headers.size, image_size):
        return _read_unchanged(folder, files, in_memory, None, skip_damaged, base)
    size, channels = stored_size(working), 1 if headers.grey else 3
    try:
        photos = pixel_file.open_photos(cache, files, folder, size, headers, skip_damaged, in_memory, about)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise
        fits = len(files) * size * size * channels <= in_memory
        decode_again = pixel_file.decode_all if fits else pixel_file.stream
        photos = decode_again(files, folder, size, channels, skip_damaged)
    if photos.are_streamed:
        warnings.warn(
            f"the decoded photos need {photos.pixels.nbytes / 1e9:,.1f} GB, which cannot be stored in {cache.parent}: "
            "they are decoded again in every epoch; free space there to decode them once",
            stacklevel=4,
        )
    return Decoded(photos.pixels, photos.kept, photos.damaged, working, photos)


def _cache(folder: Path, image_size: int, suffix: str = "") -> Path:
    return folder.with_name(f"{folder.name}{suffix}.{image_size}px.pixels")


def is_unchanged(size: tuple[int, int], image_size: int | None) -> bool:
    """Whether images that all have this size are used as they are."""
    return max(size) <= PHOTO_SIZE if image_size is None else size == (image_size, image_size)


def _read_unchanged(
    folder: Path,
    files: tuple[Path, ...],
    in_memory: int,
    channels: int | None,
    skip_damaged: bool,
    base: Path | None = None,
) -> Decoded:
    """Decode files of one size without resizing; only readable files are kept if `skip_damaged`."""
    kept, damaged = np.arange(len(files)), tuple[str, ...]()
    if skip_damaged:
        kept, damaged = _readable(files)
        files = tuple(files[position] for position in kept)
        if not files:
            return Decoded(np.empty((0, 1, 1, 3), dtype=np.uint8), kept, damaged)
    with open_image(files[0]) as first:
        width, height = shown_size(first)
    grey = True
    for path in files:  # headers only: a wrong size is reported before the slow decoding
        with open_image(path) as image:
            grey = grey and image.mode in GREY
            if (size := shown_size(image)) != (width, height):
                expected = f"{width} x {height} pixels like {files[0]}"
                raise ValueError(f"{path} must have {expected}, got {size[0]} x {size[1]}")
    shape = (height, width, channels or (1 if grey else 3))
    if len(files) * int(np.prod(shape)) > in_memory:
        cache = (base or folder).with_name(f"{(base or folder).name}.pixels")
        return Decoded(decode_cached(files, cache, shape, folder), kept, damaged)
    pixels = np.empty((len(files), *shape), dtype=np.uint8)
    for position, decoded in enumerate(decode(files, shape)):
        pixels[position] = decoded
    return Decoded(pixels, kept, damaged)


def _readable(files: tuple[Path, ...]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the positions of the files that can be decoded, and the error of each other one."""

    def check(path: Path) -> str | None:
        try:
            with open_image(path) as image:
                width, height = shown_size(image)
            decode_one(path, (height, width, 3))
        except DamagedImage as error:
            return str(error)
        return None

    errors = list(in_threads(check, files))
    kept = np.array([position for position, error in enumerate(errors) if error is None], dtype=np.int64)
    return kept, tuple(error for error in errors if error is not None)
