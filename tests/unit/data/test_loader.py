"""Batches as a function of (seed, epoch, step): every sample once an epoch, over any number of processes."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from vista.data import augment
from vista.data import loader as loader_module
from vista.data.augment import Augmentation, CutMix
from vista.data.loader import Inputs, LoadedBatch, Loader, classmates

N, M, H, W, K, BATCH = 22, 9, 6, 5, 4, 8
CPU = torch.device("cpu")
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
IMAGES = np.random.default_rng(0).integers(1, 256, (N, H, W, 3), np.uint8)
VAL_IMAGES = np.random.default_rng(1).integers(1, 256, (M, H, W, 3), np.uint8)
LABELS = torch.arange(N) % K
NO_AUGMENTATION = Augmentation(padding=0, flip=False)


def as_inputs(values: np.ndarray = IMAGES) -> Inputs:
    return Inputs(values, MEAN, STD, CPU, torch.float32)


def make(epoch: int = 1, **options: Any) -> Loader:
    settings = {"batch_size": BATCH, "augmentation": Augmentation(padding=1), "cutmix": None, "seed": 0, **options}
    validation = as_inputs(VAL_IMAGES), torch.arange(M) % K
    loader = Loader(settings.pop("inputs", as_inputs()), settings.pop("labels", LABELS), validation, **settings)
    loader.begin_epoch(epoch)
    return loader


def batches(loader: Loader) -> list[LoadedBatch]:
    return [loader.batch(torch.tensor([step]), loader.size(step)) for step in range(loader.steps)]


def normalised(images: np.ndarray) -> Tensor:
    values = (images / 255.0 - np.array(MEAN)) / np.array(STD)
    return torch.from_numpy(values.transpose(0, 3, 1, 2).astype(np.float32))


# ---------------------------------------------------------------- an epoch


@pytest.mark.parametrize(
    ("batch_size", "sizes"), [(8, [8, 8, 6]), (11, [11, 11]), (22, [22]), (30, [22]), (1, [1] * 22)]
)
def test_every_sample_is_in_one_batch_of_an_epoch_including_the_short_one(batch_size: int, sizes: list[int]) -> None:
    loader = make(batch_size=batch_size)
    seen = [batch.index for batch in batches(loader)]
    assert [len(index) for index in seen] == sizes
    assert loader.steps == len(sizes)
    assert sorted(torch.cat(seen).tolist()) == list(range(N))


def test_images_match_their_index() -> None:
    for batch in batches(make(augmentation=NO_AUGMENTATION)):
        torch.testing.assert_close(batch.x, normalised(IMAGES[batch.index.numpy()]), atol=1e-5, rtol=0)


def test_an_augmented_image_uses_the_draws_of_its_position() -> None:
    loader = make(augmentation=Augmentation(padding=2, rotation=20))
    for step, batch in enumerate(batches(loader)):
        draws = loader.draws[0][:, step * BATCH : step * BATCH + len(batch.index)]
        expected = augment.gather(torch.from_numpy(IMAGES), batch.index, draws, rotates=True).numpy()
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
def test_an_epoch_depends_on_seed_and_epoch_alone(cutmix: CutMix | None) -> None:
    first = everything(make(3, cutmix=cutmix))
    assert same(first, everything(make(3, cutmix=cutmix)))
    later = make(1, cutmix=cutmix)
    later.begin_epoch(2)
    later.begin_epoch(3)
    assert same(first, everything(later)), "earlier epochs do not matter"
    for other in (make(4, cutmix=cutmix), make(3, cutmix=cutmix, seed=1)):
        assert not torch.equal(first[0], batches(other)[0].index)
        assert not torch.equal(first[1], batches(other)[0].x)


def test_beginning_an_epoch_again_gives_the_same_batches() -> None:
    loader = make(5, cutmix=CutMix(0.5))
    before = everything(loader)
    loader.batch(torch.tensor([0]), BATCH)
    loader.begin_epoch(5)
    assert same(before, everything(loader))


def test_an_epoch_is_drawn_in_place() -> None:
    """A captured step reads from these tensors."""
    loader = make(1, cutmix=CutMix(1.0))
    tensors = loader.order, loader.draws, loader.boxes, loader.partners, loader.chances
    before = [(t.data_ptr(), t.clone()) for t in tensors]
    loader.begin_epoch(2)
    after = loader.order, loader.draws, loader.boxes, loader.partners, loader.chances
    for (pointer, values), now in zip(before, after):
        assert now.data_ptr() == pointer
        assert not torch.equal(now, values)


def test_global_random_state_is_not_used() -> None:
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
    assert (owned.sum(0) == 1).all(), "every sample belongs to one rank"
    for rank, loader in enumerate(ranks):
        seen = torch.cat([batch.index for batch in batches(loader)])
        assert owned[rank].nonzero().flatten().tolist() == sorted(seen.tolist())


# ---------------------------------------------------------------- what methods use


def test_views_differ_from_each_other_and_show_the_same_samples() -> None:
    batch = batches(make(augmentation=Augmentation(padding=2)))[0]
    one, two = batch.view(1), batch.view(2)
    assert one.shape == two.shape == batch.x.shape
    assert not torch.equal(batch.x, one)
    assert not torch.equal(one, two)
    plain = batches(make(augmentation=NO_AUGMENTATION))[0]
    assert torch.equal(plain.view(1), plain.x)
    other = plain.view(2, index=plain.index.flip(0)[:3])
    assert torch.equal(other, plain.x.flip(0)[:3])


def test_a_classmate_has_the_same_given_label() -> None:
    labels = torch.tensor([0] * 10 + [1] * 5 + [2] * 4 + [-1, -1, 3])
    drawn = {i: set[int]() for i in range(N)}
    for epoch in range(1, 60):
        for batch in batches(make(epoch, labels=labels)):
            mates = batch.same_class()
            assert torch.equal(labels[mates], labels[batch.index])
            for sample, mate in zip(batch.index.tolist(), mates.tolist()):
                drawn[sample].add(mate)
    assert drawn[0] == set(range(10)), "every classmate is drawn at some point"
    assert drawn[12] == set(range(10, 15))
    assert [drawn[i] for i in (19, 20, 21)] == [{19}, {20}, {21}], "unlabelled or alone in its class: its own classmate"


def test_classmates_are_contiguous() -> None:
    members, first, count = classmates(torch.tensor([2, 0, 2, -1, 0]))
    for sample, mates in enumerate([{0, 2}, {1, 4}, {0, 2}, {3}, {1, 4}]):
        start = int(first[sample])
        assert set(members[start : start + int(count[sample])].tolist()) == mates


def test_validation_samples_are_not_augmented_and_match_their_labels() -> None:
    met = set()
    for epoch in range(1, 6):
        for batch in batches(make(epoch)):
            images, labels = batch.validation()
            assert len(images) == len(labels) == len(batch.index)
            clean = normalised(VAL_IMAGES)
            for image, label in zip(images, labels.tolist()):
                position = int((clean - image).abs().amax(dim=(1, 2, 3)).argmin())
                torch.testing.assert_close(image, clean[position], atol=1e-5, rtol=0)
                assert label == position % K
                met.add(position)
    assert met == set(range(M))


# ---------------------------------------------------------------- CutMix


def test_cutmix_mixes_images_of_one_batch_by_the_reported_share() -> None:
    """With single-colour images the mean of a mixed image is linear in the share."""
    colours = np.broadcast_to(np.arange(10, 10 + N, dtype=np.uint8)[:, None, None, None], (N, H, W, 3)).copy()
    plain = Inputs(colours, (0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255), CPU, torch.float32)
    met_others = False
    for epoch in range(1, 8):
        for batch in batches(make(epoch, inputs=plain, augmentation=NO_AUGMENTATION, cutmix=CutMix(1.0))):
            assert batch.partner is not None
            assert batch.share is not None
            assert batch.share.shape == (1,)
            assert sorted(batch.partner.tolist()) == sorted(batch.index.tolist()), "partners are a permutation"
            expected = batch.share * (10 + batch.index) + (1 - batch.share) * (10 + batch.partner)
            torch.testing.assert_close(batch.x.mean(dim=(1, 2, 3)), expected, atol=1e-3, rtol=0)
            met_others |= not torch.equal(batch.partner, batch.index)
    assert met_others


def test_cutmix_pastes_the_partners_augmented_image() -> None:
    shifts = Augmentation(padding=2)
    plain, mixed = make(3, augmentation=shifts), make(3, augmentation=shifts, cutmix=CutMix(1.0))
    for step, (one, other) in enumerate(zip(batches(plain), batches(mixed))):
        row_of = {sample: row for row, sample in enumerate(one.index.tolist())}
        assert other.partner is not None
        partners = one.x[[row_of[sample] for sample in other.partner.tolist()]]
        assert torch.equal(other.x, augment.cut_and_mix(one.x, partners, mixed.boxes[step]))


def test_a_share_of_1_gives_the_batch_without_cutmix() -> None:
    plain, mixed = make(2), make(2, cutmix=CutMix(0.0))
    for one, other in zip(batches(plain), batches(mixed)):
        assert one.partner is None
        assert other.share is not None
        assert other.share.item() == 1
        assert torch.equal(one.x, other.x)


# ---------------------------------------------------------------- inputs


def test_features_are_not_augmented() -> None:
    features = np.random.default_rng(0).normal(size=(N, 7)).astype(np.float32)
    inputs = Inputs(features, (), (), CPU, torch.float32)
    assert inputs.sample_shape == (7,)
    batch = batches(make(inputs=inputs))[1]
    assert torch.equal(batch.x, torch.from_numpy(features)[batch.index])
    assert torch.equal(batch.view(1), batch.x)


def test_images_are_normalised_and_report_their_shape() -> None:
    inputs = as_inputs()
    assert inputs.sample_shape == (3, H, W)
    assert len(inputs) == N
    torch.testing.assert_close(inputs.clean(torch.arange(N)), normalised(IMAGES), atol=1e-5, rtol=0)
    double = Inputs(IMAGES, MEAN, STD, CPU, torch.float64)
    assert double.clean(torch.tensor([0])).dtype == torch.float64


def test_read_only_arrays_and_maps_are_accepted(tmp_path) -> None:
    frozen = IMAGES.copy()
    frozen.flags.writeable = False
    np.save(tmp_path / "images.npy", IMAGES)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    for values in (frozen, mapped):
        assert torch.equal(as_inputs(values).clean(torch.arange(N)), as_inputs().clean(torch.arange(N)))


def test_a_memory_map_stays_on_disk_and_gives_the_same_images(tmp_path) -> None:
    mapped = np.memmap(tmp_path / "images", np.uint8, "w+", shape=IMAGES.shape)
    mapped[:] = IMAGES
    rows = np.arange(len(IMAGES))[::-2].copy()
    resident = Inputs(IMAGES, MEAN, STD, CPU, torch.float32, rows)
    streamed = Inputs(mapped, MEAN, STD, CPU, torch.float32, rows)
    assert streamed.streams
    assert not resident.streams
    assert len(streamed) == len(resident) == len(rows)
    assert streamed.sample_shape == resident.sample_shape
    index = torch.tensor([3, 0, 1])
    draws = torch.tensor([[1.0, 0.0, -1.0], [0.0, 1.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert torch.equal(streamed.clean(index), resident.clean(index))
    shifts = Augmentation()
    assert torch.equal(streamed.augmented(index, draws, shifts), resident.augmented(index, draws, shifts))


def test_streamed_batches_are_read_ahead_in_threads_and_are_the_same(tmp_path, monkeypatch) -> None:
    mapped = np.memmap(tmp_path / "images", np.uint8, "w+", shape=IMAGES.shape)
    mapped[:] = IMAGES
    threads: list[threading.Thread] = []
    resident, streamed = make(), make(inputs=as_inputs(mapped))
    assert streamed.inputs.streams
    read = Inputs.read

    def observed(self: Inputs, index: np.ndarray) -> Tensor:
        threads.append(threading.current_thread())
        return read(self, index)

    monkeypatch.setattr(Inputs, "read", observed)
    for epoch, first in ((1, 0), (2, 1), (2, 0)):  # also after resuming in the middle of an epoch
        for each in (resident, streamed):
            each.begin_epoch(epoch)
        for step in range(first, streamed.steps):
            size = streamed.size(step)
            made = []
            for each in (resident, streamed):
                each.prepare(step)
                batch = each.batch(torch.tensor([step]), size)
                made.append(torch.stack([batch.x, batch.view(1)]))
            assert torch.equal(*made)
    assert threads
    assert threading.main_thread() not in threads
    rows = torch.arange(N).split(3)
    for index, samples in streamed.inputs.in_batches(rows):
        assert torch.equal(samples, resident.inputs.clean(index))
    assert threading.main_thread() not in threads


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_batches_that_do_not_fit_on_the_gpu_are_read_ahead_and_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda")

    def loader() -> Loader:
        inputs, val = (Inputs(v, MEAN, STD, device, torch.float32) for v in (IMAGES, VAL_IMAGES))
        validation = val, (torch.arange(M) % K).to(device)
        made = Loader(
            inputs, LABELS.to(device), validation, batch_size=BATCH, augmentation=Augmentation(padding=1), cutmix=None,
            seed=0,
        )  # fmt: skip
        made.begin_epoch(1)
        return made

    resident = loader()
    monkeypatch.setattr(loader_module, "MAX_MEMORY_SHARE", 0.0)
    streamed = loader()
    assert (resident.is_fully_on_device, streamed.is_fully_on_device) == (True, False)
    for step in range(resident.steps):
        for each in (resident, streamed):
            each.prepare(step)
        one, other = (e.batch(torch.tensor([step], device=device), e.size(step)) for e in (resident, streamed))
        assert torch.equal(one.x, other.x)
    for index, samples in streamed.inputs.in_batches(torch.arange(N, device=device).split(3)):
        assert torch.equal(samples, resident.inputs.clean(index))


def test_a_batch_that_was_not_prepared_is_read_when_it_is_used(tmp_path) -> None:
    mapped = np.memmap(tmp_path / "images", np.uint8, "w+", shape=IMAGES.shape)
    mapped[:] = IMAGES
    resident, streamed = make(), make(inputs=as_inputs(mapped))
    streamed.prepare(0)
    for step in (0, 2, 1):
        one, other = (each.batch(torch.tensor([step]), 2) for each in (resident, streamed))
        assert torch.equal(one.x, other.x)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("shape", [(32, 32, 3), (28, 20, 1), (64, 64, 3)])
def test_one_kernel_makes_the_batch_that_torch_makes(
    shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(0).integers(0, 256, (50, *shape), dtype=np.uint8)
    mean, std = (0.5, 0.4, 0.3)[: shape[2]], (0.2, 0.3, 0.25)[: shape[2]]
    inputs = Inputs(values, mean, std, torch.device("cuda"), torch.float32)
    draws = augment.draw(Augmentation(), 40, torch.Generator().manual_seed(0)).cuda()
    index = torch.randperm(50)[:40].cuda()
    made = {}
    for works in (True, False):
        monkeypatch.setattr(loader_module, "triton_works", lambda _device, works=works: works)
        made[works] = inputs.augmented(index, draws, Augmentation())
    assert torch.equal(made[True], made[False])
    assert made[True].stride() == made[False].stride()
