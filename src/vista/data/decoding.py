"""Decode image files into one uint8 array, in memory or in a memory-mapped cache file."""

import contextlib
import hashlib
import json
import math
import os
import re
import struct
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from vista.files.mapping import map_bytes

FORMAT = "vista.pixels"
VERSION = 2  # version 1 ignored EXIF orientation and transparency
_HEADER = 4096  # bytes: JSON padded with blanks, so that the pixels are page-aligned
_MODES = {1: "L", 3: "RGB"}
_EIGHT_BIT = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")
_SIXTEEN_BIT = ("I;16", "I;16L", "I;16B", "I;16N", "I")  # Pillow reads 16-bit PGM files as "I"
GREY = ("1", "L", *_SIXTEEN_BIT)
_CHUNK = 256  # files in progress at a time, to bound the memory of decoded images
_DRAFT = 2  # a JPEG is decoded at the smallest scale with this many times the requested pixels per side
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # fmt: skip


class DamagedImage(ValueError):
    """A file that cannot be decoded; the message begins with its path."""


def open_image(path: Path) -> Image.Image:
    """Open the image at `path` without reading its pixels; errors name the file."""
    try:
        image = Image.open(path)
    except UnidentifiedImageError as error:  # its message repeats the path
        raise DamagedImage(f"{path} is not a readable image: it is damaged, or of an unknown format") from error
    except Image.DecompressionBombError as error:
        pixels, most = int(re.findall(r"\d+", str(error))[0]), 2 * (Image.MAX_IMAGE_PIXELS or 0)
        raise DamagedImage(
            f"{path} is not a readable image: it has {pixels:,} pixels, but at most {most:,} are read"
        ) from error
    except (OSError, SyntaxError, ValueError) as error:
        raise DamagedImage(f"{path} is not a readable image: {error}") from error
    if image.mode not in _EIGHT_BIT and image.mode not in _SIXTEEN_BIT:
        image.close()
        raise DamagedImage(
            f"{path} must have 8 or 16 bits per channel, got an image of mode {image.mode}; save it as PNG"
        )
    return image


def shown_size(image: Image.Image) -> tuple[int, int]:
    """Return width and height of the image as a viewer shows it, from its header."""
    width, height = image.size
    return (height, width) if _orientation(image) >= 5 else (width, height)


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 to 8; 1 (upright) if it is missing or corrupt."""
    if image.format == "TIFF":
        return 1  # Pillow applies it when loading
    try:
        # The base class's method: that of PNG images would read all pixels.
        value = Image.Image.getexif(image).get(ExifTags.Base.Orientation, 1)
    except (OSError, SyntaxError, ValueError, TypeError, LookupError, struct.error):
        return 1
    return value if value in _TRANSPOSE else 1


def _render(image: Image.Image, mode: str) -> Image.Image:
    """Render the image as a viewer shows it: EXIF orientation applied, transparency on white."""
    image.load()
    if (orientation := _orientation(image)) != 1:
        image = image.transpose(_TRANSPOSE[orientation])
    return _flatten(image, mode)


def _render_square(image: Image.Image, mode: str, size: int) -> Image.Image:
    """Resize the centre square to size x size with antialiasing, as a viewer shows it.

    This equals resizing the shorter side and cropping the centre, in one resampling.
    """
    image.draft(mode, (_DRAFT * size, _DRAFT * size))  # for JPEG: the decoder itself reduces the image by 2, 4 or 8
    image.load()
    orientation = _orientation(image)
    image = _flatten(image, mode)
    side = min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    square = image.resize((size, size), Image.Resampling.BICUBIC, box=(left, top, left + side, top + side))
    return square if orientation == 1 else square.transpose(_TRANSPOSE[orientation])


def _flatten(image: Image.Image, mode: str) -> Image.Image:
    """Convert to L or RGB: 16 bits per channel reduced to 8, transparency on white."""
    if image.mode in _SIXTEEN_BIT:
        values = np.asarray(image).astype(np.int64).clip(0, 2**16 - 1)
        image = Image.fromarray((values >> 8).astype(np.uint8))
    if image.has_transparency_data:
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    return image if image.mode == mode else image.convert(mode)


def _decode_with(path: Path, render: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """Open and render one file; errors name it."""
    with open_image(path) as image:
        try:
            return render(image)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise DamagedImage(f"{path} is not a readable image: {error}") from error


def decode_one(path: Path, shape: tuple[int, int, int]) -> np.ndarray:
    """Decode a file to uint8 [H, W, C] = `shape`, as a viewer shows it; C is 1 or 3."""
    height, width, channels = shape
    shown = _decode_with(path, partial(_render, mode=_MODES[channels]))
    if shown.size != (width, height):
        raise ValueError(f"{path} must have {width} x {height} pixels, got {shown.width} x {shown.height}")
    return np.asarray(shown).reshape(shape)


def decode_square(path: Path, size: int, channels: int) -> np.ndarray:
    """Decode a file of any size, mode and format to uint8 [size, size, channels]: its centre square, resized.

    Args:
        path: The image file.
        size: Height and width of the result.
        channels: 1 or 3.

    Returns:
        The pixels. A damaged or oversized file raises ``ValueError`` with its name.
    """
    square = _decode_with(path, partial(_render_square, mode=_MODES[channels], size=size))
    return np.asarray(square).reshape(size, size, channels)


def decode(files: Sequence[Path], shape: tuple[int, int, int]) -> Iterator[np.ndarray]:
    """Decode each file in order to uint8 [H, W, C] = `shape`, as a viewer shows it; C is 1 or 3."""
    return in_threads(partial(decode_one, shape=shape), files)


T = TypeVar("T")


def in_threads(function: Callable[[Path], T], files: Sequence[Path]) -> Iterator[T]:
    """Apply a function to each file, in order, in one thread per core: the decoders of Pillow release the GIL."""
    with warnings.catch_warnings(), ThreadPoolExecutor(cores()) as pool:
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # twice the pixels are an error
        for start in range(0, len(files), _CHUNK):
            yield from pool.map(function, files[start : start + _CHUNK])


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def decode_cached(files: Sequence[Path], cache: Path, shape: tuple[int, int, int], root: Path) -> np.ndarray:
    """Memory-map the pixels of `files` (below `root`) from `cache`, decoding them first if a file has changed."""
    full = (len(files), *shape)
    header = {"format": FORMAT, "version": VERSION, "shape": list(full), "made_from": fingerprint(files, root)}
    size = _HEADER + int(np.prod(full))
    if not _is_current(cache, header, size):
        try:
            _write(cache, header, decode(files, shape))
        except OSError as error:
            raise OSError(f"cannot write the decoded images ({size:,} bytes) to {cache}: {error}") from error
    return map_pixels(cache, _HEADER, full)


def map_pixels(path: Path, offset: int, shape: Sequence[int]) -> np.ndarray:
    """Map uint8 values of a file, copied on write: changes of the array do not reach the file."""
    with path.open("rb") as file:
        return map_bytes(file)[offset : offset + math.prod(shape)].reshape(shape)


def fingerprint(files: Sequence[Path], root: Path) -> str:
    """Return the SHA-256 over name, size and modification time of every file, in order."""
    digest = hashlib.sha256()
    for path, name in zip(files, names_below(files, root), strict=True):
        state = os.stat(path)
        digest.update(f"{name}\0{state.st_size}\0{state.st_mtime_ns}\n".encode(errors="replace"))
    return digest.hexdigest()


def names_below(files: Sequence[Path], root: Path) -> list[str]:
    """Return the path of every file relative to `root`: cut off, which is ten times faster than ``relative_to``."""
    start = f"{root}{os.sep}"
    texts = map(str, files)
    return [t[len(start) :] if t.startswith(start) else str(Path(t).relative_to(root)) for t in texts]


def _is_current(cache: Path, header: dict[str, object], size: int) -> bool:
    try:
        with cache.open("rb") as file:
            return os.fstat(file.fileno()).st_size == size and json.loads(file.read(_HEADER)) == header
    except (OSError, ValueError):  # missing, or not our format
        return False


def _write(cache: Path, header: dict[str, object], images: Iterator[np.ndarray]) -> None:
    """Write the cache atomically."""
    handle, name = tempfile.mkstemp(prefix=f"{cache.name}.", suffix=".tmp", dir=cache.parent)
    try:
        with os.fdopen(handle, "wb") as file:  # not mapped: a full disk would kill the process
            file.write(json.dumps(header).encode().ljust(_HEADER))
            for image in images:
                file.write(image.tobytes())
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(cache)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
