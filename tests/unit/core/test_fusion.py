"""Knowledge fusion: which past states recover samples that the last one forgot."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vista.core import coverage, teacher
from vista.core.fusion import forget_fraction, fusion_weights, stored_probs


def trajectory(seed, epochs=8, samples=60, classes=4):
    """Probabilities of ``epochs`` states that each know something else."""
    logits = np.random.default_rng(seed).normal(size=(epochs, samples, classes))
    labels = np.random.default_rng(seed + 100).integers(classes, size=samples)
    logits[:, np.arange(samples), labels] += 0.8
    return torch.from_numpy(logits).softmax(dim=2).float(), torch.from_numpy(labels)


def reference(probs, labels, window, step, rounds):
    """The same search in plain numpy, on a vector of weights."""
    epochs, half = len(probs), window // 2
    weights = np.zeros(epochs)
    weights[-1] = 1.0
    right = probs.argmax(2) == labels
    for _ in range(rounds):
        fused = np.tensordot(weights, probs, 1)
        now = fused.argmax(1) == labels
        best_epoch = (right & ~now).sum(1).argmax()
        around = np.zeros(epochs)
        around[max(0, best_epoch - half) : best_epoch + half + 1] = 1
        around /= around.sum()
        tried = [(1 - a) * weights + a * around for a in np.arange(1, round(1 / step)) * step]
        hits = [(np.tensordot(w, probs, 1).argmax(1) == labels).sum() for w in tried]
        if max(hits) <= now.sum():
            break
        weights = tried[int(np.argmax(hits))]
    return weights


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("window", "step"), [(1, 0.05), (3, 0.05), (5, 0.05), (3, 0.3)])
def test_weights_equal_a_plain_search(seed, window, step):
    probs, labels = trajectory(seed)
    expected = reference(probs.double().numpy(), labels.numpy(), window, step, 10)
    weights = fusion_weights(list(probs), labels, window=window, step=step)
    given = np.array([weights.get(epoch, 0.0) for epoch in range(1, len(probs) + 1)])
    np.testing.assert_allclose(given, expected, atol=1e-12)
    assert len(weights) > 1  # or the trajectory shows nothing


@pytest.mark.parametrize("seed", range(5))
def test_validation_accuracy_never_falls_from_round_to_round(seed):
    probs, labels = trajectory(seed)
    hits = []
    for rounds in range(5):
        weights = fusion_weights(list(probs), labels, rounds=rounds)
        assert sum(weights.values()) == pytest.approx(1.0)
        assert min(weights.values()) > 0
        fused = teacher.teacher({s: probs[s - 1] for s in weights}, weights)
        hits.append(int((fused.argmax(1) == labels).sum()))
    assert hits == sorted(hits)
    assert hits[-1] > hits[0]


def test_without_rounds_the_last_state_stands_alone():
    probs, labels = trajectory(0)
    assert fusion_weights(list(probs), labels, rounds=0) == {8: 1.0}


def test_nothing_forgotten_nothing_fused():
    probs, labels = trajectory(0)
    perfect = torch.nn.functional.one_hot(labels, 4).float()
    assert fusion_weights([*probs, perfect], labels) == {9: 1.0}


def test_the_forget_fraction_is_the_deviation_gap():
    probs, labels = trajectory(1)
    right = probs.argmax(2) == labels
    forgotten = forget_fraction(right, right[-1])
    gap = coverage.deviation_gap(coverage.pack(right.numpy()), right.shape[1])
    np.testing.assert_allclose(forgotten.numpy(), gap, rtol=1e-6)
    assert forgotten[-1] == 0


def test_probabilities_are_kept_as_halves_made_of_wide_logits():
    logits = 20 * torch.randn(3, 4, generator=torch.Generator().manual_seed(0), requires_grad=True).bfloat16()
    probs = stored_probs(logits)
    assert (probs.dtype, probs.requires_grad) == (torch.float16, False)
    assert torch.equal(probs, logits.detach().float().softmax(1).half())


def test_no_stored_predictions():
    with pytest.raises(ValueError, match=r"val_probs must have .* got none: train with the method 'kf'"):
        fusion_weights([], torch.zeros(3, dtype=torch.long))


@pytest.mark.parametrize("option", [{"window": 2}, {"window": 0}, {"step": 0.0}, {"step": 0.6}, {"rounds": -1}])
def test_bad_options(option):
    probs, labels = trajectory(0)
    ((name, value),) = option.items()
    with pytest.raises(ValueError, match=f"{name} must be .*got {value}"):
        fusion_weights(list(probs), labels, **option)
