"""KF-KD: predictions of a first phase are fused, and a restarted network learns from them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vista.core import fusion, teacher
from vista.methods import EpochEnd, choose
from vista.methods.kf_kd import NEUTRAL, KnowledgeFusionDistilled, split_epochs
from vista.models import build


@pytest.fixture
def images():
    return torch.randn(12, 1, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def task(make_task):
    return make_task(val_labels=torch.arange(40) % 5, epochs=6)


def network_of(seed=0):
    return build("tiny-staged", num_classes=5, in_channels=1, image_size=8, seed=seed)


def make(task, network, **options):
    return KnowledgeFusionDistilled(task, network, KnowledgeFusionDistilled.Config(**options))


def run(method, network, images, FakeBatch, epochs):
    """Train with plain SGD and return, for each epoch, the training and the validation probabilities."""
    said, val = [], []
    for epoch in epochs:
        method.begin_epoch(epoch)
        rows = torch.zeros(12, 5)
        for index in torch.arange(12).split(5):
            with torch.no_grad():
                copy = network(images[index])
            rows[index] = copy.softmax(1)
            network.zero_grad()
            method.loss(network, FakeBatch(images[index], index)).backward()
            with torch.no_grad():
                for p in network.parameters():
                    p.sub_(0.5 * p.grad)
        logits = torch.randn(40, 5, generator=torch.Generator().manual_seed(epoch))
        logits[torch.arange(40), torch.arange(40) % 5] += 0.8
        method.end_epoch(EpochEnd(epoch, network, logits, torch.zeros(0, 5), iter, iter, np.zeros(40, bool)))
        said.append(rows)
        val.append(logits.softmax(1).half())
    return said, val


def test_targets_are_blended():
    hard, fused = torch.eye(3)[[0, 1]], torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
    torch.testing.assert_close(
        teacher.blend_labelled(hard, fused, torch.tensor([0.9])),
        torch.tensor([[0.28, 0.45, 0.27], [0.09, 0.19, 0.72]]),
    )


def test_unlabelled_sample_has_teacher_only_as_target():
    fused = torch.tensor([[0.2, 0.5, 0.3]])
    assert torch.equal(teacher.blend_labelled(torch.zeros(1, 3), fused, torch.tensor([0.9])), fused)


@pytest.mark.parametrize(("first", "epochs", "expected"), [(0.5, 200, 100), (0.5, 2, 1), (0.01, 10, 1), (0.99, 10, 9)])
def test_each_phase_has_at_least_one_epoch(first, epochs, expected):
    assert split_epochs(first, epochs) == expected


@pytest.mark.parametrize("options", [{}, {"window": 1}, {"step": 0.3}, {"rounds": 0}])
def test_teacher_is_fusion_of_first_phase_predictions(task, images, FakeBatch, options):
    network = network_of()
    method = make(task, network, **options)
    said, val = run(method, network, images, FakeBatch, [1, 2, 3])
    weights = fusion.fusion_weights(val, task.val_labels, **options)
    by_default = fusion.fusion_weights(val, task.val_labels)
    assert len(by_default) > 1
    assert (weights == by_default) == (not options)
    assert not method.seen.any()  # reset for the next epoch
    expected = teacher.teacher({s: said[s - 1] for s in weights}, weights)
    torch.testing.assert_close(method.final_teacher(), expected, rtol=0, atol=2e-3)
    method.begin_epoch(4)
    torch.testing.assert_close(
        method.targets(torch.tensor([2])), 0.1 * task.one_hot(torch.tensor([2])) + 0.9 * method.fused[2]
    )


def test_second_phase_starts_from_initial_weights(task, images, FakeBatch):
    network, fresh = network_of(), network_of()
    method = make(task, network)
    run(method, network, images, FakeBatch, [1, 2])
    assert not torch.equal(network.head.weight, fresh.head.weight)
    run(method, network, images, FakeBatch, [3])
    for name, tensor in fresh.state_dict().items():
        assert torch.equal(network.state_dict()[name], tensor), name
    run(method, network, images, FakeBatch, [4])
    assert not torch.equal(network.head.weight, fresh.head.weight)


def test_first_phase_is_plain_cross_entropy(task, images, FakeBatch):
    network = network_of()
    method = make(task, network)
    method.begin_epoch(3)
    loss = method.loss(network, FakeBatch(images[:4], [0, 1, 2, 3]))
    torch.testing.assert_close(loss, F.cross_entropy(network(images[:4]), task.labels[:4]), rtol=0, atol=1e-6)


def test_neutral_is_plain_cross_entropy_in_second_phase(task, images, FakeBatch):
    network = network_of()
    method = make(task, network, **NEUTRAL)
    run(method, network, images, FakeBatch, [1, 2, 3])
    method.begin_epoch(4)
    loss = method.loss(network, FakeBatch(images[:4], [0, 1, 2, 3]))
    torch.testing.assert_close(loss, F.cross_entropy(network(images[:4]), task.labels[:4]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("stop", [2, 3, 4])
def test_state_survives_saving(task, images, FakeBatch, stop):
    network, other = network_of(), network_of()
    method = make(task, network)
    run(method, network, images, FakeBatch, range(1, stop + 1))
    loaded = make(task, network_of(seed=9))  # a network with other initial weights
    loaded.load_state_dict(method.state_dict())
    other.load_state_dict(network.state_dict())
    run(method, network, images, FakeBatch, range(stop + 1, 6))
    run(loaded, other, images, FakeBatch, range(stop + 1, 6))
    assert torch.equal(method.fused, loaded.fused)
    assert torch.equal(network.head.weight, other.head.weight)


def test_declared_size_covers_first_phase_predictions(task, images, FakeBatch):
    network = network_of()
    method = make(task, network)
    run(method, network, images, FakeBatch, [1])
    (kept,) = method.get_extra_state()["predictions"].values()
    an_epoch = sum(tensor.nbytes for tensor in kept.values())
    assert method.bytes_written_once() == 3 * an_epoch, "the first phase is epochs 1 to 3"


def test_second_phase_keeps_no_predictions(task, images, FakeBatch):
    network = network_of()
    method = make(task, network)
    run(method, network, images, FakeBatch, range(1, 6))
    assert not method.get_extra_state()["predictions"]


def test_unseen_sample_counts_as_its_label(task, FakeBatch, images):
    network = network_of()
    method = make(task, network)
    for epoch in (1, 2, 3):
        method.begin_epoch(epoch)
        method.loss(network, FakeBatch(images[:5], torch.arange(5)))
        logits = torch.zeros(40, 5)
        method.end_epoch(EpochEnd(epoch, network, logits, torch.zeros(0, 5), iter, iter, np.zeros(40, bool)))
    torch.testing.assert_close(method.fused[5:], task.one_hot(torch.arange(5, 12)))


def test_is_marked_as_reconstruction_without_cutmix():
    assert KnowledgeFusionDistilled.reconstruction
    assert not KnowledgeFusionDistilled.composes_with_cutmix


@pytest.mark.parametrize("option", ["first=0.0", "first=1.0", "alpha=1.5", "window=2", "rounds=-1"])
def test_bad_options_raise(option):
    with pytest.raises(ValueError, match=option.replace("=", " .*")):
        choose(f"kf-kd:{option}")
