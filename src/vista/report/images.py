"""Thumbnails of training samples as data URIs, which keep the page self-contained."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vista.data import source

LARGEST = 48  # pixels on the longer side
COLOURS = 96  # in a thumbnail; halves the bytes
MOST_BYTES = 3_000_000


def thumbnails(
    data: str,
    root: str | None,
    ids: Sequence[int],
    inputs_hash: str | None,
    own_validation: bool = True,
    **options: Any,
) -> list[str]:
    """Thumbnails of training samples, as many as fit into the page.

    Args:
        data: Data set of the run.
        root: Folder of the data sets.
        ids: Samples to show.
        inputs_hash: Hash of the inputs that the run was trained on, to detect changed data; None if unknown, as in
            older runs, of which only images of the data sets that vista downloads are shown.
        own_validation: Whether the data set's own validation part is used.
        options: Further options of :func:`vista.data.load`.

    Returns:
        PNG data URIs of the first ids. Data that have no images, or have changed, raise a ``ValueError``.
    """
    images = source.load(data, root, own_validation, **options)
    if not images.is_image:
        raise ValueError(f"{data} has no images")
    channels = images.inputs.shape[-1]
    if channels not in (1, 3):
        raise ValueError(f"images must have 1 or 3 channels, got {channels}")
    if len(ids) and max(ids) >= len(images.inputs):
        raise ValueError(f"{data} has {len(images.inputs)} samples now, but the run has sample {max(ids)}")
    if inputs_hash is None and ":" in data:  # a run of somebody else could name any of the user's files
        raise ValueError(f"the run has no hash of {data}, so its ids may name other images")
    if inputs_hash not in (None, images.inputs_hash):
        raise ValueError(f"{data} has changed since the run, so its ids may name other images")
    found: list[str] = []
    used = 0
    for sample in ids:
        uri = thumbnail(images.inputs[sample])
        used += len(uri)
        if used > MOST_BYTES:
            break  # limits the size of the page; the remaining samples are listed without an image
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
