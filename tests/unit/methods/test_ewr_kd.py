from __future__ import annotations

import numpy as np
import pytest
import torch
from by_hand import softmax

from vista.methods import choose
from vista.methods.ewr_kd import NEUTRAL, blend_by_certainty, measure_uncertainty


def make(task, network, **options):
    chosen = choose("ewr-kd", options)
    return chosen.method(task, network, chosen.config)


def inputs(rows=3, seed=1):
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed))


def test_uncertainty_is_0_for_one_hot_and_1_for_uniform():
    rows = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0]])
    np.testing.assert_allclose(measure_uncertainty(rows).squeeze(1).numpy(), [0.0, 1.0, 0.5], atol=1e-6)


def test_two_epochs_against_numpy(make_task, FakeBatch, Linear5):
    network, x, x_later, index = Linear5(), inputs(), inputs(seed=2), [1, 5, 9]
    method = make(make_task(epochs=10), network)
    hard = np.eye(5)[[1, 0, 4]]
    method.begin_epoch(1)
    first = method.loss(network, FakeBatch(x, index))
    p = softmax(network(x).detach().numpy().astype(float))
    assert first.item() == pytest.approx(-(hard * np.log(p)).sum(1).mean(), rel=1e-5)
    method.begin_epoch(7)
    second = method.loss(network, FakeBatch(x_later, index))
    later = softmax(network(x_later).detach().numpy().astype(float))
    u = -(p * np.log(p)).sum(1, keepdims=True) / np.log(5)
    a = 0.8 * 0.7 * (1 - u)
    assert second.item() == pytest.approx(-(((1 - a) * hard + a * p) * np.log(later)).sum(1).mean(), rel=1e-5)
    np.testing.assert_allclose(method.final_teacher()[index].numpy(), later, rtol=1e-4, atol=1e-7)


def test_certain_prediction_has_full_share_and_uniform_none():
    hard = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    previous = torch.tensor([[0.0, 1.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    targets = blend_by_certainty(hard, previous, torch.tensor(0.8))
    np.testing.assert_allclose(targets.numpy(), [[0.2, 0.8, 0.0], [1.0, 0.0, 0.0]], atol=1e-6)


def test_alpha_0_is_cross_entropy_exactly(make_task, FakeBatch, Linear5):
    network, task = Linear5(), make_task()
    method, plain = make(task, network, **NEUTRAL), choose("ce").method(task, network, None)
    for epoch in (1, 5):
        method.begin_epoch(epoch)
        batch = FakeBatch(inputs(seed=epoch), [1, 5, 9])
        assert torch.equal(method.loss(network, batch), plain.loss(network, batch))


def test_unlabelled_sample_learns_from_previous_prediction_only():
    hard, previous = torch.zeros(1, 2), torch.tensor([[0.3, 0.7]])
    assert torch.equal(blend_by_certainty(hard, previous, torch.tensor(0.5)), previous)


def test_state_survives_saving(make_task, FakeBatch, Linear5):
    network = Linear5()
    method = make(make_task(), network)
    method.begin_epoch(4)
    method.loss(network, FakeBatch(inputs(), [0, 1, 2]))
    other = make(make_task(), network)
    other.load_state_dict(method.state_dict())
    other.begin_epoch(4)
    assert torch.equal(other.targets(torch.arange(12)), method.targets(torch.arange(12)))


def test_is_marked_as_reconstruction():
    method = choose("ewr-kd").method
    assert method.reconstruction
    assert "reconstruction" in method.source


def test_bad_alpha_raises():
    with pytest.raises(ValueError, match=r"alpha .*-0.1"):
        choose("ewr-kd", {"alpha": -0.1})
