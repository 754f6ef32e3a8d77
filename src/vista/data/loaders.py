"""A stable sample index for the loaders of other libraries: WebDataset, timm and Hugging Face datasets.

``Vista`` needs to know which samples a batch holds. :func:`vista.indexed` provides that for map-style datasets; the
functions here do it where samples come from a stream, or where a library builds its own batches.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from vista.data.indexed import check_map_style

INDEX = "index"


# ---------------------------------------------------------------- WebDataset


def read_webdataset(shards: Sequence[str | Path], label: str = "cls") -> tuple[list[str], NDArray[np.int64]]:
    """Read the keys and labels of local shards: the order that defines the samples' indices.

    Only the headers and the small label files are read; images are skipped.

    Args:
        shards: Paths of ``.tar`` files, in a fixed order.
        label: Extension of the label files, which contain a class number.

    Returns:
        The key of each sample, and its label ``[N]``: ``labels[i]`` belongs to ``keys[i]``.

    >>> keys, labels = read_webdataset(["train-000.tar", "train-001.tar"])  # doctest: +SKIP
    """
    keys, labels = list[str](), list[int]()
    for shard in shards:
        with tarfile.open(shard) as file:
            for member in file:
                folder, slash, name = member.name.rpartition("/")
                stem, _, extension = name.partition(".")
                if not member.isfile() or extension != label:
                    continue
                content = file.extractfile(member)
                assert content is not None
                text = content.read(64).decode("ascii", "replace").strip()
                if not text.lstrip("-").isdigit():
                    raise ValueError(f"{member.name} in {shard} must contain a class number, got {text!r}")
                keys.append(folder + slash + stem)
                labels.append(int(text))
    if not keys:
        raise ValueError(f"the shards contain no file with the extension .{label}; label= names that of the labels")
    return keys, np.array(labels, dtype=np.int64)


def index_webdataset(dataset: Any, keys: Iterable[str]) -> Any:
    """Let each sample of a WebDataset carry its index under ``"index"``.

    Call it after ``decode()`` and before ``to_tuple()`` and ``batched()``.

    Args:
        dataset: A ``webdataset.WebDataset`` or another pipeline of dict samples with ``__key__``. One that resamples
            its shards is rejected: it has no epochs in which every sample is seen once.
        keys: The key of each sample, as :func:`read_webdataset` returns them: a sample's index is the position of its
            key. The order of the shards, of the samples and of the workers has no influence.

    Returns:
        The pipeline with one more stage. A sample whose key is not in ``keys`` raises an error.

    Example:
        >>> import webdataset as wds  # doctest: +SKIP
        >>> keys, labels = read_webdataset(shards)  # doctest: +SKIP
        >>> dataset = wds.WebDataset(shards, shardshuffle=100).shuffle(1000).decode("pil")  # doctest: +SKIP
        >>> dataset = index_webdataset(dataset, keys).to_tuple("jpg", "cls", "index")  # doctest: +SKIP
    """
    for stage in getattr(dataset, "pipeline", []):
        name = type(stage).__name__
        if "Resampled" in name or name == "RandomMix":
            raise ValueError(
                f"the WebDataset resamples ({name}): use resampled=False, so that an epoch holds every sample once"
            )
    return dataset.compose(KeyIndex(keys))


class KeyIndex:
    """A stage that adds the index of each sample's key."""

    def __init__(self, keys: Iterable[str]) -> None:
        self.index: dict[str, int] = {}
        for position, key in enumerate(keys):
            first = self.index.setdefault(key, position)
            if first != position:
                raise ValueError(f"keys[{position}] is {key!r}, as is keys[{first}]: every sample needs its own key")

    def __call__(self, samples: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for sample in samples:
            key = sample.get("__key__") if isinstance(sample, dict) else None
            if key is None:
                raise ValueError("index_webdataset() must come before to_tuple() and batched(): no __key__")
            if key not in self.index:
                shard = sample.get("__url__", "a shard")
                raise ValueError(f"{shard} has the key {key!r}, which is not among the {len(self.index)} keys")
            yield {**sample, INDEX: self.index[key]}


# ---------------------------------------------------------------- timm


class TimmIndexed(Dataset[Any]):
    """A dataset whose targets are pairs ``(target, index)``; a transform set by timm reaches the dataset inside."""

    def __init__(self, dataset: Any) -> None:
        check_map_style(dataset, "index_timm()")
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Any, tuple[int, int]]:
        image, target = self.dataset[index]
        return image, (int(target), int(index))

    @property
    def transform(self) -> Any:
        """The transform of the dataset inside; ``timm.data.create_loader`` sets it."""
        return self.dataset.transform

    @transform.setter
    def transform(self, transform: Any) -> None:
        self.dataset.transform = transform


def index_timm(dataset: Any) -> TimmIndexed:
    """Put each sample's index next to its target, for ``timm.data.create_loader``, with and without its prefetcher.

    Args:
        dataset: A dataset of ``timm.data.create_dataset``, or another one whose items are ``(image, target)``.

    Returns:
        The dataset to give to ``create_loader``; :func:`split_target` takes the targets of a batch apart.

    Example:
        >>> loader = timm.data.create_loader(index_timm(dataset), (3, 224, 224), 256)  # doctest: +SKIP
        >>> for images, target in loader:  # doctest: +SKIP
        ...     labels, index = split_target(target)
    """
    return TimmIndexed(dataset)


def split_target(target: Tensor | Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Split what the loader gives as the target of a dataset from :func:`index_timm`.

    Args:
        target: Pairs of label and index, ``[B, 2]`` or two tensors ``[B]``.

    Returns:
        The labels and the indices, ``[B]`` each.

    >>> import torch
    >>> split_target(torch.tensor([[7, 0], [3, 5]]))
    (tensor([7, 3]), tensor([0, 5]))
    """
    pair = target.unbind(1) if isinstance(target, Tensor) and target.ndim == 2 else tuple(target)
    if len(pair) != 2 or not all(isinstance(part, Tensor) for part in pair):
        raise ValueError("target must hold labels and indices: wrap the dataset in index_timm() before create_loader()")
    return pair[0], pair[1]


# ---------------------------------------------------------------- Hugging Face datasets


def index_huggingface(dataset: Any) -> Any:
    """Add the column ``"index"`` to a dataset of Hugging Face, which stays with its rows when these are shuffled.

    Args:
        dataset: A ``datasets.Dataset``. ``labels[i]`` must be the label of its row ``i`` as it is now.

    Returns:
        The dataset with the new column, which ``shuffle``, ``select``, ``filter``, ``with_format("torch")`` and
        ``to_iterable_dataset`` keep.

    Example:
        >>> train = index_huggingface(train)  # doctest: +SKIP
        >>> vista = Vista(train["label"], ...)  # doctest: +SKIP
    """
    if not hasattr(dataset, "add_column") or not hasattr(dataset, "__len__"):
        raise TypeError(
            f"index_huggingface() needs a datasets.Dataset, got {type(dataset).__name__}: a streamed dataset has no "
            "fixed order; load it without streaming=True, or store an index column in its files"
        )
    if INDEX in dataset.column_names:
        raise ValueError(f"the dataset already has a column {INDEX!r}: rename it, since this function adds that one")
    return dataset.add_column(INDEX, np.arange(len(dataset)))
