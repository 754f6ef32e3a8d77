"""Temperature and noise rate are recovered from noisy labels, and unusable input is rejected with a remedy."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

import vista
from vista.core import calibration, noise_fit
from vista.core.calibration import CalibrationError, calibrate
from vista.metrics import ece


def softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def simulated(
    samples: int = 4000, classes: int = 10, rate: float = 0.0, seed: int = 0, scale: float = 3.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Calibrated logits, true labels drawn from them, and given labels with symmetric noise."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=scale, size=(samples, classes))
    true = (softmax(logits).cumsum(axis=1) < rng.random((samples, 1))).sum(axis=1).clip(max=classes - 1)
    wrong = rng.random(samples) < rate
    given = np.where(wrong, (true + rng.integers(1, classes, samples)) % classes, true)
    return logits, true, given


@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_temperature_and_noise_rate_are_recovered(classes: int, rate: float, temperature: float) -> None:
    samples = 4000 if classes == 100 else 8000
    logits, _, given = simulated(samples, classes, rate, scale=4.0)
    found = calibrate(temperature * logits, given, "symmetric")
    assert found.temperature_error is not None
    assert found.noise_rate_error is not None
    assert abs(found.temperature - temperature) < 3 * found.temperature_error < temperature
    assert abs(found.noise_rate - rate) < 3 * found.noise_rate_error < 0.06
    assert found.samples == samples


def test_a_calibration_is_shown_in_one_line() -> None:
    draws = np.random.default_rng(0)
    labels = draws.integers(0, 3, 200)
    found = repr(calibrate(np.eye(3)[labels] + draws.normal(size=(200, 3)), labels))
    number = r"[\d.]+( ± [\d.]+)?"
    assert re.fullmatch(rf"Calibration\(temperature {number}, noise rate {number}, 200 labels\)", found)


def test_the_standard_errors_cover_the_truth() -> None:
    fits = [calibrate(*simulated(300, 10, 0.4, seed)[::2], "symmetric") for seed in range(40)]
    for value, truth in (("temperature", 1.0), ("noise_rate", 0.4)):
        off = [abs(getattr(fit, value) - truth) / getattr(fit, f"{value}_error") for fit in fits]
        assert np.mean(np.array(off) < 2) > 0.85


def test_calibrated_predictions_with_clean_labels_are_left_alone() -> None:
    logits, true, _ = simulated(8000)
    found = calibrate(logits, true)
    assert found.temperature == pytest.approx(1.0, abs=0.05)
    assert found.noise_rate == pytest.approx(0.0, abs=0.01)
    np.testing.assert_allclose(found.matrix, np.eye(10), atol=0.01)


def test_the_true_labels_are_calibrated_although_only_noisy_ones_were_given() -> None:
    logits, true, given = simulated(rate=0.4)
    overconfident = 3 * logits
    trusting, robust = (calibrate(overconfident, given, noise) for noise in ("none", "symmetric"))
    assert ece(robust.probabilities(overconfident), true) < 0.03
    assert ece(trusting.probabilities(overconfident), true) > 0.2


def test_more_noise_gives_a_higher_rate() -> None:
    rates = [calibrate(*simulated(2000, rate=rate)[::2]).noise_rate for rate in (0.0, 0.1, 0.2, 0.4, 0.6)]
    assert rates == sorted(rates)
    assert rates[-1] - rates[0] > 0.5


def test_probabilities_keep_the_order_of_the_logits() -> None:
    logits, _, given = simulated(500, rate=0.3)
    probs = calibrate(logits, given).probabilities(logits)
    np.testing.assert_array_equal(probs.argsort(axis=1), logits.argsort(axis=1))
    np.testing.assert_allclose(probs.sum(axis=1), 1.0)


@pytest.mark.parametrize("noise", ["symmetric", "structured", "none"])
def test_scaled_logits_scale_the_temperature(noise: str) -> None:
    logits, _, given = simulated(rate=0.2)
    plain, scaled = calibrate(logits, given, noise), calibrate(2.5 * logits, given, noise)
    assert scaled.temperature == pytest.approx(2.5 * plain.temperature, rel=0.01)
    assert scaled.noise_rate == pytest.approx(plain.noise_rate, abs=0.005)


@pytest.mark.parametrize("noise", ["symmetric", "structured", "none"])
def test_the_order_of_samples_and_classes_does_not_matter(noise: str) -> None:
    logits, _, given = simulated(1000, rate=0.3)
    rng = np.random.default_rng(1)
    rows, classes = rng.permutation(1000), rng.permutation(10)
    position = np.argsort(classes)
    first = calibrate(logits, given, noise)
    second = calibrate(logits[rows][:, classes], position[given[rows]], noise)
    assert second.temperature == pytest.approx(first.temperature, rel=1e-5)
    assert second.noise_rate == pytest.approx(first.noise_rate, abs=1e-5)
    np.testing.assert_allclose(second.matrix, first.matrix[classes][:, classes], atol=1e-4)


def test_the_fit_is_deterministic_and_shift_invariant() -> None:
    logits, _, given = simulated(300, rate=0.3)
    first, again, shifted = (calibrate(z, given) for z in (logits, logits.copy(), logits + 1000.0))
    assert first.temperature == again.temperature
    assert shifted.temperature == pytest.approx(first.temperature, rel=1e-4)


def pair_noise(rate: float, classes: int = 10) -> np.ndarray:
    return (1 - rate) * np.eye(classes) + rate * np.roll(np.eye(classes), 1, axis=1)


def test_structured_noise_is_found_where_samples_suffice() -> None:
    logits, true, _ = simulated(8000, scale=6.0)
    wrong = np.random.default_rng(2).random(len(true)) < 0.3
    given = np.where(wrong, (true + 1) % 10, true)
    found = calibrate(logits, given, "structured")
    np.testing.assert_allclose(found.matrix, pair_noise(0.3), atol=0.08)
    np.testing.assert_allclose(found.matrix.sum(axis=1), 1.0)
    assert found.noise_rate == pytest.approx(0.3, abs=0.05)
    assert ece(found.probabilities(logits), true) < 0.03
    given_matrix = calibrate(2 * logits, given, pair_noise(0.3))
    assert given_matrix.temperature == pytest.approx(2.0, rel=0.1)
    assert given_matrix.noise_rate_error is None


def test_few_samples_shrink_the_joint_towards_symmetric_noise_of_its_rate() -> None:
    symmetric = noise_fit.symmetric_matrix(torch.tensor(0.3).double(), 10)
    joint = torch.from_numpy(pair_noise(0.3))
    few, many = (noise_fit.shrink_joint(samples * joint) for samples in (1e-6, 1e6))
    torch.testing.assert_close(few, symmetric, atol=1e-4, rtol=0)
    torch.testing.assert_close(many, joint, atol=1e-4, rtol=0)


# ---------------------------------------------------------------- the choice of the model


def asymmetric(samples: int, classes: int = 10) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Calibrated logits with the next class in second place, true labels, and 40 % given labels of the next class."""
    rng = np.random.default_rng(0)
    likely = np.eye(classes)[rng.integers(0, classes, samples)]
    logits = rng.normal(size=(samples, classes)) + 10 * likely + 6 * np.roll(likely, 1, axis=1)
    true = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return logits, true, np.where(rng.random(samples) < 0.4, (true + 1) % classes, true)


@pytest.mark.parametrize("samples", [270, 2000])
def test_noise_that_follows_the_classes_is_recognised(samples: int) -> None:
    """A symmetric rate of zero would be found for it, which takes the wrong labels for true."""
    logits, true, given = asymmetric(samples)
    found, symmetric = calibrate(logits, given), calibrate(logits, given, "symmetric")
    assert found.noise == "structured"
    assert found.noise_rate == pytest.approx(0.4, abs=0.1)
    assert symmetric.noise_rate < 0.05
    before, after, misled = (
        ece(z, true) for z in (softmax(logits), *(f.probabilities(logits) for f in (found, symmetric)))
    )
    assert after < before + 0.02
    assert misled > after + 0.05


@pytest.mark.parametrize("samples", [270, 2000])
def test_symmetric_noise_is_not_taken_for_structured(samples: int) -> None:
    logits, _, given = simulated(samples, rate=0.4)
    found, alone = calibrate(2 * logits, given), calibrate(2 * logits, given, "symmetric")
    assert (found.noise, found.temperature) == ("symmetric", alone.temperature)
    assert found.temperature_error == alone.temperature_error
    assert found.noise_rate_error == alone.noise_rate_error
    assert found.gain is not None
    assert found.gain > 0


def test_a_temperature_that_helps_no_held_out_label_is_not_used() -> None:
    found = [calibrate(*simulated(200, 10, 0.4, seed)[::2]) for seed in range(12)]
    left_alone = [fit for fit in found if fit.temperature == 1.0]
    assert 3 < len(left_alone) < 12, "the logits are calibrated: about half of the fits find noise in the noise"
    assert all(fit.gain == 0.0 and fit.temperature_error is None for fit in left_alone)
    assert all(fit.gain > 0.0 for fit in found if fit.temperature != 1.0 and fit.gain is not None)


def test_the_gain_is_that_of_held_out_labels() -> None:
    logits, _, given = simulated(500, 4, 0.3)
    scores, labels = torch.from_numpy(3 * logits), torch.from_numpy(given)
    folds = calibration._folds(labels)
    assert [int((labels[folds == fold] == 2).sum()) for fold in range(5)] == pytest.approx([25] * 5, abs=12)
    with_t, without = 0.0, 0.0
    for fold in range(5):
        rest, part = folds != fold, folds == fold
        for given_t in (None, 1.0):
            t, rate = noise_fit.fit_symmetric(scores[rest], labels[rest], temperature=given_t, most=0.99, prior=1.0)
            own = (scores[part] / t).softmax(1).gather(1, labels[part, None])[:, 0]
            value = float(torch.log((1 - rate) * own + rate / 3 * (1 - own)).sum())
            with_t, without = (with_t + value, without) if given_t is None else (with_t, without + value)
    found = calibrate(scores, labels)
    assert found.noise == "symmetric"
    assert found.gain == pytest.approx((with_t - without) / 500, rel=0.01)


def test_labels_that_are_all_predicted_keep_the_temperature_finite() -> None:
    given = np.arange(200) % 4
    found = calibrate(np.eye(4)[given] * 2 - 1, given)
    assert noise_fit.COLDEST <= found.temperature < 1
    assert found.noise_rate == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_predictions_without_information_give_finite_values(scale: float) -> None:
    rng = np.random.default_rng(0)
    found = calibrate(scale * rng.normal(size=(100, 5)), rng.integers(0, 5, 100))
    assert noise_fit.COLDEST <= found.temperature <= noise_fit.HOTTEST
    assert 0 <= found.noise_rate < 0.8
    assert np.linalg.cond(found.matrix) < calibration.WORST_CONDITION


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_tensors_are_accepted(dtype: torch.dtype) -> None:
    logits, _, given = simulated(500, rate=0.2)
    tensor = torch.from_numpy(logits).to(dtype).requires_grad_()
    found = vista.calibrate(tensor, torch.from_numpy(given))
    assert found.temperature == pytest.approx(calibrate(logits, given).temperature, rel=0.02)


LOGITS, _, GIVEN = simulated(60, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": LOGITS[:49], "labels": GIVEN[:49]}, "labels must be at least 50, got 49: use a larger validation"),
        ({"labels": np.ones(60, int)}, "at least 2 classes, got 1 alone: use a validation set drawn from all classes"),
        ({"logits": softmax(LOGITS)}, "got probabilities: pass their logarithm"),
        ({"logits": softmax(LOGITS).astype(np.float16)}, "got probabilities: pass their logarithm"),
        ({"noise": np.full((4, 4), 0.25)}, "singular one.* merge them, or use noise='symmetric'"),
        ({"noise": np.eye(3)}, r"noise must be a matrix \[4, 4\], got the shape \(3, 3\)"),
        ({"noise": 2 * np.eye(4)}, "not negative and sum to 1"),
        ({"noise": "human"}, "noise must be one of auto, symmetric, structured, none, .* got 'human'"),
        ({"labels": GIVEN + 1}, r"labels\[\d+\] must be 0 to 3, got 4"),
        ({"labels": GIVEN[:-1]}, r"labels must have the shape \[60\], one per row of logits, got \(59,\)"),
        ({"logits": LOGITS[:, 0]}, r"logits must have the shape \[samples, classes\]"),
        ({"logits": np.where(np.arange(4) == 2, np.inf, LOGITS)}, r"logits\[0, 2\] must be finite, got inf"),
    ],
)
def test_unusable_input_is_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrate(**{"logits": LOGITS, "labels": GIVEN, **change})


def test_labels_must_be_integers() -> None:
    with pytest.raises(TypeError, match="labels must be integers, got float64"):
        calibrate(LOGITS, GIVEN.astype(float))


def test_log_probabilities_are_logits() -> None:
    logits, _, given = simulated(500, rate=0.2)
    assert calibrate(np.log(softmax(logits)), given).temperature == pytest.approx(calibrate(logits, given).temperature)


def test_input_that_allows_no_fit_has_its_own_error() -> None:
    with pytest.raises(CalibrationError):
        calibrate(softmax(LOGITS), GIVEN)
