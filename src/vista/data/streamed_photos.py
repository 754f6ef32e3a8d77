"""Photos that are decoded whenever they are read, where there is no disk space to keep their pixels."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vista.data.decoding import cores, decode_square


class StreamedPhotos:
    """Stands for an array uint8 ``[N, S, S, C]``: an index decodes the images it selects, a slice selects files.

    Args:
        files: Image files that can be decoded.
        size: Height and width of the decoded squares.
        channels: 1 or 3.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, files: Sequence[Path], size: int, channels: int) -> None:
        self.files = list(files)
        self.shape = (len(self.files), size, size, channels)

    def __len__(self) -> int:
        return len(self.files)

    @property
    def nbytes(self) -> int:
        """Bytes of all pixels."""
        return int(np.prod(self.shape, dtype=np.int64))

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, slice):
            return StreamedPhotos(self.files[rows], self.shape[1], self.shape[3])
        if isinstance(rows, int | np.integer):
            return decode_square(self.files[rows], self.shape[1], self.shape[3])
        chosen = np.arange(len(self))[rows]
        pixels = np.empty((len(chosen), *self.shape[1:]), dtype=self.dtype)

        def fill(position: int) -> None:
            pixels[position] = self[int(chosen[position])]

        with ThreadPoolExecutor(cores()) as pool:
            list(pool.map(fill, range(len(chosen))))
        return pixels

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Decode all photos."""
        return np.asarray(self[np.arange(len(self))], dtype=dtype)
