"""Small pictures of training samples as data URIs, for a page that needs no other file."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vista.data import source

LARGEST = 48  # pixels on the longer side
COLOURS = 96  # enough for a thumbnail, and half the bytes
MOST_BYTES = 3_000_000


def thumbnails(
    data: str, root: str | None, ids: Sequence[int], inputs_hash: str | None, own_validation: bool = True
) -> list[str]:
    """A PNG per training sample ``ids`` of the data set; an error says why there can be none.

    ``inputs_hash`` is that of the inputs the run knew, by which changed data are found out.
    """
    images = source.load(data, root, own_validation)
    if not images.is_image:
        raise ValueError(f"{data} has no pictures")
    channels = images.inputs.shape[-1]
    if channels not in (1, 3):
        raise ValueError(f"pictures of {channels} channels cannot be shown")
    if len(ids) and max(ids) >= len(images.inputs):
        raise ValueError(f"{data} has {len(images.inputs)} samples now, but the run knew sample {max(ids)}")
    if inputs_hash not in (None, images.inputs_hash):
        raise ValueError(f"{data} has changed since the run, so its ids may be other pictures now")
    found: list[str] = []
    used = 0
    for place in ids:
        uri = thumbnail(images.inputs[place])
        used += len(uri)
        if used > MOST_BYTES:
            break  # the page must stay light: the rest are rows
        found.append(uri)
    return found


def thumbnail(pixels: NDArray[np.uint8]) -> str:
    """``data:image/png;base64,...`` of uint8 ``[H, W, C]`` with C = 1 or 3."""
    image = Image.fromarray(np.asarray(pixels)[..., 0] if pixels.shape[-1] == 1 else np.asarray(pixels))
    if max(image.size) > LARGEST:
        image.thumbnail((LARGEST, LARGEST), Image.Resampling.LANCZOS)
    if image.mode == "RGB":
        image = image.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    content = io.BytesIO()
    image.save(content, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
