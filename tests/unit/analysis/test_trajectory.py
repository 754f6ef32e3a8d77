"""Trajectory statistics, verified by hand on 4 epochs x 6 samples."""

from __future__ import annotations

import numpy as np
import pytest
from made_runs import HAND

from vista.analysis import forgetting, trajectory


def test_accuracy_residual_and_gap() -> None:
    assert trajectory.intermediate_accuracy(HAND) * 6 == pytest.approx([2, 4, 3, 4])
    assert trajectory.structural_residual(HAND) * 6 == pytest.approx([1, 3, 3, 4])
    assert trajectory.deviation_gap(HAND) * 6 == pytest.approx([1, 1, 0, 0])


def test_credit_replays_algorithm_2() -> None:
    expected = [[2, 0, 0, 0], [0, 4, 0, 0], [0, 4, 1, 0], [0, 4, 0, 1]]
    assert trajectory.credit(HAND).tolist() == expected
    # Above a fifth of six samples are counts of 2 and more: a state that adds one sample is pruned at once.
    assert trajectory.credit(HAND, tau=0.2).tolist() == [[2, 0, 0, 0], [0, 4, 0, 0], [0, 4, 0, 0], [0, 4, 0, 0]]
    # The newest first: at epoch 3 it has three, epoch 2 adds samples 0 and 3; at epoch 4 it adds sample 0 alone.
    newest = [[2, 0, 0, 0], [0, 4, 0, 0], [0, 2, 3, 0], [0, 1, 0, 4]]
    assert trajectory.credit(HAND, order="newest").tolist() == newest


def test_lifespans() -> None:
    table = trajectory.credit(HAND)
    assert trajectory.lifespans(table).tolist() == [1, 3, 1, 1]


def test_anchor_weights_sum_to_one_or_to_zero() -> None:
    table = trajectory.credit(HAND)
    assert trajectory.anchor_weights(HAND, table)[3] == pytest.approx([0, 0.8, 0, 0.2])
    assert trajectory.anchor_weights(HAND, table, "uniform")[2] == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert trajectory.anchor_weights(HAND, table, "accuracy")[1] == pytest.approx([1 / 3, 2 / 3, 0, 0])
    nothing = np.zeros((1, 6), dtype=bool)
    # After four epochs states 2 and 4 are anchors: each shares its weight with its neighbours; 4 has only one.
    smoothed = [0.8 / 3, 0.8 / 3, 0.8 / 3 + 0.1, 0.1]
    weights = trajectory.anchor_weights(HAND, table)
    assert trajectory.smooth_weights(weights, 3)[3] == pytest.approx(smoothed)
    assert (trajectory.smooth_weights(weights, 1) == weights).all()
    assert trajectory.anchor_weights(nothing, trajectory.credit(nothing)).tolist() == [[0]]


def test_bytes_are_float16_predictions_of_every_sample() -> None:
    assert trajectory.bytes_of(np.array([1, 12]), 45_000, 100).tolist() == [9_000_000, 108_000_000]


def test_best_epoch_is_the_first_of_the_most_accurate() -> None:
    assert trajectory.best_epoch(HAND) == 2


@pytest.mark.parametrize("wrong", [HAND.astype(int), HAND[0], HAND[:0], [[True]]])
def test_an_invalid_bit_matrix_is_rejected(wrong: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"correct must be a non-empty bool array \[epochs, samples\], got"):
        trajectory.intermediate_accuracy(wrong)


def test_forgetting_of_each_sample() -> None:
    found = forgetting.per_sample(HAND)
    assert found.times_lost.tolist() == [1, 0, 0, 1, 0, 0]
    assert found.lost.tolist() == [True, False, False, False, False, False]


def test_forgetting_of_each_class() -> None:
    found = forgetting.per_class(HAND, np.array([0, 0, 1, 1, 2, 2]), 4)
    assert found.samples.tolist() == [2, 2, 2, 0]
    assert found.right.tolist() == [1, 2, 1, 0]
    assert found.lost.tolist() == [1, 0, 0, 0]
    assert found.times_lost.tolist() == [1, 1, 0, 0]
    with pytest.raises(ValueError, match="labels has 2 entries, but correct has 6 samples"):
        forgetting.per_class(HAND, np.array([0, 1]), 2)
