"""The samples of a run as a reviewer sees them: images as PNG, by sample id only, or the values of a table row."""

from __future__ import annotations

import io
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vista.data import source
from vista.data.decoding import open_image
from vista.data.new_rows import read_table
from vista.data.source import Source
from vista.runs.folder import RunFolder
from vista.training.samples import load_source

LARGEST = 1024  # pixels on the longer side of an image that is sent to the page
THUMBNAIL = 160
MOST_VALUES = 60  # of a table row
MOST_TEXT = 20_000  # characters of a text


class SampleViewer:
    """Reads the samples of a run from its data.

    Args:
        folder: The run.
        root: Folder that contains the data sets; the one of the run by default.

    Raises:
        ValueError: If the data have changed since the run; the message names the first file that differs.
    """

    def __init__(self, folder: RunFolder, root: str | None = None) -> None:
        config = folder.config()
        root = root if root is not None else config.root
        self.data: Source = load_source(config, root)
        check_same_samples(folder, self.data)
        self._path = found = source.path_of(config.data, root)
        self._folder = found[1].resolve() if found is not None and found[0] == "folder" else None
        self._text_column = config.text_column

    @property
    def is_image(self) -> bool:
        """Whether samples are images with 1 or 3 channels."""
        return self.data.is_image and self.data.inputs.shape[-1] in (1, 3)

    def png(self, sample: int, *, thumbnail: bool = False) -> bytes:
        """The image of a sample, encoded anew: the original file if it can be read, else the pixels trained on."""
        image = self._original(sample) or self._pixels(sample)
        largest = THUMBNAIL if thumbnail else LARGEST
        if max(image.size) > largest:
            image.thumbnail((largest, largest), Image.Resampling.LANCZOS)
        content = io.BytesIO()
        image.save(content, "PNG")
        return content.getvalue()

    def content(self, sample: int) -> dict[str, Any]:
        """A sample that is no image: its ``text``, or its ``values`` and, of a table, the names of the ``columns``."""
        if self._text_column is not None:
            return {"text": str(self._table[self._text_column][sample])[:MOST_TEXT]}
        if self._table:
            names = list(self._table)[:MOST_VALUES]
            return {"columns": names, "values": [str(self._table[name][sample])[:MOST_TEXT] for name in names]}
        return {"values": np.asarray(self.data.inputs[sample], dtype=np.float64).ravel()[:MOST_VALUES].tolist()}

    @cached_property
    def _table(self) -> dict[str, Any]:
        """The columns of a table, as written by the user; empty for other data."""
        if self._path is None or self._path[0] not in source.TABLES:
            return {}
        return dict(read_table(*self._path).columns)

    def content_hash(self, sample: int) -> str:
        """SHA-256 of the sample as the run reads it."""
        return self.data.hash_of(sample)

    def _original(self, sample: int) -> Image.Image | None:
        if self._folder is None or self.data.files is None:
            return None
        path = (self._folder / self.data.files[sample]).resolve()
        if not path.is_relative_to(self._folder):
            return None
        try:
            with open_image(path) as image:
                image.draft("RGB", (LARGEST, LARGEST))
                return _upright(image)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            return None

    def _pixels(self, sample: int) -> Image.Image:
        pixels = np.asarray(self.data.inputs[sample])
        return Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)


def _upright(image: Image.Image) -> Image.Image:
    from PIL import ImageOps

    return ImageOps.exif_transpose(image).convert("L" if image.mode in ("1", "L") else "RGB")


def check_same_samples(folder: RunFolder, data: Source) -> None:
    """Reject data that have changed since the run, and name a file that differs where that is known."""
    kept = folder.data()
    if kept.inputs_hash in (None, data.inputs_hash):
        return
    remedy = "restore the data, or train again"
    if kept.files is not None and data.files is not None and kept.files != data.files:
        gone, new = sorted(set(kept.files) - set(data.files)), sorted(set(data.files) - set(kept.files))
        what = [f"{name} is missing" for name in gone[:1]] + [f"{name} is new" for name in new[:1]]
        what = what or ["their order differs"]
        count = len(gone) + len(new)
        more = f" ({count} files in all)" if count > len(what) else ""
        raise ValueError(f"{kept.name} has changed since {folder.path}: {' and '.join(what)}{more}; {remedy}")
    where = _changed_file(folder, data)
    raise ValueError(f"{kept.name} has changed since {folder.path}: {where or 'its samples differ'}; {remedy}")


def _changed_file(folder: RunFolder, data: Source) -> str | None:
    """The first file whose content differs from the one that the run recorded."""
    recorded = folder.content_hashes()
    if recorded is None or data.files is None or len(recorded) != len(data.files):
        return None
    for sample, (old, name) in enumerate(zip(recorded, data.files, strict=True)):
        if data.hash_of(sample) != old:
            return f"{name} has another content"
    return None


def folder_of(data: str, root: str | None) -> Path:
    """The folder of ``folder:PATH`` data."""
    found = source.path_of(data, root)
    if found is None or found[0] != "folder":
        raise ValueError(f"files can be sorted only for data in a folder, got {data}")
    return found[1].resolve()
