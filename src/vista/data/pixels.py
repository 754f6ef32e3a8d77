"""Image files decoded into one uint8 array, in memory or in a file that is mapped into it."""

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
VERSION = 2  # 1 had pictures as they lie, and the colours under transparency
_HEADER = 4096  # bytes: JSON, then blanks, so that the pixels start on a page
_MODES = {1: "L", 3: "RGB"}
_EIGHT_BIT = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # fmt: skip


def open_image(path: Path) -> Image.Image:
    """The image at `path`, its pixels not yet read, or an error that names the file."""
    try:
        image = Image.open(path)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path} is no readable image: {error}") from error
    if image.mode not in _EIGHT_BIT:
        image.close()
        raise ValueError(f"{path} is an image of mode {image.mode}, but pixels must have 8 bits")
    return image


def shown_size(image: Image.Image) -> tuple[int, int]:
    """Width and height of the image as a viewer shows it, from its header."""
    width, height = image.size
    return (height, width) if _orientation(image) >= 5 else (width, height)


def _orientation(image: Image.Image) -> int:
    """How the pixels lie, 1 to 8 as EXIF counts; 1, as they are shown, where it does not say so or is broken."""
    if image.format == "TIFF":
        return 1  # Pillow turns these itself
    try:
        said = Image.Image.getexif(image).get(ExifTags.Base.Orientation, 1)  # that of PNG alone would read all pixels
    except (OSError, SyntaxError, ValueError, TypeError, LookupError, struct.error):
        return 1
    return said if said in _TURNS else 1


def _shown(image: Image.Image, mode: str) -> Image.Image:
    """The image as a viewer shows it: turned as its EXIF says, on white where it is transparent."""
    image.load()
    if (orientation := _orientation(image)) != 1:
        image = image.transpose(_TURNS[orientation])
    if image.has_transparency_data:
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    return image.convert(mode)


def decode(files: Sequence[Path], shape: tuple[int, int, int]) -> Iterator[np.ndarray]:
    """The pixels of each file as it is shown, in turn, uint8 [H, W, C] with C = 1 or 3; all must be H by W."""
    height, width, channels = shape

    def one(path: Path) -> np.ndarray:
        with open_image(path) as image:
            try:
                shown = _shown(image, _MODES[channels])
            except (OSError, SyntaxError, ValueError) as error:
                raise ValueError(f"{path} is no readable image: {error}") from error
        if shown.size != (width, height):
            got = f"{shown.width} x {shown.height}"
            raise ValueError(f"{path} has {got} pixels, but {width} x {height} are needed")
        return np.asarray(shown).reshape(shape)

    with ThreadPoolExecutor() as pool:  # the decoders let go of the interpreter lock
        for start in range(0, len(files), 1024):  # in pieces, so that few images wait at a time
            yield from pool.map(one, files[start : start + 1024])


def cached(files: Sequence[Path], cache: Path, shape: tuple[int, int, int], root: Path) -> np.ndarray:
    """The pixels of `files` (below `root`), mapped from `cache`; made once, and again when a file changed."""
    full = (len(files), *shape)
    header = {"format": FORMAT, "version": VERSION, "shape": list(full), "made_from": fingerprint(files, root)}
    size = _HEADER + int(np.prod(full))
    if not _is_current(cache, header, size):
        try:
            _write(cache, header, decode(files, shape))
        except OSError as error:
            raise OSError(f"cannot write the decoded images ({size:,} bytes) to {cache}: {error}") from error
    # Copy on write: nobody can change the file by changing the array.
    return np.memmap(cache, dtype=np.uint8, mode="c", offset=_HEADER, shape=full)


def fingerprint(files: Sequence[Path], root: Path) -> str:
    """SHA-256 over name, size and time of change of every file, in order."""
    digest = hashlib.sha256()
    for path in files:
        state = path.stat()
        digest.update(f"{path.relative_to(root)}\0{state.st_size}\0{state.st_mtime_ns}\n".encode(errors="replace"))
    return digest.hexdigest()


def _is_current(cache: Path, header: dict[str, object], size: int) -> bool:
    try:
        with cache.open("rb") as file:
            return os.fstat(file.fileno()).st_size == size and json.loads(file.read(_HEADER)) == header
    except (OSError, ValueError):  # not there, or not ours
        return False


def _write(cache: Path, header: dict[str, object], images: Iterator[np.ndarray]) -> None:
    """Write under a temporary name, then rename: whoever finds the cache finds all of it."""
    handle, name = tempfile.mkstemp(prefix=f"{cache.name}.", suffix=".tmp", dir=cache.parent)
    try:
        with os.fdopen(handle, "wb") as file:  # written, not mapped: a full disk is an error then, not a killed process
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
