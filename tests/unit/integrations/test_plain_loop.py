"""The plain loop in every variety that people's loops have."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Subset, WeightedRandomSampler

from vista import Vista, indexed

BATCH, LR = 32, 0.5


class Stream(IterableDataset):
    """Yields each sample's number itself."""

    def __init__(self, x, labels):
        self.x, self.labels = x, labels

    def __iter__(self):
        yield from zip(self.x, self.labels, range(len(self.x)), strict=True)


def loop(task, loader, accumulate=1, scaler=None, clip=None):
    vista, model = task.vista(), task.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for _ in vista.epochs():
        for step, (x, _, i) in enumerate(loader, 1):
            loss = vista.loss(model(x), i) / accumulate
            (loss if scaler is None else scaler.scale(loss)).backward()
            if step % accumulate:
                continue
            if scaler is not None:
                scaler.unscale_(optimizer)
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step() if scaler is None else scaler.step(optimizer)
            if scaler is not None:
                scaler.update()
            optimizer.zero_grad()
        with torch.no_grad():
            vista.end_epoch(model(task.val_x))
    return vista


def test_several_workers(task, plain, assert_same):
    assert_same(loop(task, task.train_loader(num_workers=2)), plain)


def test_an_iterable_dataset_that_yields_ids(task, plain, assert_same):
    assert_same(loop(task, DataLoader(Stream(task.x, task.labels), batch_size=BATCH)), plain)
    with pytest.raises(TypeError, match="must yield each sample's number itself"):
        indexed(Stream(task.x, task.labels))


def test_loss_scaling_and_clipping_change_nothing_that_is_recorded(task, plain, assert_same):
    """Scales are powers of two and the norm stays below the limit, so not a bit differs."""
    assert_same(
        loop(task, task.train_loader(), scaler=torch.amp.GradScaler("cpu", init_scale=2.0**10), clip=1e6), plain
    )


def test_accumulated_halves_are_whole_batches(task):
    whole = replace(task, x=task.x[:288], labels=task.labels[:288])
    expected, _ = whole.plain()
    vista = loop(whole, DataLoader(whole.train_set(), batch_size=BATCH // 2), accumulate=2)
    assert vista.seen.keys() == expected.seen.keys()
    for key, target in expected.seen.items():
        assert torch.allclose(vista.seen[key], target, atol=1e-3), key


def test_autocast_predictions_are_recorded_as_float32_would_be(task):
    vista, model = task.vista(), task.model()
    index = torch.arange(len(task.x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(task.x)
    assert logits.dtype == torch.bfloat16
    loss = vista.loss(logits, index)
    assert loss.dtype == torch.float32
    assert torch.equal(vista.state_dict()["current"], logits.float().log_softmax(1).exp().half())


def test_a_subset_of_an_indexed_set_keeps_the_numbers_of_the_whole(task):
    part = Subset(task.train_set(), list(range(299, 199, -1)))
    vista, model = task.vista(), task.model()
    for x, y, i in DataLoader(part, batch_size=BATCH):
        assert torch.equal(task.labels[i], y)
        vista.loss(model(x), i)
    with pytest.warns(UserWarning, match="200 of 300 training samples were not recorded"), torch.no_grad():
        assert vista.end_epoch(model(task.val_x)).unrecorded == 200


def test_a_weighted_sampler_leaves_samples_out_and_says_so(task):
    weights = 1.0 + task.labels.float()
    sampler = WeightedRandomSampler(weights, len(weights), generator=torch.Generator().manual_seed(0))
    drawn: set[int] = set()
    vista, model = task.vista(), task.model()
    for x, _, i in DataLoader(task.train_set(), batch_size=BATCH, sampler=sampler):
        drawn |= set(i.tolist())
        vista.loss(model(x), i)
    left_out = len(weights) - len(drawn)
    with pytest.warns(UserWarning, match=f"{left_out} of 300"), torch.no_grad():
        assert vista.end_epoch(model(task.val_x)).unrecorded == left_out


def test_class_and_sample_weights(task):
    vista, model = task.vista(), task.model()
    index = torch.arange(20)
    logits, labels = model(task.x[:20]), task.labels[:20]
    class_weight, sample_weight = torch.rand(10) + 0.5, torch.rand(20) + 0.5
    hard = F.cross_entropy(logits, labels, weight=class_weight, reduction="none") * sample_weight
    ours = vista.loss(logits, index, class_weight=class_weight, sample_weight=sample_weight)
    assert torch.allclose(ours, hard.mean())
    ours.backward()
    assert model[0].weight.grad.abs().sum() > 0


def test_a_missing_label_teaches_nothing_until_there_is_a_teacher(task):
    labels = task.labels.clone()
    labels[:10] = -1
    vista, _ = task.plain(Vista(labels, num_classes=10, epochs=4, val_labels=task.val_labels))
    fresh = Vista(labels, num_classes=10, epochs=4, val_labels=task.val_labels)
    assert fresh.targets(torch.arange(10)).sum() == 0
    assert torch.equal(vista.targets(torch.arange(10)), vista.teacher()[:10])
    logits = task.model()(task.x[:20])
    assert torch.allclose(fresh.loss(logits, torch.arange(20)), F.cross_entropy(logits[10:], labels[10:20]))
