"""Plain batches for a net whose loss needs to know which samples they hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class NotingIterator:
    """Yields ``(x, y)`` from batches ``(x, y, i)`` and leaves ``i`` with the net: callbacks see plain batches."""

    def __init__(self, loader: Any, net: Any) -> None:
        self.loader, self.net = loader, net

    def __iter__(self) -> Iterator[Any]:
        for *batch, index in self.loader:
            self.net.index_ = index
            yield batch
