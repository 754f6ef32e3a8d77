"""Batches as a function of (seed, epoch, step): every sample once an epoch, over any number of processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from vista.data import augment
from vista.data.augment import Augmentation, CutMix
from vista.data.loader import Inputs, LoadedBatch, Loader, classmates

N, M, H, W, K, BATCH = 22, 9, 6, 5, 4, 8
CPU = torch.device("cpu")
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
PICTURES = np.random.default_rng(0).integers(1, 256, (N, H, W, 3), np.uint8)
VAL_PICTURES = np.random.default_rng(1).integers(1, 256, (M, H, W, 3), np.uint8)
LABELS = torch.arange(N) % K
STILL = Augmentation(padding=0, flip=False)


def images(values: np.ndarray = PICTURES) -> Inputs:
    return Inputs(values, MEAN, STD, CPU, torch.float32)


def make(epoch: int = 1, **options: Any) -> Loader:
    settings = {"batch_size": BATCH, "augmentation": Augmentation(padding=1), "cutmix": None, "seed": 0, **options}
    validation = images(VAL_PICTURES), torch.arange(M) % K
    loader = Loader(settings.pop("inputs", images()), settings.pop("labels", LABELS), validation, **settings)
    loader.begin_epoch(epoch)
    return loader


def batches(loader: Loader) -> list[LoadedBatch]:
    return [loader.batch(torch.tensor([step]), loader.size(step)) for step in range(loader.steps)]


def normalised(pictures: np.ndarray) -> Tensor:
    values = (pictures / 255.0 - np.array(MEAN)) / np.array(STD)
    return torch.from_numpy(values.transpose(0, 3, 1, 2).astype(np.float32))


# ---------------------------------------------------------------- an epoch


@pytest.mark.parametrize(
    ("batch_size", "sizes"), [(8, [8, 8, 6]), (11, [11, 11]), (22, [22]), (30, [22]), (1, [1] * 22)]
)
def test_every_sample_comes_once_an_epoch_the_short_batch_included(batch_size: int, sizes: list[int]) -> None:
    loader = make(batch_size=batch_size)
    came = [batch.index for batch in batches(loader)]
    assert [len(index) for index in came] == sizes
    assert loader.steps == len(sizes)
    assert sorted(torch.cat(came).tolist()) == list(range(N))


def test_pictures_are_those_of_their_index() -> None:
    for batch in batches(make(augmentation=STILL)):
        torch.testing.assert_close(batch.x, normalised(PICTURES[batch.index.numpy()]), atol=1e-5, rtol=0)


def test_an_augmented_picture_is_moved_by_the_draws_of_its_place() -> None:
    loader = make(augmentation=Augmentation(padding=2, rotation=20))
    for step, batch in enumerate(batches(loader)):
        draws = loader.draws[0][:, step * BATCH : step * BATCH + len(batch.index)]
        expected = augment.gather(torch.from_numpy(PICTURES), batch.index, draws, rotates=True).numpy()
        torch.testing.assert_close(batch.x, normalised(expected), atol=1e-5, rtol=0)


def everything(loader: Loader) -> list[Tensor]:
    values = []
    for batch in batches(loader):
        values += [batch.index, batch.x, batch.view(1), batch.view(2), batch.same_class(), *batch.validation()]
        values += [part for part in (batch.partner, batch.share) if part is not None]
    return values


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("cutmix", [None, CutMix(1.0)])
def test_an_epoch_is_a_function_of_seed_and_epoch(cutmix: CutMix | None) -> None:
    first = everything(make(3, cutmix=cutmix))
    assert same(first, everything(make(3, cutmix=cutmix)))
    later = make(1, cutmix=cutmix)
    later.begin_epoch(2)
    later.begin_epoch(3)
    assert same(first, everything(later)), "which epochs were drawn before does not matter"
    for other in (make(4, cutmix=cutmix), make(3, cutmix=cutmix, seed=1)):
        assert not torch.equal(first[0], batches(other)[0].index)
        assert not torch.equal(first[1], batches(other)[0].x)


def test_an_epoch_begun_again_in_the_middle_goes_on_with_the_same_batches() -> None:
    loader = make(5, cutmix=CutMix(0.5))
    before = everything(loader)
    loader.batch(torch.tensor([0]), BATCH)
    loader.begin_epoch(5)
    assert same(before, everything(loader))


def test_an_epoch_is_drawn_in_place() -> None:
    """A captured step holds on to these very tensors."""
    loader = make(1, cutmix=CutMix(1.0))
    tensors = loader.order, loader.draws, loader.boxes, loader.partners, loader.chances
    before = [(t.data_ptr(), t.clone()) for t in tensors]
    loader.begin_epoch(2)
    after = loader.order, loader.draws, loader.boxes, loader.partners, loader.chances
    for (pointer, values), now in zip(before, after):
        assert now.data_ptr() == pointer
        assert not torch.equal(now, values)


def test_no_global_draw_is_made() -> None:
    before = torch.get_rng_state()
    everything(make(1, cutmix=CutMix(0.5)))
    assert torch.equal(torch.get_rng_state(), before)


# ---------------------------------------------------------------- several processes


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_share_each_batch_of_the_one_process_run(world: int) -> None:
    alone = make(2, cutmix=CutMix(1.0))
    ranks = [make(2, cutmix=CutMix(1.0), rank=rank, world_size=world) for rank in range(world)]
    for step, whole in enumerate(batches(alone)):
        parts = [batches(loader)[step] for loader in ranks]
        assert sorted(torch.cat([part.index for part in parts]).tolist()) == sorted(whole.index.tolist())
        for rank, part in enumerate(parts):
            for name in ("index", "x", "partner"):
                assert torch.equal(getattr(part, name), getattr(whole, name)[rank::world])
            assert torch.equal(part.share, whole.share)
            assert torch.equal(part.same_class(), whole.same_class()[rank::world])
            assert torch.equal(part.view(1), whole.view(1)[rank::world])
    owned = torch.stack([loader.samples_of_rank() for loader in ranks])
    assert (owned.sum(0) == 1).all(), "every sample is one rank's"
    for rank, loader in enumerate(ranks):
        came = torch.cat([batch.index for batch in batches(loader)])
        assert owned[rank].nonzero().flatten().tolist() == sorted(came.tolist())


# ---------------------------------------------------------------- what methods ask for


def test_views_differ_from_each_other_and_show_the_same_samples() -> None:
    batch = batches(make(augmentation=Augmentation(padding=2)))[0]
    one, two = batch.view(1), batch.view(2)
    assert one.shape == two.shape == batch.x.shape
    assert not torch.equal(batch.x, one)
    assert not torch.equal(one, two)
    still = batches(make(augmentation=STILL))[0]
    assert torch.equal(still.view(1), still.x)
    other = still.view(2, index=still.index.flip(0)[:3])
    assert torch.equal(other, still.x.flip(0)[:3])


def test_a_classmate_has_the_same_given_label() -> None:
    labels = torch.tensor([0] * 10 + [1] * 5 + [2] * 4 + [-1, -1, 3])
    drawn = {i: set[int]() for i in range(N)}
    for epoch in range(1, 60):
        for batch in batches(make(epoch, labels=labels)):
            mates = batch.same_class()
            assert torch.equal(labels[mates], labels[batch.index])
            for sample, mate in zip(batch.index.tolist(), mates.tolist()):
                drawn[sample].add(mate)
    assert drawn[0] == set(range(10)), "each of the class is drawn sooner or later"
    assert drawn[12] == set(range(10, 15))
    assert [drawn[i] for i in (19, 20, 21)] == [{19}, {20}, {21}], "without a label, or alone, it is itself"


def test_classmates_lie_together() -> None:
    members, first, count = classmates(torch.tensor([2, 0, 2, -1, 0]))
    for sample, mates in enumerate([{0, 2}, {1, 4}, {0, 2}, {3}, {1, 4}]):
        start = int(first[sample])
        assert set(members[start : start + int(count[sample])].tolist()) == mates


def test_validation_samples_come_clean_with_their_labels() -> None:
    met = set()
    for epoch in range(1, 6):
        for batch in batches(make(epoch)):
            pictures, labels = batch.validation()
            assert len(pictures) == len(labels) == len(batch.index)
            clean = normalised(VAL_PICTURES)
            for picture, label in zip(pictures, labels.tolist()):
                place = int((clean - picture).abs().amax(dim=(1, 2, 3)).argmin())
                torch.testing.assert_close(picture, clean[place], atol=1e-5, rtol=0)
                assert label == place % K
                met.add(place)
    assert met == set(range(M))


# ---------------------------------------------------------------- CutMix


def test_cutmix_mixes_pictures_of_one_batch_by_the_share_it_tells() -> None:
    """Pictures of one colour each: the mean of a mixed picture is then linear in the share."""
    colours = np.broadcast_to(np.arange(10, 10 + N, dtype=np.uint8)[:, None, None, None], (N, H, W, 3)).copy()
    plain = Inputs(colours, (0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255), CPU, torch.float32)
    met_others = False
    for epoch in range(1, 8):
        for batch in batches(make(epoch, inputs=plain, augmentation=STILL, cutmix=CutMix(1.0))):
            assert batch.partner is not None
            assert batch.share is not None
            assert batch.share.shape == (1,)
            assert sorted(batch.partner.tolist()) == sorted(batch.index.tolist()), "partners are a permutation"
            expected = batch.share * (10 + batch.index) + (1 - batch.share) * (10 + batch.partner)
            torch.testing.assert_close(batch.x.mean(dim=(1, 2, 3)), expected, atol=1e-3, rtol=0)
            met_others |= not torch.equal(batch.partner, batch.index)
    assert met_others


def test_what_is_mixed_in_is_the_partners_own_augmented_picture() -> None:
    shifts = Augmentation(padding=2)
    plain, mixed = make(3, augmentation=shifts), make(3, augmentation=shifts, cutmix=CutMix(1.0))
    for step, (one, other) in enumerate(zip(batches(plain), batches(mixed))):
        place = {sample: row for row, sample in enumerate(one.index.tolist())}
        assert other.partner is not None
        partners = one.x[[place[sample] for sample in other.partner.tolist()]]
        assert torch.equal(other.x, augment.cut_and_mix(one.x, partners, mixed.boxes[step]))


def test_a_share_of_1_is_the_plain_batch() -> None:
    plain, mixed = make(2), make(2, cutmix=CutMix(0.0))
    for one, other in zip(batches(plain), batches(mixed)):
        assert one.partner is None
        assert other.share is not None
        assert other.share.item() == 1
        assert torch.equal(one.x, other.x)


# ---------------------------------------------------------------- inputs


def test_features_are_handed_over_as_they_are() -> None:
    features = np.random.default_rng(0).normal(size=(N, 7)).astype(np.float32)
    inputs = Inputs(features, (), (), CPU, torch.float32)
    assert inputs.sample_shape == (7,)
    batch = batches(make(inputs=inputs))[1]
    assert torch.equal(batch.x, torch.from_numpy(features)[batch.index])
    assert torch.equal(batch.view(1), batch.x)


def test_pictures_are_normalised_and_named_by_their_shape() -> None:
    inputs = images()
    assert inputs.sample_shape == (3, H, W)
    assert len(inputs) == N
    torch.testing.assert_close(inputs.clean(torch.arange(N)), normalised(PICTURES), atol=1e-5, rtol=0)
    double = Inputs(PICTURES, MEAN, STD, CPU, torch.float64)
    assert double.clean(torch.tensor([0])).dtype == torch.float64


def test_read_only_arrays_and_maps_are_read_without_being_written(tmp_path) -> None:
    frozen = PICTURES.copy()
    frozen.flags.writeable = False
    np.save(tmp_path / "pictures.npy", PICTURES)
    mapped = np.load(tmp_path / "pictures.npy", mmap_mode="r")
    for values in (frozen, mapped):
        assert torch.equal(images(values).clean(torch.arange(N)), images().clean(torch.arange(N)))


def test_a_memory_map_stays_on_disk_and_gives_the_same_pictures(tmp_path) -> None:
    mapped = np.memmap(tmp_path / "pictures", np.uint8, "w+", shape=PICTURES.shape)
    mapped[:] = PICTURES
    rows = np.arange(len(PICTURES))[::-2].copy()
    resident = Inputs(PICTURES, MEAN, STD, CPU, torch.float32, rows)
    streamed = Inputs(mapped, MEAN, STD, CPU, torch.float32, rows)
    assert streamed.streams
    assert not resident.streams
    assert len(streamed) == len(resident) == len(rows)
    assert streamed.sample_shape == resident.sample_shape
    index = torch.tensor([3, 0, 1])
    draws = torch.tensor([[1.0, 0.0, -1.0], [0.0, 1.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert torch.equal(streamed.clean(index), resident.clean(index))
    assert torch.equal(streamed.augmented(index, draws, False), resident.augmented(index, draws, False))
