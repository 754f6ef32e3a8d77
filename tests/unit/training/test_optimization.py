"""The learning rate, step by step."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vista.runs.config import TrainConfig
from vista.training.optimization import learning_rates

STEPS = 704  # 45,000 samples in batches of 64


def rates(epoch: int, **options) -> np.ndarray:
    return learning_rates(TrainConfig(method="ce", epochs=200, lr=0.1, **options), epoch, STEPS)


@pytest.mark.parametrize("epoch", [1, 41, 81, 121, 161])
def test_restarts_begin_at_the_full_rate(epoch: int) -> None:
    values = rates(epoch, lr_schedule="restarts", restart_epochs=40)
    assert values.shape == (STEPS,)
    assert values[0] == 0.1
    assert (np.diff(values) < 0).all()


@pytest.mark.parametrize("epoch", [40, 80, 120, 160, 200])
def test_just_before_a_restart_the_rate_is_near_0(epoch: int) -> None:
    values = rates(epoch, lr_schedule="restarts", restart_epochs=40)
    assert 0 < values[-1] < 1e-9
    assert values[0] < 0.1 * 0.002


def test_cosine_falls_from_the_full_rate_to_near_0_without_a_jump() -> None:
    values = np.concatenate([rates(epoch, lr_schedule="cosine") for epoch in range(1, 201)])
    assert values[0] == 0.1
    assert values[100 * STEPS] == pytest.approx(0.05)
    assert 0 < values[-1] < 1e-9
    assert (np.diff(values) < 0).all()
    assert np.abs(np.diff(values)).max() < 0.1 * math.pi / (200 * STEPS)


def test_every_step_has_its_own_rate() -> None:
    values = rates(41, lr_schedule="restarts", restart_epochs=40)
    by_hand = [0.05 * (1 + math.cos(math.pi * step / (40 * STEPS))) for step in range(STEPS)]
    np.testing.assert_allclose(values, by_hand, rtol=1e-12)


def test_constant_stays() -> None:
    assert (rates(77, lr_schedule="constant") == 0.1).all()
