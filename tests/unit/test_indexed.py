"""Row ``i`` reaches sample ``i``: every label encodes the position of its sample."""

from __future__ import annotations

import pickle
from collections import UserDict
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, WeightedRandomSampler

from vista import Vista, indexed

N = 23


class Numbered(Dataset[Any]):
    """Sample ``i`` is ``(image full of i, label 10 * i)``."""

    classes = ("even", "odd")

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((2, 2), float(index)), 10 * index


class AsDicts(Numbered):
    def __getitem__(self, index: int) -> dict[str, Any]:  # type: ignore[override]
        x, y = super().__getitem__(index)
        return {"pixel_values": x, "labels": y}


def seen(loader: DataLoader) -> list[int]:
    """Return the indices in order, after checking that image, label and index belong together."""
    came = []
    for x, y, i in loader:
        assert i.dtype == torch.int64
        assert torch.equal(y, 10 * i)
        assert torch.equal(x[:, 0, 0], i.float())
        came += i.tolist()
    return came


@pytest.mark.parametrize("workers", [0, 2])
def test_through_shuffling_and_workers(workers: int) -> None:
    source = torch.Generator().manual_seed(0)
    loader = DataLoader(indexed(Numbered()), batch_size=4, shuffle=True, num_workers=workers, generator=source)
    came = seen(loader)
    assert sorted(came) == list(range(N))
    assert came != sorted(came)


def test_inside_a_subset_the_index_is_the_position_in_the_full_dataset() -> None:
    picked = [7, 3, 22, 0]
    assert seen(DataLoader(Subset(indexed(Numbered()), picked), batch_size=3)) == picked


def test_around_a_subset_the_index_is_the_place_in_the_subset() -> None:
    picked = [7, 3, 22, 0]
    items = [indexed(Subset(Numbered(), picked))[i] for i in range(4)]
    assert [(y, i) for _, y, i in items] == [(70, 0), (30, 1), (220, 2), (0, 3)]


def test_through_a_sampler_with_replacement() -> None:
    weights = torch.zeros(N)
    weights[[2, 5, 11]] = torch.tensor([1.0, 5.0, 1.0])
    sampler = WeightedRandomSampler(weights.tolist(), 60, replacement=True, generator=torch.Generator().manual_seed(0))
    came = seen(DataLoader(indexed(Numbered()), batch_size=8, sampler=sampler))
    assert len(came) == 60
    assert set(came) == {2, 5, 11}


def test_predictions_reach_their_rows_through_a_shuffled_loader() -> None:
    """The network predicts the class that a sample's own number says: the teacher must know it of every sample."""
    classes = N
    vista = Vista(torch.zeros(N, dtype=torch.long), num_classes=classes, epochs=2, val_labels=[0])
    loader = DataLoader(indexed(Numbered()), batch_size=5, shuffle=True, generator=torch.Generator().manual_seed(1))
    for x, _, i in loader:
        logits = 50 * torch.nn.functional.one_hot(x[:, 0, 0].long(), classes).float()
        vista.loss(logits.requires_grad_(), i)
    vista.end_epoch(torch.eye(classes)[:1])
    assert vista.teacher().argmax(1).tolist() == list(range(N))


@pytest.mark.parametrize("position", [-1, -N, torch.tensor(4), 4])
def test_negative_positions_and_tensors_are_accepted(position: Any) -> None:
    _, y, i = indexed(Numbered())[position]
    assert (i, y) == (int(position) % N, 10 * (int(position) % N))
    assert type(i) is int


def test_dicts_gain_an_index() -> None:
    batch = next(iter(DataLoader(indexed(AsDicts()), batch_size=3, sampler=[4, 9, 1])))
    assert batch["index"].tolist() == [4, 9, 1]
    assert batch["labels"].tolist() == [40, 90, 10]


def test_mappings_gain_an_index_too() -> None:
    """Such as the items of a tokenizer."""
    assert indexed([UserDict(labels=3)])[0] == {"labels": 3, "index": 0}


def test_a_dict_with_a_key_index_is_rejected() -> None:
    with pytest.raises(ValueError, match="already have a key 'index'; rename it"):
        indexed([{"index": 3}])[0]


def test_items_of_any_length() -> None:
    assert indexed([(1, 2, 3)])[0] == (1, 2, 3, 0)
    assert indexed(["text"])[0] == ("text", 0)
    assert indexed([[1, 2]])[0] == (1, 2, 0)
    x, y, i = indexed(TensorDataset(torch.zeros(3, 2), torch.arange(3)))[2]
    assert (y.item(), i, x.shape) == (2, 2, (2,))


def test_wrapping_twice_adds_one_index() -> None:
    once = indexed(Numbered())
    assert indexed(once) is once


def test_other_attributes_of_the_dataset_are_forwarded() -> None:
    dataset = indexed(Numbered())
    assert len(dataset) == N
    assert dataset.classes == ("even", "odd")
    with pytest.raises(AttributeError, match="nothing"):
        _ = dataset.nothing
    assert pickle.loads(pickle.dumps(dataset))[3][2] == 3  # noqa: S301 (as workers that are spawned do)


class Stream(IterableDataset[int]):
    def __iter__(self):
        yield from range(3)


@pytest.mark.parametrize("dataset", [Stream(), (x for x in range(3)), 7])
def test_iterable_datasets_are_rejected(dataset: Any) -> None:
    name = type(dataset).__name__
    with pytest.raises(TypeError, match=rf"indexed\(\) needs a map-style dataset .*, got {name};"):
        indexed(dataset)


def test_only_whole_numbers_within_the_dataset_are_positions() -> None:
    numbers = indexed(list(range(10)))
    assert numbers[-10] == (0, 0)
    assert numbers[np.int64(3)] == numbers[torch.tensor(3)] == (3, 3)
    for outside in (10, -11):
        with pytest.raises(IndexError, match=f"index must be between -10 and 9, got {outside}"):
            numbers[outside]
    with pytest.raises(TypeError):
        numbers[2.7]
