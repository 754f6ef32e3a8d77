"""Loaders of other libraries: ``labels[i]`` is the label of the sample that carries ``i``, whatever the order."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

from vista.data.loaders import (
    index_huggingface,
    index_timm,
    index_webdataset,
    read_webdataset,
    split_target,
)

# webdataset leaves the shards that it has read to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
N = 48
LABELS = np.random.default_rng(0).integers(0, 5, N)


def check_batches(batches: Iterable[tuple[Any, Any, Any]], labels: Any, once: bool = True) -> list[int]:
    """Each sample's content is 100 + its position and its label; returns the indices seen."""
    seen = []
    for x, y, index in batches:
        i = torch.as_tensor(index)
        assert torch.equal(torch.as_tensor(np.asarray(labels))[i], torch.as_tensor(y))
        assert torch.equal(torch.as_tensor(x).flatten().long(), i + 100)
        seen += i.tolist()
    assert not once or len(seen) == len(set(seen))
    return seen


# ---------------------------------------------------------------- WebDataset


@pytest.fixture
def shards(tmp_path: Path) -> list[str]:
    """Four shards; keys have folders, and the samples two files each."""
    paths = []
    for shard in range(4):
        path = tmp_path / f"{shard}.tar"
        with tarfile.open(path, "w") as file:
            for i in range(shard * N // 4, (shard + 1) * N // 4):
                for name, content in ((f"train/s{i:03d}.x.txt", str(i + 100)), (f"train/s{i:03d}.cls", str(LABELS[i]))):
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    file.addfile(member, io.BytesIO(content.encode()))
        paths.append(str(path))
    return paths


def web_batches(shards: list[str], keys: list[str], workers: int, **options: Any) -> DataLoader[Any]:
    wds = pytest.importorskip("webdataset")
    dataset = wds.WebDataset(shards, shardshuffle=4, seed=1, **options).shuffle(20).decode()
    dataset = index_webdataset(dataset, keys).to_tuple("x.txt", "cls", "index").map_tuple(int, int, int)
    return DataLoader(dataset, batch_size=5, num_workers=workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_webdataset_shuffled(shards: list[str], workers: int) -> None:
    keys, labels = read_webdataset(shards)
    assert labels.tolist() == LABELS.tolist()
    seen = check_batches(web_batches(shards, keys, workers), labels)
    assert sorted(seen) == list(range(N))
    assert seen != sorted(seen)


def test_webdataset_on_two_ranks(shards: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    wds = pytest.importorskip("webdataset")
    keys, labels = read_webdataset(shards)
    seen = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        seen.append(check_batches(web_batches(shards, keys, 0, nodesplitter=wds.split_by_node), labels))
    assert sorted(seen[0] + seen[1]) == list(range(N))
    assert set(seen[0]).isdisjoint(seen[1])


def test_webdataset_rejects_unknown_and_duplicated_keys_and_resampling(shards: list[str]) -> None:
    wds = pytest.importorskip("webdataset")
    keys, _ = read_webdataset(shards)
    dataset = wds.WebDataset(shards, shardshuffle=False)
    with pytest.raises(ValueError, match=r"3\.tar has the key 'train/s047', which is not among the 47 keys"):
        list(index_webdataset(dataset, keys[:-1]))
    with pytest.raises(ValueError, match=r"keys\[48\] is 'train/s000', as is keys\[0\]"):
        index_webdataset(dataset, [*keys, keys[0]])
    with pytest.raises(ValueError, match=r"resamples \(ResampledShards\): use resampled=False"):
        index_webdataset(wds.WebDataset(shards, resampled=True, shardshuffle=False), keys)
    with pytest.raises(ValueError, match="must come before to_tuple"):
        list(index_webdataset(dataset.to_tuple("cls"), keys))
    with pytest.raises(ValueError, match=r"no file with the extension \.txt"):
        read_webdataset(shards, label="txt")


# ---------------------------------------------------------------- timm


class Photos:
    """Items as a dataset of timm: an image whose pixels are 100 + its position, and its label."""

    transform: Any = None

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = np.full((3, 1, 1), 100 + index, dtype=np.uint8)
        return (image if self.transform is None else self.transform(image)), int(LABELS[index])


def as_batch(batch: Any) -> tuple[Any, Any, Any]:
    images, target = batch
    labels, index = split_target(target)
    return images[:, 0], labels, index


@pytest.mark.parametrize("workers", [0, 2])
def test_timm_targets_with_the_collate_of_torch(workers: int) -> None:
    loader = DataLoader(index_timm(Photos()), batch_size=5, shuffle=True, num_workers=workers)
    assert sorted(check_batches(map(as_batch, loader), LABELS)) == list(range(N))


def test_timm_targets_on_two_ranks() -> None:
    seen = []
    for rank in range(2):
        sampler = DistributedSampler(index_timm(Photos()), num_replicas=2, rank=rank, shuffle=True)
        loader = DataLoader(index_timm(Photos()), batch_size=5, sampler=sampler)
        seen += check_batches(map(as_batch, loader), LABELS)
    assert sorted(seen) == list(range(N))


def test_timm_targets_with_a_collate_function_that_makes_one_tensor_of_them() -> None:
    def fast_collate(batch: list[Any]) -> tuple[Any, Any]:  # as timm.data.loader.fast_collate does
        images = torch.stack([torch.from_numpy(image) for image, _ in batch])
        return images, torch.tensor([target for _, target in batch], dtype=torch.int64)

    loader = DataLoader(index_timm(Photos()), batch_size=5, shuffle=True, collate_fn=fast_collate)
    assert sorted(check_batches(map(as_batch, loader), LABELS)) == list(range(N))


def test_the_transform_that_timm_sets_reaches_the_dataset() -> None:
    photos = Photos()
    dataset = index_timm(photos)
    dataset.transform = lambda image: image + 1
    assert photos.transform is dataset.transform
    assert dataset[3][0].max() == 104


def test_targets_without_an_index_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"wrap the dataset in index_timm\(\)"):
        split_target(torch.tensor([1, 2, 3]))


# ---------------------------------------------------------------- Hugging Face datasets


def rows() -> Any:
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict({"x": list(range(100, 100 + N)), "label": LABELS.tolist()})


def hf_batches(dataset: Any, workers: int = 0, **options: Any) -> Iterable[tuple[Any, Any, Any]]:
    loader = DataLoader(dataset, batch_size=5, num_workers=workers, **options)
    return ((batch["x"], batch["label"], batch["index"]) for batch in loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_hugging_face_shuffled(workers: int) -> None:
    dataset = index_huggingface(rows())
    assert sorted(check_batches(hf_batches(dataset.with_format("torch"), workers, shuffle=True), LABELS)) == [*range(N)]
    moved = dataset.shuffle(seed=1).select(range(20)).with_format("torch")
    assert len(check_batches(hf_batches(moved, workers), LABELS)) == 20


def test_a_hugging_face_stream_on_two_ranks() -> None:
    pytest.importorskip("datasets")
    from datasets.distributed import split_dataset_by_node

    stream = index_huggingface(rows()).to_iterable_dataset(num_shards=4).shuffle(seed=1, buffer_size=10)
    parts = [split_dataset_by_node(stream, rank, 2).with_format("torch") for rank in range(2)]
    seen = [check_batches(hf_batches(part), LABELS) for part in parts]
    assert sorted(seen[0] + seen[1]) == list(range(N))


def test_a_hugging_face_dataset_without_rows_to_count_is_rejected() -> None:
    dataset = index_huggingface(rows())
    with pytest.raises(ValueError, match="already has a column 'index'"):
        index_huggingface(dataset)
    with pytest.raises(TypeError, match=r"needs a datasets\.Dataset, got IterableDataset: a streamed dataset"):
        index_huggingface(dataset.to_iterable_dataset())
