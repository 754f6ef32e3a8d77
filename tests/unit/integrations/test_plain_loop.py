"""Variants of the plain loop: workers, samplers, subsets, mixed precision, accumulation, clipping, weights.

Where a variant trains differently from the plain loop, its targets are compared with those computed by hand from the
predictions of its own network.
"""

from dataclasses import dataclass, field, replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

from vista import Vista, indexed
from vista.data.holdout import holdout
from vista.functional import beta, light_coverage, one_hot

BATCH, CLASSES, EPOCHS, LR = 32, 10, 4, 0.5


class Stream(IterableDataset):
    """Yields each sample with its index; with several workers each yields its share."""

    def __init__(self, x, labels):
        self.x, self.labels = x, labels

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for i in range(first, len(self.x), step):
            yield self.x[i], self.labels[i], i


@dataclass
class Loop:
    """A training, the targets that its loss used, and the predictions of its network."""

    vista: Vista
    model: nn.Module
    targets: list[Tensor] = field(default_factory=list)  # [N, K] of each epoch
    predictions: list[dict[int, Tensor]] = field(default_factory=list)  # of each epoch, by sample; the last counts
    correct: list[Tensor] = field(default_factory=list)  # [m] of each epoch

    def targets_by_hand(self, labels: Tensor) -> list[Tensor]:
        """Hard labels in epoch 1, then blended with the anchors' mean prediction, which is stored as float16."""
        hard, missing = one_hot(labels, CLASSES), (labels < 0).unsqueeze(1)
        rows = torch.where(missing, 1.0 / CLASSES, hard)  # until a sample is recorded
        targets, states = [hard], {}
        for t in range(1, EPOCHS):
            for i, prediction in self.predictions[t - 1].items():
                rows[i] = prediction.half().float()
            states[t] = rows.clone()
            counts = light_coverage(torch.stack(self.correct[:t]), 0.0)[-1]
            teacher = sum(count * states[s] for s, count in counts.items()) / sum(counts.values())
            teacher /= teacher.sum(dim=1, keepdim=True)
            share = beta(t, EPOCHS)
            targets.append(torch.where(missing, teacher, (1 - share) * hard + share * teacher))
        return targets

    def check(self, labels: Tensor) -> None:
        for epoch, (ours, expected) in enumerate(zip(self.targets, self.targets_by_hand(labels), strict=True), 1):
            assert torch.allclose(ours, expected, atol=1e-3), f"epoch {epoch}"  # float16 may round differently
        assert (self.targets[-1].amax(dim=1) < 0.999).sum() > 10  # or the teacher was never used


def loop(task, loader, vista=None, accumulate=1, scaler=None, clip=None, half=None, weights=lambda i: {}) -> Loop:
    done = Loop(vista or task.vista(), task.model())
    vista, model = done.vista, done.model
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for _ in vista.epochs():
        done.targets.append(vista.targets(torch.arange(len(task.labels))))
        done.predictions.append({})
        for step, (x, _, i) in enumerate(loader, 1):
            with torch.autocast("cpu", dtype=half, enabled=half is not None):
                logits = model(x)
            loss = vista.loss(logits, i, **weights(i)) / accumulate
            done.predictions[-1].update(zip(i.tolist(), logits.detach().float().softmax(dim=1), strict=True))
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
            logits = model(task.val_x)
        done.correct.append(logits.argmax(dim=1) == task.val_labels)
        vista.end_epoch(logits)
    return done


def differs(done, plain):
    """Whether the targets differ from those of the plain loop."""
    return any(not torch.equal(done.targets[epoch - 1][i], target) for (epoch, i), target in plain.seen.items())


def test_the_plain_loop(task, plain, assert_same):
    done = loop(task, task.train_loader())
    assert_same(done.vista, plain)
    assert not differs(done, plain)
    done.check(task.labels)


def test_posterior_targets_need_no_other_loop(task, posterior, assert_same):
    done = loop(task, task.train_loader(num_workers=2), task.posterior())
    assert_same(done.vista, posterior)
    assert not differs(done, posterior)
    state, rows = posterior.state_dict(), torch.arange(300)
    sharpened = posterior.teacher() ** (1 / state["temperature"])
    right, wrong = 1 - state["noise_rate"], state["noise_rate"] / (CLASSES - 1)
    expected = sharpened * torch.where(one_hot(task.labels, CLASSES) > 0, right, wrong)
    torch.testing.assert_close(posterior.targets(rows), expected / expected.sum(dim=1, keepdim=True))


def test_several_workers(task, plain, assert_same):
    assert_same(loop(task, task.train_loader(num_workers=2)).vista, plain)


def test_an_iterable_dataset_that_yields_indices(task, plain, assert_same):
    assert_same(loop(task, DataLoader(Stream(task.x, task.labels), batch_size=BATCH)).vista, plain)
    with pytest.raises(TypeError, match="must yield each sample's index itself"):
        indexed(Stream(task.x, task.labels))


def test_an_iterable_dataset_with_several_workers(task, plain):
    done = loop(task, DataLoader(Stream(task.x, task.labels), batch_size=BATCH, num_workers=2))
    assert [rows.keys() for rows in done.predictions] == [set(range(300))] * EPOCHS
    assert differs(done, plain)  # a different order
    done.check(task.labels)


def test_loss_scaling_changes_nothing(task, plain, assert_same):
    """Scales are powers of two, so every bit is equal."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    assert_same(loop(task, task.train_loader(), scaler=scaler).vista, plain)


def test_mixed_precision_with_scaling_and_clipping(task, plain):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    done = loop(task, task.train_loader(), scaler=scaler, clip=0.5, half=torch.bfloat16)
    assert differs(done, plain)
    done.check(task.labels)


def test_clipped_gradients(task, plain, assert_same):
    assert_same(loop(task, task.train_loader(), clip=1e6).vista, plain)
    clipped = loop(task, task.train_loader(), clip=0.1)
    assert differs(clipped, plain)
    clipped.check(task.labels)


def test_accumulated_half_batches_equal_full_batches(task):
    whole = replace(task, x=task.x[:288], labels=task.labels[:288])
    expected, _ = whole.plain()
    done = loop(whole, DataLoader(whole.train_set(), batch_size=BATCH // 2), accumulate=2)
    for (epoch, i), target in expected.seen.items():
        assert torch.allclose(done.targets[epoch - 1][i], target, atol=1e-3), (epoch, i)
    done.check(whole.labels)


def test_autocast_predictions_are_recorded_like_float32(task):
    vista, model = task.vista(), task.model()
    index = torch.arange(len(task.x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(task.x)
    assert logits.dtype == torch.bfloat16
    loss = vista.loss(logits, index)
    assert loss.dtype == torch.float32
    assert torch.equal(vista.state_dict()["current"], logits.float().log_softmax(1).exp().half())


@pytest.mark.filterwarnings("ignore:200 of 300 training samples were not recorded")
def test_a_subset_of_an_indexed_dataset_keeps_its_indices(task):
    part = Subset(task.train_set(), list(range(299, 199, -1)))
    for _, y, i in DataLoader(part, batch_size=BATCH):
        assert torch.equal(task.labels[i], y)
    done = loop(task, DataLoader(part, batch_size=BATCH))
    assert [rows.keys() for rows in done.predictions] == [set(range(200, 300))] * EPOCHS
    done.check(task.labels)
    assert torch.equal(done.targets[-1][:200], one_hot(task.labels[:200], CLASSES))  # these were never recorded


def test_an_indexed_subset_has_its_own_indices(task, assert_same):
    rows = torch.arange(299, 49, -1)
    part = replace(task, x=task.x[rows], labels=task.labels[rows])
    whole = TensorDataset(task.x, task.labels)
    loader = DataLoader(indexed(Subset(whole, rows.tolist())), batch_size=BATCH)
    assert_same(loop(part, loader).vista, part.plain()[0])


def test_concatenated_datasets_have_consecutive_indices(task, plain, assert_same):
    halves = [TensorDataset(task.x[part], task.labels[part]) for part in (slice(150), slice(150, 300))]
    assert_same(loop(task, DataLoader(indexed(ConcatDataset(halves)), batch_size=BATCH)).vista, plain)


def test_samples_that_a_weighted_sampler_leaves_out_are_reported(task):
    weights = 1.0 + task.labels.float()
    sampler = WeightedRandomSampler(weights, len(weights), generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=r"set vista.expects_every_sample = False"):
        loop(task, task.train_loader(sampler=sampler))
    vista = task.vista()
    vista.expects_every_sample = False
    done = loop(task, task.train_loader(sampler=sampler), vista)
    assert min(len(weights) - len(rows) for rows in done.predictions) > 50
    done.check(task.labels)  # keeps rows of earlier epochs; of two draws in one batch the later counts


def test_class_and_sample_weights(task, plain):
    generator = torch.Generator().manual_seed(0)
    by_class = torch.rand(CLASSES, generator=generator) + 0.5
    by_sample = torch.rand(len(task.labels), generator=generator) + 0.5
    done = loop(task, task.train_loader(), weights=lambda i: {"class_weight": by_class, "sample_weight": by_sample[i]})
    assert differs(done, plain)
    done.check(task.labels)
    for vista, targets in ((task.vista(), one_hot(task.labels, CLASSES)), (done.vista, done.vista.teacher())):
        logits = done.model(task.x[:20])
        each = F.cross_entropy(logits, targets[:20], weight=by_class, reduction="none") * by_sample[:20]
        ours = vista.loss(logits, torch.arange(20), class_weight=by_class, sample_weight=by_sample[:20])
        assert torch.allclose(ours, each.mean())
        assert all(torch.allclose(*pair, atol=1e-6) for pair in zip(grads(ours, done), grads(each.mean(), done)))


def grads(loss, done):
    return torch.autograd.grad(loss, list(done.model.parameters()), retain_graph=True)


def test_a_missing_label_has_no_target_before_the_first_teacher(task):
    labels = task.labels.clone()
    labels[::5] = -1
    part = replace(task, labels=labels)
    done = loop(part, part.train_loader())
    done.check(labels)
    assert done.targets[0][::5].sum() == 0
    assert torch.equal(done.vista.targets(torch.arange(0, 300, 5)), done.vista.teacher()[::5])
    fresh, logits, given = part.vista(), done.model(task.x[:20]), labels[:20] >= 0
    assert torch.allclose(fresh.loss(logits, torch.arange(20)), F.cross_entropy(logits[given], labels[:20][given]))


def test_a_missing_label_has_the_tempered_teacher_as_posterior_target(task):
    labels = task.labels.clone()
    labels[::5] = -1
    part = replace(task, labels=labels)
    posterior = loop(part, part.train_loader(), part.posterior()).vista
    tempered = posterior.teacher()[::5] ** (1 / posterior.state_dict()["temperature"])
    found = posterior.targets(torch.arange(0, 300, 5))
    torch.testing.assert_close(found, tempered / tempered.sum(dim=1, keepdim=True))


def test_holdout_trains_like_the_same_split_by_hand(task, assert_same):
    x, labels = torch.cat([task.x, task.val_x]), torch.cat([task.labels, task.val_labels])
    train, val, train_labels, val_labels = holdout(TensorDataset(x, labels), labels, fraction=0.2, seed=1)
    by_hand = replace(task, x=x[train.indices], labels=labels[train.indices], val_x=x[val.indices],
                      val_labels=labels[val.indices])  # fmt: skip
    expected, _ = by_hand.plain()
    given = type(expected)(train_labels, num_classes=CLASSES, epochs=EPOCHS, val_labels=val_labels)
    split = replace(task, labels=torch.from_numpy(train_labels), val_x=torch.stack([x for x, _ in val]),
                    val_labels=torch.from_numpy(val_labels))  # fmt: skip
    done = loop(split, DataLoader(indexed(train), batch_size=BATCH), vista=given)
    assert_same(done.vista, expected)
    done.check(split.labels)
