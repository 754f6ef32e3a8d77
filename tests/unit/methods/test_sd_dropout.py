"""SD-Dropout: predictions under two dropout masks learn from each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from by_hand import log_softmax

from vista.methods import choose
from vista.methods.sd_dropout import NEUTRAL, SdDropout, compute_dropout_consistency


@pytest.mark.parametrize("detach", [False, True])
def test_consistency_matches_formula(detach):
    first, second = np.random.default_rng(0).normal(size=(2, 4, 3))
    log_p, log_q = log_softmax(first / 3), log_softmax(second / 3)
    expected = 9 * ((np.exp(log_p) - np.exp(log_q)) * (log_p - log_q)).sum(axis=1).mean()
    given = compute_dropout_consistency(torch.from_numpy(first), torch.from_numpy(second), 3.0, detach)
    np.testing.assert_allclose(float(given), expected, rtol=1e-10)


def test_detach_stops_gradient_through_teacher_side():
    first, second = (torch.randn(4, 3, generator=torch.Generator().manual_seed(s)).requires_grad_() for s in (1, 2))
    compute_dropout_consistency(first, second, 1.0, detach=True).backward()
    alone = (first.softmax(1) - second.softmax(1)).detach() / 4
    torch.testing.assert_close(first.grad, alone)
    first.grad = None
    compute_dropout_consistency(first, second, 1.0).backward()
    assert not torch.allclose(first.grad, alone)


def test_neutral_loss_is_plain_cross_entropy(make_task, network, batch):
    method = SdDropout(make_task(), network, SdDropout.Config(**NEUTRAL))
    expected = F.cross_entropy(network(batch.x), make_task().labels[batch.index])
    torch.testing.assert_close(method.loss(network, batch), expected, rtol=0, atol=1e-6)


def test_without_dropout_both_predictions_agree(make_task, network, batch):
    method = SdDropout(make_task(), network, SdDropout.Config(p=0.0, weight=10.0))
    expected = F.cross_entropy(network(batch.x), make_task().labels[batch.index])
    torch.testing.assert_close(method.loss(network, batch), expected, rtol=0, atol=1e-6)


def test_masks_use_task_generator_and_keep_mean(make_task, network):
    task = make_task(generator=torch.Generator().manual_seed(3))
    method = SdDropout(task, network, SdDropout.Config(p=0.25))
    outside = torch.random.get_rng_state()
    thinned = method.drop_features(torch.ones(200, 50))
    assert torch.equal(torch.random.get_rng_state(), outside)
    assert thinned.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert float(thinned.mean()) == pytest.approx(1.0, abs=0.02)
    task.generator.manual_seed(3)
    torch.testing.assert_close(method.drop_features(torch.ones(200, 50)), thinned)


def test_the_two_masks_differ(make_task, network, batch):
    method = SdDropout(make_task(), network, SdDropout.Config())
    plain = F.cross_entropy(network(batch.x), make_task().labels[batch.index])
    assert method.loss(network, batch).item() > plain.item() + 1e-4


def test_network_without_features_is_rejected(make_task, Linear5):
    with pytest.raises(ValueError, match="sd-dropout needs pooled features"):
        SdDropout(make_task(), Linear5(), SdDropout.Config())


@pytest.mark.parametrize("option", ["weight=-1.0", "p=1.0", "temperature=0.0"])
def test_bad_options_raise(option):
    with pytest.raises(ValueError, match=option.replace("=", " .*")):
        choose(f"sd-dropout:{option}")
