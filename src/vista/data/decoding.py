"""Decode image files into one uint8 array, in memory or in a memory-mapped cache file."""

import contextlib
import hashlib
import json
import os
import struct
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image

FORMAT = "vista.pixels"
VERSION = 2  # version 1 ignored EXIF orientation and transparency
_HEADER = 4096  # bytes: JSON padded with blanks, so that the pixels are page-aligned
_MODES = {1: "L", 3: "RGB"}
_EIGHT_BIT = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # fmt: skip


def open_image(path: Path) -> Image.Image:
    """Open the image at `path` without reading its pixels; errors name the file."""
    try:
        image = Image.open(path)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path} is not a readable image: {error}") from error
    if image.mode not in _EIGHT_BIT:
        image.close()
        raise ValueError(f"{path} must have 8 bits per channel, got an image of mode {image.mode}")
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
    if image.has_transparency_data:
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    return image.convert(mode)


def decode(files: Sequence[Path], shape: tuple[int, int, int]) -> Iterator[np.ndarray]:
    """Decode each file in order to uint8 [H, W, C] = `shape`, as a viewer shows it; C is 1 or 3."""
    height, width, channels = shape

    def one(path: Path) -> np.ndarray:
        with open_image(path) as image:
            try:
                shown = _render(image, _MODES[channels])
            except (OSError, SyntaxError, ValueError) as error:
                raise ValueError(f"{path} is not a readable image: {error}") from error
        if shown.size != (width, height):
            raise ValueError(f"{path} must have {width} x {height} pixels, got {shown.width} x {shown.height}")
        return np.asarray(shown).reshape(shape)

    with ThreadPoolExecutor() as pool:  # the decoders release the GIL
        for start in range(0, len(files), 1024):  # in chunks, to bound the memory of decoded images
            yield from pool.map(one, files[start : start + 1024])


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
    # Copy on write: changes of the array do not reach the file.
    return np.memmap(cache, dtype=np.uint8, mode="c", offset=_HEADER, shape=full)


def fingerprint(files: Sequence[Path], root: Path) -> str:
    """Return the SHA-256 over name, size and modification time of every file, in order."""
    digest = hashlib.sha256()
    for path in files:
        state = path.stat()
        digest.update(f"{path.relative_to(root)}\0{state.st_size}\0{state.st_mtime_ns}\n".encode(errors="replace"))
    return digest.hexdigest()


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
