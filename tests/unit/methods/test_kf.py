"""KF: plain training, then fusion of past predictions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vista.core.fusion import fusion_weights
from vista.methods import EpochEnd, choose
from vista.methods.kf import NEUTRAL, KnowledgeFusion, fuse


def ended(epoch, val_logits, test_logits):
    return EpochEnd(epoch, torch.nn.Identity(), val_logits, test_logits, iter, iter, np.zeros(40, bool))


def trajectory(epochs=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    val = torch.randn(epochs, 40, 5, generator=generator)
    val[:, torch.arange(40), torch.arange(40) % 5] += 0.8
    return val, torch.randn(epochs, 7, 5, generator=generator)


@pytest.fixture
def task(make_task):
    return make_task(val_labels=torch.arange(40) % 5, epochs=12)


def trained(task, Linear5, **options):
    method = KnowledgeFusion(task, Linear5(), KnowledgeFusion.Config(**options))
    for epoch, (val, test) in enumerate(zip(*trajectory()), 1):
        method.end_epoch(ended(epoch, val, test))
    return method


def test_prediction_is_mean_of_selected_epochs(task):
    val, test = (logits.softmax(2) for logits in trajectory())
    fused = fuse(list(val), task.val_labels, list(test))
    assert len(fused.weights) > 1
    for probs, given in ((val, fused.val), (test, fused.test)):
        expected = sum(weight * probs[epoch - 1].double().numpy() for epoch, weight in fused.weights.items())
        np.testing.assert_allclose(given.numpy(), expected, rtol=1e-5)


def test_test_samples_do_not_affect_selection(task):
    val, test = (logits.softmax(2) for logits in trajectory())
    other = test.flip(0)
    assert fuse(list(val), task.val_labels, list(test)).weights == fuse(list(val), task.val_labels, list(other)).weights


def test_training_is_plain_cross_entropy(task, FakeBatch, Linear5):
    network, x = Linear5(), torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    loss = KnowledgeFusion(task, network, KnowledgeFusion.Config()).loss(network, FakeBatch(x, [0, 1, 2]))
    torch.testing.assert_close(loss, F.cross_entropy(network(x), torch.arange(3)))


def test_predictions_of_all_epochs_are_fused_at_end(task, Linear5):
    val, test = trajectory()
    method = trained(task, Linear5)
    halves = [list(logits.softmax(2).half()) for logits in (val, test)]
    fused = fuse(halves[0], task.val_labels, halves[1])
    torch.testing.assert_close(method.fused_predictions(), (fused.val, fused.test), rtol=0, atol=0)


@pytest.mark.parametrize("option", [{"window": 1}, {"step": 0.3}, {"rounds": 1}])
def test_options_are_passed_to_search(task, Linear5, option):
    val, test = (list(logits.softmax(2).half()) for logits in trajectory())
    fused = fuse(val, task.val_labels, test, **option)
    assert fused.weights == fusion_weights(val, task.val_labels, **option) != fusion_weights(val, task.val_labels)
    given = trained(task, Linear5, **option).fused_predictions()
    torch.testing.assert_close(given, (fused.val, fused.test), rtol=0, atol=0)


def test_without_rounds_last_epoch_predicts(task, Linear5):
    val, test = trajectory()
    given = trained(task, Linear5, **NEUTRAL).fused_predictions()
    torch.testing.assert_close(given, (val[-1].softmax(1), test[-1].softmax(1)), rtol=0, atol=1e-3)


def test_certain_predictions_have_finite_logarithms(task, Linear5):
    method = KnowledgeFusion(task, Linear5(), KnowledgeFusion.Config())
    certain = 200.0 * F.one_hot(task.val_labels, 5).float()
    method.end_epoch(ended(1, certain, certain[:7]))
    assert all(torch.isfinite(probs.log()).all() for probs in method.fused_predictions())


def test_state_survives_saving(task, Linear5):
    one, other = trained(task, Linear5), KnowledgeFusion(task, Linear5(), KnowledgeFusion.Config())
    other.load_state_dict(one.state_dict())
    torch.testing.assert_close(one.fused_predictions(), other.fused_predictions(), rtol=0, atol=0)


def test_declared_size_covers_stored_predictions(task, Linear5):
    method = trained(replace(task, num_test=7), Linear5)
    kept = method.get_extra_state()["predictions"].values()
    assert method.bytes_written_once() == sum(tensor.nbytes for probs in kept for tensor in probs.values())


def test_missing_epochs_raise(task, Linear5):
    with pytest.raises(ValueError, match="val_probs must have the validation probabilities of every epoch, got none"):
        KnowledgeFusion(task, Linear5(), KnowledgeFusion.Config()).fused_predictions()
    with pytest.raises(ValueError, match="test_probs must hold 2 epochs like val_probs, got 1"):
        fuse([torch.rand(2, 2)] * 2, torch.zeros(2, dtype=torch.long), [torch.rand(2, 2)])


@pytest.mark.parametrize("option", ["window=2", "step=0.0", "rounds=-1"])
def test_bad_options_raise(option):
    with pytest.raises(ValueError, match=option.replace("=", " .*")):
        choose(f"kf:{option}")
