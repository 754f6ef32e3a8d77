from __future__ import annotations

import numpy as np
import pytest
import torch
from by_hand import softmax

from vista.methods import choose
from vista.methods.elr import NEUTRAL, compute_clamped_probs, compute_early_learning_term


def make(task, network, **options):
    chosen = choose("elr", options)
    return chosen.method(task, network, chosen.config)


def inputs(rows=3, seed=1):
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed))


def test_three_epochs_against_numpy(make_task, FakeBatch, Linear5):
    network, index, y = Linear5(), [1, 5, 9], [1, 0, 4]
    method = make(make_task(), network, weight=3.0, momentum=0.7)
    t = np.zeros((3, 5))
    for epoch in (1, 2, 3):
        method.begin_epoch(epoch)
        x = 8 * inputs(seed=epoch)  # large logits, so that the clamp takes effect
        loss = method.loss(network, FakeBatch(x, index))
        p = softmax(network(x).detach().numpy().astype(float))
        clamped = p.clip(1e-4, 1 - 1e-4)
        assert (clamped != p).any()
        t = 0.7 * t + 0.3 * clamped / clamped.sum(1, keepdims=True)
        expected = -np.log(p[range(3), y]).mean() + 3 * np.log(1 - (t * clamped).sum(1)).mean()
        assert loss.item() == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(method.final_teacher()[index].numpy(), t / t.sum(1, keepdims=True), rtol=1e-4)


def test_teacher_of_unseen_sample_is_zero(make_task, Linear5):
    assert not make(make_task(), Linear5()).final_teacher().any()


def test_full_agreement_stays_finite():
    logits = torch.tensor([[200.0, 0.0, 0.0]], requires_grad=True)
    term = compute_early_learning_term(compute_clamped_probs(logits), torch.tensor([[1.0, 0.0, 0.0]]))
    assert term.item() == pytest.approx(np.log(1e-4), rel=1e-2)
    term.backward()
    assert torch.isfinite(logits.grad).all()


def test_no_gradient_reaches_the_memory(make_task, FakeBatch, Linear5):
    network = Linear5()
    method = make(make_task(), network)
    method.loss(network, FakeBatch(inputs(), [0, 1, 2])).backward()
    assert not method.memory.requires_grad


def test_weight_0_is_cross_entropy_exactly(make_task, FakeBatch, Linear5):
    network, task = Linear5(), make_task()
    method, plain = make(task, network, **NEUTRAL), choose("ce").method(task, network, None)
    for seed in (1, 2):
        batch = FakeBatch(inputs(seed=seed), [1, 5, 9])
        assert torch.equal(method.loss(network, batch), plain.loss(network, batch))


def test_state_survives_saving(make_task, FakeBatch, Linear5):
    network = Linear5()
    method = make(make_task(), network)
    method.loss(network, FakeBatch(inputs(), [0, 1, 2]))
    other = make(make_task(), network)
    other.load_state_dict(method.state_dict())
    batch = FakeBatch(inputs(seed=2), [0, 1, 2])
    assert torch.equal(other.loss(network, batch), method.loss(network, batch))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"momentum": 1.0}, "momentum .*1.0"),
        ({"weight": -1.0}, "weight .*-1.0"),
    ],
)
def test_bad_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        choose("elr", options)
