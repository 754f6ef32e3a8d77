from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from by_hand import softmax

from vista.methods import choose
from vista.methods.ps_kd import NEUTRAL, compute_share


def make(task, network, name="ps-kd", **options):
    chosen = choose(name, options)
    return chosen.method(task, network, chosen.config)


def inputs(rows=3, seed=1):
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed))


def test_two_epochs_against_numpy(make_task, FakeBatch, Linear5):
    network, x, x_later, index = Linear5(), inputs(), inputs(seed=2), [1, 5, 9]
    method = make(make_task(epochs=10), network)
    hard = np.eye(5)[[1, 0, 4]]
    method.begin_epoch(1)
    first = method.loss(network, FakeBatch(x, index))
    p = softmax(network(x).detach().numpy().astype(float))
    assert first.item() == pytest.approx(-(hard * np.log(p)).sum(1).mean(), rel=1e-5)
    method.begin_epoch(2)
    second = method.loss(network, FakeBatch(x_later, index))
    later = softmax(network(x_later).detach().numpy().astype(float))
    a = 0.8 * 2 / 10
    assert second.item() == pytest.approx(-(((1 - a) * hard + a * p) * np.log(later)).sum(1).mean(), rel=1e-5)
    np.testing.assert_allclose(method.final_teacher()[index].numpy(), later, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_epoch_1_trains_on_labels_for_any_alpha(make_task, Linear5, alpha):
    method = make(make_task(), Linear5(), alpha=alpha)
    method.begin_epoch(1)
    assert torch.equal(method.targets(torch.arange(12)), method.task.one_hot(torch.arange(12)))


def test_memory_holds_last_epoch_only(make_task, FakeBatch, Linear5):
    network = Linear5()
    method = make(make_task(), network)
    for epoch in (1, 2, 3):
        method.begin_epoch(epoch)
        method.loss(network, FakeBatch(inputs(seed=epoch), [0, 1, 2]))
    expected = network(inputs(seed=3)).softmax(1)
    torch.testing.assert_close(method.memory[:3], expected.detach())
    assert torch.equal(method.memory[3:], method.task.one_hot(torch.arange(3, 12)))


def test_beta_variant_uses_beta_of_previous_epoch():
    beta = [(1 - math.exp(-2 * (t - 1) / 9)) / (1 - math.exp(-2)) for t in range(1, 11)]
    shares = [compute_share(epoch, 10, "exp", 2.0) for epoch in range(1, 11)]
    np.testing.assert_allclose(shares, [0.0, *beta[:9]], atol=1e-12)
    assert choose("ps-kd-beta").options == {"alpha": 1.0, "schedule": "exp", "k": 2.0}


def test_beta_variant_trains_epochs_1_and_2_on_labels(make_task, FakeBatch, Linear5):
    network = Linear5()
    method = make(make_task(), network, "ps-kd-beta")
    for epoch in (1, 2):
        method.begin_epoch(epoch)
        assert torch.equal(method.targets(torch.arange(3)), method.task.one_hot(torch.arange(3)))
        method.loss(network, FakeBatch(inputs(), [0, 1, 2]))
    method.begin_epoch(10)
    u = 8 / 9
    beta = (1 - math.exp(-2 * u)) / (1 - math.exp(-2))
    expected = (1 - beta) * np.eye(5)[:3] + beta * method.memory[:3].numpy()
    np.testing.assert_allclose(method.targets(torch.arange(3)).numpy(), expected, atol=1e-6)


def test_alpha_0_is_cross_entropy_exactly(make_task, FakeBatch, Linear5):
    network, task = Linear5(), make_task()
    method, plain = make(task, network, **NEUTRAL), choose("ce").method(task, network, None)
    for epoch in (1, 5):
        method.begin_epoch(epoch)
        batch = FakeBatch(inputs(seed=epoch), [1, 5, 9])
        assert torch.equal(method.loss(network, batch), plain.loss(network, batch))


def test_unlabelled_sample_learns_from_previous_prediction_only(make_task, Linear5):
    method = make(make_task(num_classes=2, labels=torch.tensor([-1, 0])), Linear5())
    method.memory.copy_(torch.tensor([[0.3, 0.7], [0.3, 0.7]]))
    method.alpha.fill_(0.5)
    np.testing.assert_allclose(method.targets(torch.arange(2)).numpy(), [[0.3, 0.7], [0.65, 0.35]], rtol=1e-6)


def test_unlabelled_sample_is_excluded_until_seen(make_task, FakeBatch, Linear5):
    network, x, labels = Linear5(), inputs(2), torch.tensor([2, -1])
    method = make(make_task(labels=labels), network)
    method.begin_epoch(1)
    alone = make(make_task(labels=labels[:1]), network)
    alone.begin_epoch(1)
    torch.testing.assert_close(method.loss(network, FakeBatch(x, [0, 1])), alone.loss(network, FakeBatch(x[:1], [0])))
    method.begin_epoch(2)
    torch.testing.assert_close(method.targets(torch.tensor([1])), network(x[1:]).softmax(1).detach())


def test_state_survives_saving_in_the_middle_of_an_epoch(make_task, FakeBatch, Linear5):
    network = Linear5()
    method = make(make_task(), network)
    method.begin_epoch(4)
    method.loss(network, FakeBatch(inputs(), [0, 1, 2]))
    other = make(make_task(), network)
    other.load_state_dict(method.state_dict())
    other.begin_epoch(4)
    index = torch.arange(12)
    assert torch.equal(other.targets(index), method.targets(index))


def test_half_precision_predictions_are_stored_in_float32(make_task, FakeBatch, Linear5):
    network = Linear5().to(torch.bfloat16)
    method = make(make_task(), network)
    method.begin_epoch(1)
    method.loss(network, FakeBatch(inputs().to(torch.bfloat16), [0, 1, 2]))
    assert method.memory.dtype == torch.float32
    np.testing.assert_allclose(method.memory[:3].sum(1).numpy(), 1.0, rtol=1e-6)


def test_does_not_compose_with_cutmix():
    assert not choose("ps-kd").method.composes_with_cutmix


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 1.1}, "alpha .*1.1"),
        ({"schedule": "cosine"}, "schedule .*'cosine'"),
        ({"k": 0.0}, "k .*0.0"),
    ],
)
def test_bad_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        choose("ps-kd", options)
