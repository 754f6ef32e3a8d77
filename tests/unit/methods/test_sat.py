from __future__ import annotations

import numpy as np
import pytest
import torch
from by_hand import softmax

from vista.core.teacher import adapt_targets
from vista.methods import choose
from vista.methods.sat import NEUTRAL, compute_weighted_loss


def make(task, network, **options):
    chosen = choose("sat", options)
    return chosen.method(task, network, chosen.config)


def inputs(rows=3, seed=1):
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed))


def test_two_adaptive_epochs_against_numpy(make_task, FakeBatch, Linear5):
    network, index = Linear5(), [1, 5, 9]
    method = make(make_task(epochs=10), network)
    t = np.eye(5)[[1, 0, 4]]
    for epoch in (4, 5):
        method.begin_epoch(epoch)
        x = inputs(seed=epoch)
        loss = method.loss(network, FakeBatch(x, index))
        p = softmax(network(x).detach().numpy().astype(float))
        t = 0.9 * t + 0.1 * p
        w = t.max(1) / t.max(1).mean()
        assert loss.item() == pytest.approx((w * -(t * np.log(p)).sum(1)).mean(), rel=1e-5)
    np.testing.assert_allclose(method.final_teacher()[index].numpy(), t, rtol=1e-5, atol=1e-7)


def test_adaptation_starts_after_share_of_epochs(make_task, Linear5):
    method = make(make_task(epochs=200), Linear5())
    momenta = {}
    for epoch in (1, 60, 61, 200):
        method.begin_epoch(epoch)
        momenta[epoch] = round(method.momentum.item(), 6)
    assert momenta == {1: 1.0, 60: 1.0, 61: 0.9, 200: 0.9}


def test_start_1_is_cross_entropy(make_task, FakeBatch, Linear5):
    network, task = Linear5(), make_task(epochs=10)
    method, plain = make(task, network, **NEUTRAL), choose("ce").method(task, network, None)
    for epoch in (1, 10):
        method.begin_epoch(epoch)
        batch = FakeBatch(inputs(seed=epoch), [1, 5, 9])
        torch.testing.assert_close(method.loss(network, batch), plain.loss(network, batch))
    assert torch.equal(method.memory, task.one_hot(torch.arange(12)))


def test_targets_stay_normalised_and_converge_at_rate_of_momentum():
    p, start, momentum = torch.tensor([[0.2, 0.5, 0.3]]), torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor(0.9)
    t = start
    for n in range(1, 21):
        t = adapt_targets(t, p, momentum)
        assert t.sum().item() == pytest.approx(1.0, abs=1e-6)
        torch.testing.assert_close(t - p, (start - p) * 0.9**n)


def test_weights_have_mean_one():
    logits = torch.zeros(3, 4)  # every loss is log 4, so the result depends on the weights only
    targets = torch.tensor([[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25]])
    assert compute_weighted_loss(logits, targets).item() == pytest.approx(np.log(4), rel=1e-6)


def test_unlabelled_sample_follows_its_predictions_after_start(make_task, FakeBatch, Linear5):
    network, x, labels = Linear5(), inputs(2), torch.tensor([2, -1])
    method = make(make_task(labels=labels), network)
    method.begin_epoch(1)
    first = method.loss(network, FakeBatch(x, [0, 1]))
    torch.testing.assert_close(first, torch.nn.functional.cross_entropy(network(x[:1]), labels[:1]))
    assert method.memory[1].sum() == 0
    method.begin_epoch(10)
    method.loss(network, FakeBatch(x, [0, 1]))
    torch.testing.assert_close(method.memory[1:], network(x[1:]).softmax(1).detach())


def test_batch_without_labels_has_zero_loss():
    logits = torch.zeros(2, 3, requires_grad=True)
    loss = compute_weighted_loss(logits, torch.zeros(2, 3))
    loss.backward()
    assert loss.item() == 0
    assert not logits.grad.any()


def test_state_survives_saving(make_task, FakeBatch, Linear5):
    network = Linear5()
    method = make(make_task(), network)
    method.begin_epoch(9)
    method.loss(network, FakeBatch(inputs(), [0, 1, 2]))
    other = make(make_task(), network)
    other.load_state_dict(method.state_dict())
    other.begin_epoch(9)
    batch = FakeBatch(inputs(seed=2), [0, 1, 2])
    assert torch.equal(other.loss(network, batch), method.loss(network, batch))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"momentum": 1.0}, "momentum .*1.0"),
        ({"start": 60}, "start .*60.0"),
    ],
)
def test_bad_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        choose("sat", options)
