"""BAN: a new network learns from the labels and from an already trained network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from by_hand import log_softmax

from vista.methods import EarlierRun, choose
from vista.methods.ban import NEUTRAL, Ban, compute_teacher_loss


def test_teacher_loss_matches_formula():
    logits, teacher = np.random.default_rng(0).normal(size=(2, 4, 3))
    expected = -(np.exp(log_softmax(teacher)) * log_softmax(logits)).sum(axis=1).mean()
    given = compute_teacher_loss(torch.from_numpy(logits), torch.from_numpy(teacher))
    np.testing.assert_allclose(float(given), expected, rtol=1e-10)


@pytest.fixture
def batch(FakeBatch):
    return FakeBatch(torch.randn(3, 3, generator=torch.Generator().manual_seed(0)), [0, 1, 2])


def test_loss_adds_teacher_term_on_same_image(make_task, Linear5, batch):
    network, teacher = Linear5(seed=0), Linear5(seed=1).eval()
    method = Ban(make_task(earlier={"teacher": teacher}), network, Ban.Config(weight=0.5))
    expected = F.cross_entropy(network(batch.x), torch.arange(3))
    expected = expected + 0.5 * F.cross_entropy(network(batch.x), teacher(batch.x).softmax(1).detach())
    loss = method.loss(network, batch)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert teacher.weight.grad is None


def test_neutral_loss_is_plain_cross_entropy(make_task, Linear5, batch):
    network = Linear5()
    method = Ban(make_task(earlier={"teacher": Linear5(seed=1)}), network, Ban.Config(**NEUTRAL))
    torch.testing.assert_close(method.loss(network, batch), F.cross_entropy(network(batch.x), torch.arange(3)))


def test_each_generation_requires_previous_one():
    assert Ban.earlier_runs(Ban.Config()) == (EarlierRun("teacher", "ce"),)
    chosen = choose("ban:generations=3:weight=0.5")
    (run,) = chosen.method.earlier_runs(chosen.config)
    assert run == EarlierRun("teacher", "ban", {"generations": 2, "weight": 0.5})
    second = choose(run.method, run.options)
    assert second.method.earlier_runs(second.config)[0].options["generations"] == 1


def test_the_teacher_is_neither_trained_nor_saved(make_task, Linear5):
    method = Ban(make_task(earlier={"teacher": Linear5()}), Linear5(), Ban.Config())
    assert not list(method.parameters())
    assert not method.state_dict()


def test_missing_teacher_raises(make_task, Linear5):
    with pytest.raises(ValueError, match=r"task.earlier\['teacher'\], got none"):
        Ban(make_task(), Linear5(), Ban.Config())


@pytest.mark.parametrize("option", ["generations=0", "weight=-1.0"])
def test_bad_options_raise(option):
    with pytest.raises(ValueError, match=option.replace("=", " .*")):
        choose(f"ban:{option}")
