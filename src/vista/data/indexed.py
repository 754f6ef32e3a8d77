"""The sample's own number beside the sample, through any shuffling: the one thing a loop must carry for VISTA."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from torch.utils.data import Dataset, IterableDataset


class Indexed(Dataset[Any]):
    """A map-style dataset whose items also say where they stand: ``(x, y) -> (x, y, i)``; dicts gain ``"index"``."""

    def __init__(self, dataset: Any) -> None:
        check_map_style(dataset, "indexed()", "; an iterable dataset must yield each sample's number itself")
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise IndexError(f"index is {position}, but the dataset has {len(self)} samples")
        position %= len(self)
        return with_index(self.dataset[position], position)

    def __getattr__(self, name: str) -> Any:
        """What else the dataset offers (``classes``, ``targets`` ...) stays within reach."""
        if name.startswith("__") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)


def indexed(dataset: Any) -> Indexed:
    """Wrap any map-style dataset so that its items carry their index: ``(x, y) -> (x, y, i)``.

    ``i`` is the position in ``dataset`` as it was given here, whatever sampler, ``Subset`` or worker asks for it.
    """
    return dataset if isinstance(dataset, Indexed) else Indexed(dataset)


def check_map_style(dataset: Any, caller: str, advice: str = "") -> None:
    """Refuse what cannot be asked for its length and for any of its samples."""
    has_both = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    if isinstance(dataset, IterableDataset) or not has_both:
        kind = type(dataset).__name__
        raise TypeError(f"{caller} needs a map-style dataset (__getitem__ and __len__), but got {kind}{advice}")


def with_index(item: Any, index: int) -> Any:
    if isinstance(item, Mapping):  # a tokenizer's items are no dicts
        if "index" in item:
            raise ValueError("the dataset's items already have a key 'index': rename it, indexed() adds its own")
        return {**item, "index": index}
    if isinstance(item, tuple | list):
        return (*item, index)
    return item, index
