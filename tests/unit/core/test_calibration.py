"""Temperature and noise rate are recovered from noisy labels, and unusable input is rejected with a remedy."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

import vista
from vista.core import calibration
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
    logits, _, given = simulated(8000, classes, rate, scale=4.0)
    found = calibrate(temperature * logits, given)
    assert found.temperature_error is not None
    assert found.noise_rate_error is not None
    assert abs(found.temperature - temperature) < 3 * found.temperature_error < temperature
    assert abs(found.noise_rate - rate) < 3 * found.noise_rate_error < 0.06
    assert found.samples == 8000


def test_a_calibration_is_shown_in_one_line() -> None:
    draws = np.random.default_rng(0)
    labels = draws.integers(0, 3, 200)
    found = repr(calibrate(np.eye(3)[labels] + draws.normal(size=(200, 3)), labels))
    number = r"[\d.]+( ± [\d.]+)?"
    assert re.fullmatch(rf"Calibration\(temperature {number}, noise rate {number}, 200 labels\)", found)


def test_the_standard_errors_cover_the_truth() -> None:
    fits = [calibrate(*simulated(300, 10, 0.4, seed)[::2]) for seed in range(40)]
    for value, truth in (("temperature", 1.0), ("noise_rate", 0.4)):
        off = [abs(getattr(fit, value) - truth) / getattr(fit, f"{value}_error") for fit in fits]
        assert np.mean(np.array(off) < 2) > 0.85


def test_calibrated_predictions_with_clean_labels_are_left_alone() -> None:
    logits, true, _ = simulated(20000)
    found = calibrate(logits, true)
    assert found.temperature == pytest.approx(1.0, abs=0.03)
    assert found.noise_rate == pytest.approx(0.0, abs=0.01)
    np.testing.assert_allclose(found.matrix, np.eye(10), atol=0.01)


def test_the_true_labels_are_calibrated_although_only_noisy_ones_were_given() -> None:
    logits, true, given = simulated(rate=0.4)
    overconfident = 3 * logits
    trusting, robust = (calibrate(overconfident, given, noise) for noise in ("none", "symmetric"))
    assert ece(robust.probabilities(overconfident), true) < 0.03
    assert ece(trusting.probabilities(overconfident), true) > 0.2


def test_more_noise_gives_a_higher_rate() -> None:
    rates = [calibrate(*simulated(rate=rate)[::2]).noise_rate for rate in (0.0, 0.1, 0.2, 0.4, 0.6)]
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


def test_few_samples_shrink_the_joint_towards_symmetric_noise() -> None:
    symmetric = calibration.symmetric_matrix(0.4, 10)
    np.testing.assert_allclose(calibration.shrink_joint(np.zeros((10, 10)), symmetric), symmetric)
    many = calibration.shrink_joint(1e6 * pair_noise(0.3), symmetric)
    np.testing.assert_allclose(many, pair_noise(0.3), atol=1e-4)


def test_labels_that_are_all_predicted_keep_the_temperature_finite() -> None:
    given = np.arange(200) % 4
    found = calibrate(np.eye(4)[given] * 2 - 1, given)
    assert calibration.COLDEST <= found.temperature < 1
    assert found.noise_rate == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_predictions_without_information_give_finite_values(scale: float) -> None:
    rng = np.random.default_rng(0)
    found = calibrate(scale * rng.normal(size=(100, 5)), rng.integers(0, 5, 100))
    assert calibration.COLDEST <= found.temperature <= calibration.HOTTEST
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
        ({"noise": "human"}, "noise must be one of symmetric, structured, none, .* got 'human'"),
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
