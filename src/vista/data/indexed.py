"""Add each sample's index to its item, so that a training loop can tell VISTA which samples a batch holds."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from torch.utils.data import Dataset, IterableDataset


class Indexed(Dataset[Any]):
    """A map-style dataset whose items carry their index: ``(x, y)`` becomes ``(x, y, i)``; dicts gain ``"index"``."""

    def __init__(self, dataset: Any) -> None:
        check_map_style(dataset, "indexed()", "; an iterable dataset must yield each sample's index itself")
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise IndexError(f"index must be between -{len(self)} and {len(self) - 1}, got {position}")
        position %= len(self)
        return with_index(self.dataset[position], position)

    def __getattr__(self, name: str) -> Any:
        """Forward other attributes (``classes``, ``targets`` ...) to the dataset."""
        if name.startswith("__") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)


def indexed(dataset: Any) -> Indexed:
    """Wrap a map-style dataset so that its items carry their index: ``(x, y)`` becomes ``(x, y, i)``.

    Args:
        dataset: Any dataset with ``__getitem__`` and ``__len__``. Wrap a ``Subset`` last, so that indices count in it.

    Returns:
        The wrapped dataset. ``i`` is the position in ``dataset``, whatever sampler or worker requests the sample. Items
        that are dicts gain the key ``"index"``.

    >>> indexed([("a", 0), ("b", 1)])[1]
    ('b', 1, 1)
    """
    return dataset if isinstance(dataset, Indexed) else Indexed(dataset)


def check_map_style(dataset: Any, caller: str, advice: str = "") -> None:
    """Raise an error if ``dataset`` lacks ``__getitem__`` or ``__len__``."""
    has_both = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    if isinstance(dataset, IterableDataset) or not has_both:
        kind = type(dataset).__name__
        raise TypeError(f"{caller} needs a map-style dataset (__getitem__ and __len__), got {kind}{advice}")


def with_index(item: Any, index: int) -> Any:
    if isinstance(item, Mapping):  # also a tokenizer's items, which are not dicts
        if "index" in item:
            raise ValueError("the dataset's items already have a key 'index'; rename it, since indexed() adds that key")
        return {**item, "index": index}
    if isinstance(item, tuple | list):
        return (*item, index)
    return item, index
