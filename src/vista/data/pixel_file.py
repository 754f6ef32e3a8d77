"""Photos of any size as one file of square uint8 images, decoded once.

Layout: pixels ``[N, S, S, C]``, a JSON description, and the length of the description in the last 8 bytes. The
description lists every source file with its size and modification time; for each decoded image it holds a hash and the
sums that give mean and standard deviation, for each damaged one the error. The file is current as long as no source
file was added, removed or changed. Where the disk lacks space for the pixels, the file has the description alone.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image

from vista.data.decoding import (
    GREY,
    DamagedImage,
    decode_square,
    in_threads,
    map_pixels,
    names_below,
    open_image,
    shown_size,
)
from vista.data.streamed_photos import StreamedPhotos

FORMAT = "vista.photos"
VERSION = 1
_LENGTH = 8  # bytes at the end of the file
_FREE = 1.1  # share of the pixels' size that must be free on the disk
_MARGIN = 256 / 224  # stored size / working size: random crops need material around the centre
_VALUES = np.arange(256)  # of a pixel
Description = dict[str, Any]  # what the end of the file says, with an entry for each source file


def _unobserved(done: int, total: int) -> None:
    """Discard the progress."""


on_progress: Callable[[int, int], None] = _unobserved  # called with the images decoded so far and in total


def stored_size(image_size: int) -> int:
    """Return the side of the stored squares for a working resolution.

    >>> stored_size(64), stored_size(224)
    (73, 256)
    """
    return round(image_size * _MARGIN)


@dataclass(frozen=True)
class Headers:
    """What the headers of all readable images have in common.

    Attributes:
        size: Width and height if all images have the same, otherwise None.
        grey: Whether all images are greyscale.
    """

    size: tuple[int, int] | None
    grey: bool


@dataclass(frozen=True)
class Photos:
    """Decoded photos.

    Attributes:
        pixels: uint8 ``[M, S, S, C]`` of the readable files: in memory, memory-mapped, or decoded when read.
        kept: Their positions in the list of files, ascending, ``[M]``.
        damaged: Error message of every other file.
        hashes: SHA-256 of each image in ``pixels``.
        sums: Sum and sum of squares of each image's pixel values per channel, int64 ``[M, 2, C]``.
    """

    pixels: np.ndarray
    kept: np.ndarray
    damaged: tuple[str, ...]
    hashes: tuple[str, ...]
    sums: np.ndarray

    @property
    def are_streamed(self) -> bool:
        """Whether images are decoded when they are read."""
        pixels: Any = self.pixels
        return isinstance(pixels, StreamedPhotos)

    def statistics(self, rows: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return mean and standard deviation per channel of pixel / 255 over some rows; std 1 if constant."""
        count = len(rows) * int(np.prod(self.pixels.shape[1:3]))
        total, squares = self.sums[rows].sum(axis=0)
        mean = total / count
        spread = np.sqrt(np.maximum(squares / count - mean**2, 0))
        return tuple((mean / 255).tolist()), tuple(np.where(spread > 1e-6, spread / 255, 1.0).tolist())


def read_headers(files: Sequence[Path]) -> Headers:
    """Open all files, without decoding them, to find out whether they share one size and are all greyscale."""

    def look(path: Path) -> tuple[tuple[int, int], bool] | None:
        try:
            with open_image(path) as image:
                return shown_size(image), image.mode in GREY
        except DamagedImage:  # decoding reports it
            return None

    found = [header for header in in_threads(look, files) if header is not None]
    sizes = {size for size, _ in found}
    return Headers(sizes.pop() if len(sizes) == 1 else None, bool(found) and all(grey for _, grey in found))


def decode_all(files: Sequence[Path], root: Path, size: int, channels: int, skip_damaged: bool) -> Photos:
    """Decode files into memory; see :func:`open_photos`."""
    pixels = np.empty((len(files), size, size, channels), dtype=np.uint8)
    rows = [0]

    def store(image: np.ndarray) -> None:
        pixels[rows[0]] = image
        rows[0] += 1

    entries = _decode(files, root, size, channels, skip_damaged, store)
    return _photos(pixels[: rows[0]], root, entries)


def stream(files: Sequence[Path], root: Path, size: int, channels: int, skip_damaged: bool) -> Photos:
    """Decode files once for hashes and statistics, without keeping the pixels, and again whenever they are read."""
    entries = _decode(files, root, size, channels, skip_damaged, _discard)
    return _streamed(files, root, size, channels, entries)


def _streamed(files: Sequence[Path], root: Path, size: int, channels: int, entries: list["Entry"]) -> Photos:
    readable = [path for path, entry in zip(files, entries, strict=True) if "hash" in entry]
    return _photos(cast("np.ndarray", StreamedPhotos(readable, size, channels)), root, entries)


def headers_of(about: Description) -> Headers:
    """Return the image headers as recorded in the pixel file."""
    return Headers(tuple(about["size"]) if about["size"] else None, about["grey"])


def open_photos(
    path: Path,
    files: Sequence[Path],
    root: Path,
    size: int,
    headers: Headers,
    skip_damaged: bool,
    in_memory: int,
    about: Description | None = None,
) -> Photos:
    """Return the pixels of `files` from the pixel file, which is written first if it is missing or not current.

    Several processes may call this at the same time: one of them decodes, the others wait for its file.

    Args:
        path: The pixel file.
        files: Image files below `root`.
        root: The folder that the recorded file names are relative to.
        size: Side of the stored squares.
        headers: Result of :func:`read_headers`.
        skip_damaged: Leave out files that cannot be decoded, instead of raising ``DamagedImage`` for the first.
        in_memory: Bytes of pixels up to which they are read into memory; more are memory-mapped, or decoded whenever
            they are read if the disk lacks space for them.
        about: Result of :func:`read_description`, if it was called before.

    Returns:
        The decoded photos.
    """
    about = about or read_description(path, files, root)
    if about is None or not about["stored"]:
        with _locked(path):
            values = len(files) * size * size * (1 if headers.grey else 3)
            stores = values <= in_memory or shutil.disk_usage(path.parent).free > values * _FREE
            about = read_description(path, files, root)
            if about is None or about["stored"] < stores:
                _write(path, files, root, size, headers, skip_damaged, stores)
                about = read_description(path, files, root)
    if about is None:
        raise ValueError(f"images in {root} changed while they were decoded: start again when they are complete")
    entries = about["entries"]
    if not skip_damaged:
        _reject_damaged(root, entries)
    shape = tuple(about["shape"])
    if not about["stored"]:
        return _streamed(files, root, shape[1], shape[3], entries)
    if np.prod(shape) <= in_memory:
        return _photos(np.fromfile(path, dtype=np.uint8, count=int(np.prod(shape))).reshape(shape), root, entries)
    return _photos(map_pixels(path, 0, shape), root, entries)


Entry = dict[str, Any]  # "hash", "sum" and "squares" of a decoded image, or "error", which begins with its name


def _photos(pixels: np.ndarray, root: Path, entries: list[Entry]) -> Photos:
    good = [entry for entry in entries if "hash" in entry]
    return Photos(
        pixels,
        np.array([position for position, entry in enumerate(entries) if "hash" in entry], dtype=np.int64),
        tuple(_full(root, entry["error"]) for entry in entries if "error" in entry),
        tuple(entry["hash"] for entry in good),
        np.array([(entry["sum"], entry["squares"]) for entry in good], dtype=np.int64).reshape(
            len(good), 2, pixels.shape[-1]
        ),
    )


def _full(root: Path, error: str) -> str:
    return f"{root}{os.sep}{error}"


def _reject_damaged(root: Path, entries: Iterable[Entry]) -> None:
    for entry in entries:
        if "error" in entry:
            raise DamagedImage(_full(root, entry["error"]))


def _decode(
    files: Sequence[Path],
    root: Path,
    size: int,
    channels: int,
    skip_damaged: bool,
    store: Callable[[np.ndarray], None],
) -> list[Entry]:
    """Decode the files in order, pass each image to `store`, and return one entry per file."""

    def one(path: Path) -> tuple[Entry, np.ndarray | None]:
        try:
            image = decode_square(path, size, channels)
        except DamagedImage as error:
            return {"error": str(error).removeprefix(f"{root}{os.sep}")}, None
        return _describe(image), image

    entries: list[Entry] = []
    for entry, image in in_threads(one, files):
        entries.append(entry)
        if image is not None:
            store(image)
        elif not skip_damaged:
            _reject_damaged(root, entries)
        on_progress(len(entries), len(files))
    return entries


def _describe(image: np.ndarray) -> Entry:
    """Hash, sum and sum of squares of ``[S, S, C]``; from Pillow's histogram, which is ten times faster than sums."""
    counts = np.array(Image.fromarray(image.squeeze()).histogram()).reshape(image.shape[-1], 256)
    return {
        "hash": hashlib.sha256(image.data).hexdigest(),
        "sum": (counts @ _VALUES).tolist(),
        "squares": (counts @ _VALUES**2).tolist(),
    }


def _listing(files: Sequence[Path], root: Path) -> list[list[Any]]:
    """Return name, size and modification time of each file."""
    listed = []
    for path, name in zip(files, names_below(files, root), strict=True):
        state = os.stat(path)
        listed.append([name, state.st_size, state.st_mtime_ns])
    return listed


def read_description(path: Path, files: Sequence[Path], root: Path) -> Description | None:
    """Return the description if the file is complete and was made from exactly these files, otherwise None."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(end - _LENGTH)
            length = int.from_bytes(file.read(_LENGTH), "little")
            file.seek(end - _LENGTH - length)
            about = json.loads(file.read(length))
        if (about["format"], about["version"]) != (FORMAT, VERSION):
            return None
        about.setdefault("stored", True)
        complete = end == int(np.prod(about["shape"])) * about["stored"] + length + _LENGTH
        return about if complete and about["files"] == _listing(files, root) else None
    except (OSError, ValueError, TypeError, KeyError, OverflowError):  # missing, damaged or another format
        return None


def _write(
    path: Path, files: Sequence[Path], root: Path, size: int, headers: Headers, skip_damaged: bool, stores: bool
) -> None:
    """Decode into a temporary file, then rename it; without `stores`, keep no pixels."""
    channels = 1 if headers.grey else 3
    needed = len(files) * size * size * channels
    try:
        handle, name = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".tmp", dir=path.parent)
    except OSError as error:
        raise _cannot_write(path, needed, error) from error
    try:
        with os.fdopen(handle, "wb") as file:  # not mapped: a full disk would kill the process
            listed = _listing(files, root)  # before decoding: a file that changes meanwhile makes this one outdated
            entries = _decode(files, root, size, channels, skip_damaged, partial(_append, file) if stores else _discard)
            about = {
                "format": FORMAT,
                "version": VERSION,
                **({} if stores else {"stored": False}),
                "shape": [sum("hash" in entry for entry in entries), size, size, channels],
                "size": headers.size,
                "grey": headers.grey,
                "files": listed,
                "entries": entries,
            }
            text = json.dumps(about).encode()
            file.write(text + len(text).to_bytes(_LENGTH, "little"))
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        Path(name).replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        if isinstance(error, OSError):
            raise _cannot_write(path, needed, error) from error
        raise


def _append(file: Any, image: np.ndarray) -> None:
    file.write(image.tobytes())


def _discard(_image: np.ndarray) -> None:
    """Keep nothing."""


def _cannot_write(path: Path, needed: int, error: OSError) -> OSError:
    return OSError(error.errno, f"cannot write the decoded photos ({needed:,} bytes) to {path}: {error.strerror}")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file next to `path`, waiting for its owner; without flock, several processes may decode."""
    lock = path.with_name(f"{path.name}.lock")
    while True:
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise _cannot_write(path, 0, error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(handle), os.stat(lock)):
                break
        except FileNotFoundError:  # its last owner deleted it before we had locked it
            pass
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS):
                os.close(handle)
                raise
            break
        os.close(handle)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            lock.unlink()
        os.close(handle)
