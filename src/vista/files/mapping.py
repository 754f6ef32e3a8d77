"""Memory-mapped files, which may be larger than the memory."""

from __future__ import annotations

import mmap
import sys
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

_RESERVES_NOTHING = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


def map_bytes(file: BinaryIO) -> NDArray[np.uint8]:
    """Map the bytes of an open file, copied on write: changes of the array do not reach the file.

    ``np.memmap(mode="c")`` reserves memory for the copies, so that the file could not be larger than the memory.
    """
    content = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE | _RESERVES_NOTHING, mmap.PROT_READ | mmap.PROT_WRITE)
    mapped = np.frombuffer(content, np.uint8).view(np.memmap)
    vars(mapped)["_mmap"] = content  # otherwise parts of it are no memmap
    return mapped
