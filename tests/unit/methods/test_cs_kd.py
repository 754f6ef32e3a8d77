"""CS-KD: an image learns from another image of its class."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from by_hand import divergences

from vista.methods import choose
from vista.methods.cs_kd import NEUTRAL, CsKd, compute_class_consistency


def test_consistency_matches_formula():
    logits, partner = np.random.default_rng(0).normal(size=(2, 4, 3))
    student, teacher = (torch.from_numpy(z).requires_grad_() for z in (logits, partner))
    given = compute_class_consistency(student, teacher, 4.0)
    np.testing.assert_allclose(given.item(), divergences(logits, partner, 4.0).mean(), rtol=1e-10)
    given.backward()
    assert student.grad is not None
    assert teacher.grad is None


def test_mean_is_over_labelled_rows():
    logits, partner = np.random.default_rng(0).normal(size=(2, 4, 3))
    labelled = np.array([True, False, True, False])
    student = torch.from_numpy(logits).requires_grad_()
    given = compute_class_consistency(student, torch.from_numpy(partner), 4.0, torch.from_numpy(labelled))
    np.testing.assert_allclose(given.item(), divergences(logits, partner, 4.0)[labelled].mean(), rtol=1e-10)
    given.backward()
    assert student.grad.abs().sum(dim=1)[~torch.from_numpy(labelled)].max() < 1e-12
    nobody = compute_class_consistency(student, torch.from_numpy(partner), 4.0, torch.zeros(4, dtype=torch.bool))
    assert nobody.item() == pytest.approx(0.0, abs=1e-12)


def test_partner_is_augmented_and_gets_no_gradient(make_task, FakeBatch, Linear5):
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(12, 3, generator=generator)
    asked = []

    def views(number, index):
        asked.append((number, index.tolist()))
        return images[index]

    network = Linear5()
    batch = FakeBatch(torch.randn(4, 3, generator=generator), [0, 1, 2, 3], views=views, pairs=[5, 6, 7, 8])
    task = make_task()
    assert task.labels[[5, 6, 7, 8]].tolist() == task.labels[[0, 1, 2, 3]].tolist()
    loss = CsKd(task, network, CsKd.Config(weight=0.5)).loss(network, batch)
    assert asked == [(1, [5, 6, 7, 8])]
    own, partner = network(batch.x), network(images[[5, 6, 7, 8]])
    soft = divergences(own.detach().double().numpy(), partner.detach().double().numpy(), 4.0).mean()
    expected = F.cross_entropy(own, task.labels[:4]).item() + 0.5 * soft
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    loss.backward()
    gradient = network.weight.grad.clone()
    network.zero_grad()
    partner = partner.detach()
    (F.cross_entropy(own, task.labels[:4]) + 0.5 * compute_class_consistency(own, partner, 4.0)).backward()
    torch.testing.assert_close(network.weight.grad, gradient)


def test_neutral_loss_is_plain_cross_entropy(make_task, FakeBatch, Linear5):
    x = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    network, batch = Linear5(), FakeBatch(x, [0, 1, 2], views=lambda number, index: -x, pairs=[0, 1, 2])
    loss = CsKd(make_task(), network, CsKd.Config(**NEUTRAL)).loss(network, batch)
    torch.testing.assert_close(loss, F.cross_entropy(network(x), make_task().labels[:3]))


def test_unlabelled_samples_are_ignored(make_task, FakeBatch, Linear5):
    labels = make_task().labels.clone()
    labels[1] = -1
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    network, task = Linear5(), make_task(labels=labels)
    method = CsKd(task, network, CsKd.Config())
    both = method.loss(network, FakeBatch(x, [0, 1], views=lambda number, index: -x, pairs=[5, 1]))
    everybody_labelled = CsKd(make_task(), network, CsKd.Config())
    first = everybody_labelled.loss(network, FakeBatch(x[:1], [0], views=lambda number, index: -x[:1], pairs=[5]))
    torch.testing.assert_close(both, first)


def test_does_not_compose_with_cutmix():
    assert not CsKd.composes_with_cutmix


@pytest.mark.parametrize("option", ["weight=-1.0", "temperature=0.0"])
def test_bad_options_raise(option):
    with pytest.raises(ValueError, match=option.replace("=", " .*")):
        choose(f"cs-kd:{option}")
