"""The learning rate, step by step."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vista.runs.config import TrainConfig
from vista.training.optimization import learning_rates
from vista.training.resolve import identity

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


def test_hold_is_constant_and_then_one_cosine() -> None:
    values = np.concatenate([rates(epoch, lr_schedule="hold") for epoch in range(1, 201)])
    held = 130 * STEPS  # 65 % of 200 epochs
    assert (values[: held + 1] == 0.1).all()
    falling = 70 * STEPS
    by_hand = [0.05 * (1 + math.cos(math.pi * step / falling)) for step in range(falling)]
    np.testing.assert_allclose(values[held:], by_hand, rtol=1e-9, atol=1e-14)
    assert 0 < values[-1] < 1e-8


def test_hold_changes_within_an_epoch_if_the_fraction_ends_there() -> None:
    values = learning_rates(TrainConfig(epochs=10, lr=1.0, lr_schedule="hold", hold_fraction=0.25), 3, 10)
    assert (values[:6] == 1.0).all()
    assert (np.diff(values[5:]) < 0).all()


def test_hold_for_no_epoch_is_cosine() -> None:
    for epoch in (1, 77, 200):
        held = rates(epoch, lr_schedule="hold", hold_fraction=0.0)
        np.testing.assert_array_equal(held, rates(epoch, lr_schedule="cosine"))


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_hold_fraction_out_of_range_is_rejected(fraction: float) -> None:
    with pytest.raises(ValueError, match=rf"hold_fraction .*{fraction}"):
        TrainConfig(hold_fraction=fraction)


def test_hold_fraction_is_part_of_the_identity_only_if_it_differs_from_its_default() -> None:
    assert identity(TrainConfig(hold_fraction=0.65)) == identity(TrainConfig())
    assert identity(TrainConfig(hold_fraction=0.5)) != identity(TrainConfig())
