"""GCE: a loss between cross-entropy and the mean absolute error."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vista.methods import choose
from vista.methods.gce import NEUTRAL, compute_generalised_cross_entropy


def make(task, network, **options):
    chosen = choose("gce", options)
    return chosen.method(task, network, chosen.config)


@pytest.fixture
def batch(FakeBatch):
    return FakeBatch(torch.randn(3, 3, generator=torch.Generator().manual_seed(1)), [1, 5, 9])


def test_loss_against_numpy(make_task, Linear5, batch):
    network = Linear5()
    loss = make(make_task(), network).loss(network, batch)
    z = network(batch.x).detach().numpy().astype(float)
    p = (np.exp(z) / np.exp(z).sum(1, keepdims=True))[range(3), [1, 0, 4]]
    assert loss.item() == pytest.approx(((1 - p**0.7) / 0.7).mean(), rel=1e-5)


def test_limits_are_cross_entropy_and_half_the_absolute_error():
    logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    hard = torch.eye(5, dtype=torch.float64)[[0, 1, 2, 4]]
    near_zero = compute_generalised_cross_entropy(logits, hard, 1e-6)
    torch.testing.assert_close(near_zero, compute_generalised_cross_entropy(logits, hard, 0.0), rtol=1e-4, atol=0)
    absolute = (logits.softmax(1) - hard).abs().sum(1)
    torch.testing.assert_close(compute_generalised_cross_entropy(logits, hard, 1.0), absolute / 2)


def test_wrong_labels_have_less_gradient_than_with_cross_entropy():
    logits = torch.tensor([[8.0, 0.0, 0.0], [0.1, 0.0, 0.0]], requires_grad=True)
    hard = torch.eye(3)[[1, 0]]  # the first label contradicts a confident prediction
    losses = compute_generalised_cross_entropy(logits, hard, 0.7)
    (robust,) = torch.autograd.grad(losses.sum(), logits)
    (plain,) = torch.autograd.grad(F.cross_entropy(logits, hard, reduction="sum"), logits)
    ratio = robust.norm(dim=1) / plain.norm(dim=1)
    assert ratio[0] < 0.01 < 0.3 < ratio[1]


def test_neutral_is_cross_entropy_exactly(make_task, Linear5, batch):
    network, task = Linear5(), make_task()
    method, plain = make(task, network, **NEUTRAL), choose("ce").method(task, network, None)
    assert torch.equal(method.loss(network, batch), plain.loss(network, batch))


def test_cutmix_and_missing_labels(make_task, FakeBatch, Linear5, batch):
    network = Linear5()
    method = make(make_task(), network)
    mixed = FakeBatch(batch.x, batch.index, partner=[0, 2, 3], share=0.25)
    losses = [
        compute_generalised_cross_entropy(network(batch.x), method.task.one_hot(torch.tensor(i)), 0.7).mean()
        for i in ([1, 5, 9], [0, 2, 3])
    ]
    torch.testing.assert_close(method.loss(network, mixed), 0.25 * losses[0] + 0.75 * losses[1])
    labels = make_task().labels.clone()
    labels[5] = -1
    partly = make(make_task(labels=labels), network).loss(network, batch)
    expected = make(make_task(), network).loss(network, FakeBatch(batch.x[[0, 2]], [1, 9]))
    torch.testing.assert_close(partly, expected)


def test_bad_options_raise():
    with pytest.raises(ValueError, match=r"q .*1\.5"):
        choose("gce:q=1.5")
