"""VISTA-EMA: a mean of past weights, weighted by marginal coverage."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vista.core import options
from vista.methods import EpochEnd, choose
from vista.methods.vista_ema import (
    NEUTRAL,
    VistaEma,
    average_weights,
    flatten_parameters,
    pull_towards,
    re_estimate_batchnorm,
)
from vista.models import build

EPOCHS = 4
RIGHT = {1: [0, 1, 2], 2: [2, 3], 3: [0, 1, 2, 3, 4], 4: [5]}  # validation samples that each state gets right
# In sweep order, state 3 covers five samples, 1 and 2 add none, 4 adds one.
ANCHORS = {1: {1: 1.0}, 2: {1: 3 / 4, 2: 1 / 4}, 3: {3: 1.0}, 4: {3: 5 / 6, 4: 1 / 6}}


@pytest.fixture
def task(make_task):
    return make_task(val_labels=torch.zeros(10, dtype=torch.long), epochs=EPOCHS)


def images():
    generator = torch.Generator().manual_seed(0)
    return iter([3 * torch.randn(6, 1, 8, 8, generator=generator) + 1, torch.randn(6, 1, 8, 8, generator=generator)])


def end(method, network, epoch):
    logits = torch.zeros(10, 5)
    logits[:, 1] = 0.5
    logits[RIGHT[epoch], 0] = 1.0
    return method.end_epoch(
        EpochEnd(epoch, network, logits, torch.zeros(0, 5), iter, images, (logits.argmax(dim=1) == 0).numpy())
    )


def change(network, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in network.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=generator))


def test_average_is_weighted():
    states = {1: torch.tensor([1.0, 2.0]), 3: torch.tensor([5.0, -2.0])}
    torch.testing.assert_close(average_weights(states, {1: 0.25, 3: 0.75}), torch.tensor([4.0, -1.0]))


def test_pull_towards_vector(network):
    before, target = flatten_parameters(network), torch.arange(len(flatten_parameters(network))).float()
    pull_towards(network, target, 0.25)
    torch.testing.assert_close(flatten_parameters(network), 0.75 * before + 0.25 * target)


def test_each_epoch_pulls_network_towards_anchors(task, network):
    method = VistaEma(task, network, VistaEma.Config(tau=0.0))
    states = {}
    for epoch in range(1, EPOCHS + 1):
        change(network, epoch)
        states[epoch] = flatten_parameters(network).double().numpy()
        line = end(method, network, epoch)
        share = min(options.beta(epoch, EPOCHS), 0.5) if epoch < EPOCHS else 0.0
        mean = sum(weight * states[s] for s, weight in ANCHORS[epoch].items())
        expected = (1 - share) * states[epoch] + share * mean
        np.testing.assert_allclose(flatten_parameters(network).numpy(), expected, rtol=1e-4, atol=1e-6)
        assert line["beta"] == min(options.beta(epoch, EPOCHS), 0.5)
        assert line["anchors"] == len(ANCHORS[epoch])
        assert line["anchor_weights"] == pytest.approx({str(s): weight for s, weight in ANCHORS[epoch].items()})
        assert set(method.get_extra_state()["checkpoints"]) == set(map(str, ANCHORS[epoch]))


def test_tau_prunes(task, network):
    method = VistaEma(task, network, VistaEma.Config(tau=0.1))  # one of ten samples does not exceed tau
    for epoch in range(1, EPOCHS + 1):
        end(method, network, epoch)
    assert set(method.get_extra_state()["checkpoints"]) == {"3"}


def test_batchnorm_is_re_estimated_on_unaugmented_images(task, network):
    method = VistaEma(task, network, VistaEma.Config())
    network.train()
    end(method, network, 1)
    change(network, 1)
    end(method, network, 2)
    norm, convolution = network.groups[0][1], network.groups[0][0]
    outputs = [convolution(batch).detach() for batch in images()]
    torch.testing.assert_close(norm.running_mean, sum(o.mean(dim=(0, 2, 3)) for o in outputs) / 2)
    torch.testing.assert_close(norm.running_var, sum(o.var(dim=(0, 2, 3)) for o in outputs) / 2)
    assert norm.momentum == 0.1
    assert all(module.training for module in network.modules())


def test_last_epoch_keeps_evaluated_network(task, network):
    method = VistaEma(task, network, VistaEma.Config())
    for epoch in range(1, EPOCHS):
        end(method, network, epoch)
    change(network, 1)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    end(method, network, EPOCHS)
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())


def test_neutral_never_changes_network(task, network):
    method = VistaEma(task, network, VistaEma.Config(**NEUTRAL))
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    for epoch in range(1, EPOCHS + 1):
        end(method, network, epoch)
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())


def test_without_anchors_network_is_unchanged(task, network):
    method = VistaEma(task, network, VistaEma.Config(tau=0.5))
    before = flatten_parameters(network)
    for epoch in (1, 2):
        assert end(method, network, epoch)["anchors"] == 0
    assert torch.equal(flatten_parameters(network), before)


def test_loss_is_plain_cross_entropy(task, Linear5, FakeBatch):
    network, x = Linear5(), torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    loss = VistaEma(task, network, VistaEma.Config()).loss(network, FakeBatch(x, [0, 1, 2]))
    torch.testing.assert_close(loss, F.cross_entropy(network(x), torch.arange(3)))


def test_state_survives_saving(task, network):
    method = VistaEma(task, network, VistaEma.Config(tau=0.0))
    end(method, network, 1)
    change(network, 1)
    end(method, network, 2)
    other = build("tiny-staged", num_classes=5, in_channels=1, image_size=8)
    other.load_state_dict(network.state_dict())
    loaded = VistaEma(task, other, VistaEma.Config(tau=0.0))
    loaded.load_state_dict(method.state_dict())
    for one, its in ((method, network), (loaded, other)):
        change(its, 2)
        end(one, its, 3)
    assert torch.equal(flatten_parameters(network), flatten_parameters(other))
    assert set(loaded.get_extra_state()["checkpoints"]) == {"3"}


@pytest.mark.parametrize(("tau", "most"), [(0.0, 4), (0.3, 3)])
def test_declared_size_covers_anchors(make_task, network, tau, most):
    """Each state gets other samples right: without pruning all stay, with tau above 0.3 at most three."""
    method = VistaEma(make_task(val_labels=torch.zeros(13, dtype=torch.long), epochs=4), network, VistaEma.Config(tau))
    for epoch in range(1, 5):
        logits = torch.eye(5)[[1]].repeat(13, 1)
        logits[4 * epoch - 4 : 4 * epoch, 0] = 2.0
        method.end_epoch(
            EpochEnd(epoch, network, logits, torch.zeros(0, 5), iter, images, (logits.argmax(dim=1) == 0).numpy())
        )
    kept = method.get_extra_state()["checkpoints"].values()
    assert len(kept) == most
    assert method.bytes_written_once() >= sum(weights.nbytes for weights in kept)
    assert method.bytes_written_once() <= 4 * flatten_parameters(network).nbytes, "no epoch has more than one state"


def test_is_marked_as_reconstruction():
    assert VistaEma.reconstruction


@pytest.mark.parametrize("option", ["tau=1.0", "cap=1.5", "k=0.0"])
def test_bad_options_raise(option):
    with pytest.raises(ValueError, match=option.replace("=", " .*")):
        choose(f"vista-ema:{option}")


def test_batchnorm_statistics_do_not_depend_on_batch_sizes():
    images = torch.randn(1002, 3, generator=torch.Generator().manual_seed(0)) + torch.arange(1002).view(-1, 1) / 100
    norm = torch.nn.BatchNorm1d(3)
    re_estimate_batchnorm(norm, lambda: iter(images.split(1000)))
    torch.testing.assert_close(norm.running_mean, images.mean(dim=0))
    halves = images.split(1000)
    by_hand = sum(len(half) * half.var(dim=0) for half in halves) / len(images)
    torch.testing.assert_close(norm.running_var, by_hand)
    assert norm.momentum == 0.1
