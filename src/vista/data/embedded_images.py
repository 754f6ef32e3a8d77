"""Decode images whose encoded bytes are part of a table, as Hugging Face datasets store them."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vista.data import pixel_file
from vista.data.decoding import DamagedImage, decode_one
from vista.data.folder import PHOTO_SIZE, Decoded, is_unchanged
from vista.data.pixel_file import stored_size


class _Image(io.BytesIO):
    """The bytes of an encoded image, named by its row in messages."""

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(content)
        self.shown = name

    def __str__(self) -> str:
        return self.shown


def _named(path: Path, contents: Sequence[bytes]) -> Any:
    return [_Image(content, f"{path}{os.sep}row {row}") for row, content in enumerate(contents)]


def decode_like(
    path: Path, contents: Sequence[bytes], sample_shape: tuple[int, ...], image_size: int | None
) -> np.ndarray:
    """Decode encoded images for a network that was trained on others.

    Args:
        path: The data, for messages.
        contents: The bytes of an image file per row.
        sample_shape: Shape of a network input, ``(C, H, W)``.
        image_size: Working resolution of the training data; None if they were used unchanged.

    Returns:
        uint8 ``[N, H, W, C]``, larger than the network's input where images are resized.
    """
    channels, height, width = sample_shape
    if image_size is None:
        return np.stack([decode_one(image, (height, width, channels)) for image in _named(path, contents)])
    return pixel_file.decode_all(_named(path, contents), path, stored_size(image_size), channels, False).pixels


def read_embedded(path: Path, contents: Sequence[bytes], image_size: int | None, skip_damaged: bool) -> Decoded:
    """Decode encoded images into memory, resized as :func:`vista.data.folder.load` resizes files.

    Args:
        path: The data, for messages.
        contents: The bytes of an image file per row.
        image_size: Working resolution; by default 64, or none if all images have one size up to 64 pixels.
        skip_damaged: Leave out images that cannot be decoded.

    Returns:
        The images, and which rows they are of.
    """
    images = _named(path, contents)
    headers = pixel_file.read_headers(images)
    channels = 1 if headers.grey else 3
    try:
        if headers.size is not None and is_unchanged(headers.size, image_size) and not skip_damaged:
            width, height = headers.size
            pixels = np.stack([decode_one(image, (height, width, channels)) for image in images])
            return Decoded(pixels, np.arange(len(images)))
        working = PHOTO_SIZE if image_size is None else image_size
        photos = pixel_file.decode_all(images, path, stored_size(working), channels, skip_damaged)
    except DamagedImage as error:
        raise ValueError(f"{error}; remove the row, or leave out such images with --skip-damaged") from error
    return Decoded(photos.pixels, photos.kept, photos.damaged, working, photos)
