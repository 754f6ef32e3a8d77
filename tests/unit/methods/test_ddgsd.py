"""DDGSD: two views of an image teach each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from by_hand import log_softmax

from vista.methods import choose
from vista.methods.ddgsd import NEUTRAL, Ddgsd, compute_ddgsd_terms
from vista.models import build

OPTIONS = {"weight": 0.5, "mmd": 0.1, "temperature": 3.0}


@pytest.fixture
def network():  # without BatchNorm, so that the views are independent
    return build("mlp", num_classes=5, in_channels=3, image_size=1)


@pytest.fixture
def batch(FakeBatch):
    x, other = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(1))
    return FakeBatch(x, [0, 3, 5, 9], views=[other])


def tensors(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(2, 4, 3)), rng.normal(size=(2, 4, 6)), np.eye(3)[[0, 2, 1, 1]]


def test_terms_match_formula():
    (a, b), (f, g), targets = tensors(0)
    log_p, log_q = log_softmax(a / 3), log_softmax(b / 3)
    expected = [
        -(targets * log_softmax(a)).sum(axis=1).mean(),
        -(targets * log_softmax(b)).sum(axis=1).mean(),
        0.5 * 9 * ((np.exp(log_p) - np.exp(log_q)) * (log_p - log_q)).sum(axis=1).mean(),
        0.1 * ((f.mean(axis=0) - g.mean(axis=0)) ** 2).sum(),
    ]
    views, features = map(torch.from_numpy, (a, b)), map(torch.from_numpy, (f, g))
    terms = compute_ddgsd_terms(tuple(views), tuple(features), torch.from_numpy(targets), **OPTIONS)
    np.testing.assert_allclose([float(term) for term in terms], expected, rtol=1e-10)


def test_swapping_views_keeps_loss():
    (a, b), (f, g), targets = ([torch.from_numpy(v) for v in part] for part in tensors(1))
    targets = torch.stack(targets)
    one, other = (
        compute_ddgsd_terms((a, b), (f, g), targets, **OPTIONS),
        compute_ddgsd_terms((b, a), (g, f), targets, **OPTIONS),
    )
    torch.testing.assert_close(sum(one), sum(other))


def test_teacher_side_gets_no_gradient():
    first, second = (torch.randn(4, 3, generator=torch.Generator().manual_seed(s)).requires_grad_() for s in (1, 2))
    features = torch.zeros(4, 2), torch.zeros(4, 2)
    terms = compute_ddgsd_terms((first, second), features, torch.zeros(4, 3), weight=1.0, mmd=0.0, temperature=1.0)
    terms.distillation.backward()
    torch.testing.assert_close(first.grad, (first.softmax(1) - second.softmax(1)).detach() / 4)


def test_neutral_loss_is_cross_entropy_of_each_view(make_task, network, batch):
    method, labels = Ddgsd(make_task(), network, Ddgsd.Config(**NEUTRAL)), make_task().labels[batch.index]
    terms = method.terms(network, batch)
    torch.testing.assert_close(terms.main, F.cross_entropy(network(batch.x), labels))
    torch.testing.assert_close(terms.other, F.cross_entropy(network(batch.view(1)), labels))
    torch.testing.assert_close(method.loss(network, batch), terms.main + terms.other)


def test_both_views_form_one_batch_for_batchnorm(make_task, FakeBatch):
    network = build("tiny-staged", num_classes=5, in_channels=1, image_size=8)
    x, other = torch.randn(2, 4, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    Ddgsd(make_task(), network, Ddgsd.Config()).loss(network, FakeBatch(x, [0, 1, 2, 3], views=[other]))
    assert int(network.groups[0][1].num_batches_tracked) == 1


def test_unlabelled_samples_are_excluded_from_mean(make_task, network, batch):
    labels = make_task().labels.clone()
    labels[batch.index[:3]] = -1
    method = Ddgsd(make_task(labels=labels), network, Ddgsd.Config())
    expected = F.cross_entropy(network(batch.x)[3:], labels[batch.index[3:]])
    torch.testing.assert_close(method.terms(network, batch).main, expected)


def test_does_not_compose_with_cutmix():
    assert not Ddgsd.composes_with_cutmix


def test_network_without_features_is_rejected(make_task, Linear5):
    with pytest.raises(ValueError, match="ddgsd needs pooled features"):
        Ddgsd(make_task(), Linear5(), Ddgsd.Config())


@pytest.mark.parametrize("option", ["weight=-1.0", "mmd=-1.0", "temperature=0.0"])
def test_bad_options_raise(option):
    with pytest.raises(ValueError, match=option.replace("=", " .*")):
        choose(f"ddgsd:{option}")
