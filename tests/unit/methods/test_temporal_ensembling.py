from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from by_hand import softmax

from vista.methods import choose
from vista.methods.temporal_ensembling import NEUTRAL, compute_ramp, correct_bias


def make(task, network, **options):
    chosen = choose("temporal-ensembling", options)
    return chosen.method(task, network, chosen.config)


def inputs(rows=3, seed=1):
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed))


def test_ramp_equals_source_over_300_epochs():
    assert compute_ramp(1, 300, 80 / 300) == 0.0
    assert compute_ramp(2, 300, 80 / 300) == pytest.approx(math.exp(-5 * (1 - 1 / 80) ** 2))
    assert compute_ramp(41, 300, 80 / 300) == pytest.approx(math.exp(-5 / 4))
    assert compute_ramp(81, 300, 80 / 300) == compute_ramp(300, 300, 80 / 300) == 1.0


def test_three_epochs_against_numpy(make_task, FakeBatch, Linear5):
    network, index, y = Linear5(), [1, 5, 9], [1, 0, 4]
    method = make(make_task(epochs=10), network, weight=20.0, ramp=0.5)
    z = np.zeros((3, 5))
    for epoch in (1, 2, 3):
        method.begin_epoch(epoch)
        x = inputs(seed=epoch)
        loss = method.loss(network, FakeBatch(x, index))
        p = softmax(network(x).detach().numpy().astype(float))
        expected = -np.log(p[range(3), y]).mean()
        if epoch > 1:
            w = 20 * math.exp(-5 * (1 - (epoch - 1) / 5) ** 2)
            expected += w * ((p - z / (1 - 0.6 ** (epoch - 1))) ** 2).mean()
        assert loss.item() == pytest.approx(expected, rel=1e-5)
        z = 0.6 * z + 0.4 * p
    np.testing.assert_allclose(method.final_teacher()[index].numpy(), z / (1 - 0.6**3), rtol=1e-5)


def test_corrected_mean_after_first_epoch_is_prediction(make_task, FakeBatch, Linear5):
    network, x = Linear5(), inputs()
    method = make(make_task(), network)
    method.begin_epoch(1)
    method.loss(network, FakeBatch(x, [0, 1, 2]))
    torch.testing.assert_close(correct_bias(method.memory)[:3], network(x).softmax(1).detach())
    assert method.final_teacher()[3:].sum() == 0, "what was never seen has no mean"


def test_unseen_sample_is_excluded_from_distance(make_task, FakeBatch, Linear5):
    network, x = Linear5(), inputs()
    method = make(make_task(), network)
    method.begin_epoch(10)
    loss = method.loss(network, FakeBatch(x, [0, 1, 2]))
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(network(x), torch.tensor([0, 1, 2])))


def test_distance_has_gradient(make_task, FakeBatch, Linear5):
    network = Linear5()
    grads = []
    for weight in (0.0, 100.0):
        method = make(make_task(), network, weight=weight)
        method.begin_epoch(1)
        method.loss(network, FakeBatch(inputs(), [0, 1, 2]))
        method.begin_epoch(10)
        network.zero_grad()
        method.loss(network, FakeBatch(inputs(seed=2), [0, 1, 2])).backward()
        grads.append(network.weight.grad.clone())
    assert not torch.allclose(*grads)


def test_weight_0_is_cross_entropy_exactly(make_task, FakeBatch, Linear5):
    network, task = Linear5(), make_task()
    method, plain = make(task, network, **NEUTRAL), choose("ce").method(task, network, None)
    for epoch in (1, 10):
        method.begin_epoch(epoch)
        batch = FakeBatch(inputs(seed=epoch), [1, 5, 9])
        assert torch.equal(method.loss(network, batch), plain.loss(network, batch))


def test_weight_is_scaled_by_share_of_labelled_samples(make_task, Linear5):
    method = make(make_task(labels=torch.tensor([0, -1, -1, 3])), Linear5(), weight=10.0)
    method.begin_epoch(10)
    assert method.weight.item() == pytest.approx(5.0)


def test_samples_without_label_count_in_the_divisor(make_task, FakeBatch, Linear5):
    network, x = Linear5(), inputs(4)
    method = make(make_task(labels=torch.tensor([0, -1, -1, 3])), network, weight=0.0)
    loss = method.loss(network, FakeBatch(x, [0, 1, 2, 3]))
    labelled = torch.nn.functional.cross_entropy(network(x)[[0, 3]], torch.tensor([0, 3]), reduction="sum")
    torch.testing.assert_close(loss, labelled / 4)


def test_state_survives_saving(make_task, FakeBatch, Linear5):
    network = Linear5()
    method = make(make_task(), network)
    method.begin_epoch(3)
    method.loss(network, FakeBatch(inputs(), [0, 1, 2]))
    other = make(make_task(), network)
    other.load_state_dict(method.state_dict())
    other.begin_epoch(3)
    batch = FakeBatch(inputs(seed=2), [0, 1, 2])
    assert torch.equal(other.loss(network, batch), method.loss(network, batch))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"momentum": 1.0}, "momentum .*1.0"),
        ({"weight": -1.0}, "weight .*-1.0"),
        ({"ramp": -0.1}, "ramp .*-0.1"),
    ],
)
def test_bad_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        choose("temporal-ensembling", options)
