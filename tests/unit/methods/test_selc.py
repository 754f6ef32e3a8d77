"""SELC: labels are replaced with a running mean of the predictions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from by_hand import softmax

from vista.methods import choose
from vista.methods.selc import NEUTRAL


def make(task, network, **options):
    chosen = choose("selc", options)
    return chosen.method(task, network, chosen.config)


def inputs(seed, rows=3):
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed))


def test_four_epochs_against_numpy(make_task, FakeBatch, Linear5):
    network, index = Linear5(), [1, 5, 9]
    method = make(make_task(epochs=10), network, start=0.2, momentum=0.8)
    targets = np.eye(5)[[1, 0, 4]]
    for epoch in (1, 2, 3, 4):
        method.begin_epoch(epoch)
        x = inputs(epoch)
        loss = method.loss(network, FakeBatch(x, index))
        p = softmax(network(x).detach().numpy().astype(float))
        if epoch > 2:
            targets = 0.8 * targets + 0.2 * p
        assert loss.item() == pytest.approx(-(targets * np.log(p)).sum(1).mean(), rel=1e-5)
    np.testing.assert_allclose(method.final_teacher()[index].numpy(), targets, rtol=1e-5)


def test_source_starts_after_20_of_200_epochs(make_task, Linear5):
    method = make(make_task(epochs=200), Linear5())
    method.begin_epoch(20)
    assert method.momentum.item() == 1.0
    method.begin_epoch(21)
    assert method.momentum.item() == pytest.approx(0.9)


def test_neutral_is_cross_entropy_exactly(make_task, FakeBatch, Linear5):
    network, task = Linear5(), make_task()
    method, plain = make(task, network, **NEUTRAL), choose("ce").method(task, network, None)
    method.begin_epoch(10)
    batch = FakeBatch(inputs(1), [1, 5, 9])
    assert torch.equal(method.loss(network, batch), plain.loss(network, batch))


def test_sample_without_label_learns_its_own_mean_after_the_start(make_task, FakeBatch, Linear5):
    network = Linear5()
    method = make(make_task(labels=torch.tensor([0, -1, 2])), network, start=0.5)
    method.begin_epoch(1)
    x = inputs(1)
    labelled = torch.nn.functional.cross_entropy(network(x)[[0, 2]], torch.tensor([0, 2]))
    torch.testing.assert_close(method.loss(network, FakeBatch(x, [0, 1, 2])), labelled)
    method.begin_epoch(10)
    method.loss(network, FakeBatch(x, [0, 1, 2]))
    torch.testing.assert_close(method.memory[1], network(x)[1].softmax(0).detach())


@pytest.mark.parametrize(
    ("options", "message"), [({"momentum": 1.0}, "momentum .*1.0"), ({"start": 2.0}, "start .*2.0")]
)
def test_bad_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        choose("selc", options)
