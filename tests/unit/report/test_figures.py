"""Figures as data: bars, cells and curves equal the formulas on 4 epochs x 6 samples worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_runs import BASIC, HAND, hand_run, record_of

from vista.analysis.runs import Group, Run
from vista.report import figures

ONE = [Group("hand", (hand_run(),))]
SHIFTED = np.roll(HAND, 1, axis=1)
SHIFTED[3] = True
TWO_SEEDS = [Group("both", (hand_run("a"), hand_run("b", SHIFTED)))]


def test_forgetting() -> None:
    (panel,) = figures.forgetting(ONE)
    assert panel.against == "given"
    assert panel.accuracy.mean == pytest.approx([2 / 6, 4 / 6, 3 / 6, 4 / 6])
    assert panel.residual.mean == pytest.approx([1 / 6, 3 / 6, 3 / 6, 4 / 6])
    assert panel.mean_gap == pytest.approx(1 / 12)
    assert panel.accuracy.se is None


def test_forgetting_is_judged_by_true_labels_where_all_runs_know_them() -> None:
    knows = Run("knows", Path("knows"), record_of(val_given=HAND, val_true=~HAND))
    assert figures.forgetting([Group("knows", (knows,))])[0].accuracy.mean[0] == pytest.approx(4 / 6)
    assert figures.forgetting([Group("knows", (knows,))], "given")[0].accuracy.mean[0] == pytest.approx(2 / 6)
    assert figures.forgetting([Group("knows", (knows,)), *ONE])[0].against == "given"


def test_several_seeds_are_a_mean_with_a_band() -> None:
    (panel,) = figures.forgetting(TWO_SEEDS)
    assert panel.accuracy.mean == pytest.approx([2 / 6, 4 / 6, 3 / 6, 5 / 6])
    # At the end 4 and 6 of 6 are right: standard deviation sqrt(2) / 6, over sqrt(2).
    assert panel.accuracy.se == pytest.approx([0, 0, 0, 1 / 6])
    assert panel.residual.mean == pytest.approx([1.5 / 6, 3.5 / 6, 3 / 6, 5 / 6])
    assert panel.mean_gap == pytest.approx((1 / 12 + 0) / 2)


def test_seeds_that_are_at_different_epochs_are_compared_as_far_as_all_are() -> None:
    (panel,) = figures.end_of_training([Group("both", (hand_run("a"), hand_run("b", HAND[:2])))])
    assert panel.share.mean == pytest.approx([0, 4 / 6])


def test_marginal_coverage_of_the_runs_own_anchors() -> None:
    (panel,) = figures.marginal_coverage(ONE)
    assert panel.states.tolist() == [2, 4]
    assert panel.sizes.tolist() == [4, 4]
    assert panel.before.tolist() == [0, 4]
    assert panel.gained.tolist() == [4, 1]
    assert panel.weights == pytest.approx([0.8, 0.2])


def test_marginal_coverage_by_a_tolerance() -> None:
    light = hand_run(config={"options": {**BASIC, "tau": 0.2}})
    (panel,) = figures.marginal_coverage([Group("light", (light,))])
    assert panel.states.tolist() == [2]
    assert panel.weights == pytest.approx([1.0])
    assert figures.marginal_coverage([Group("first", (hand_run(correct=HAND[:1]),))])[0].states.tolist() == [1]


def test_life_expectancy() -> None:
    (panel,) = figures.life_expectancy(ONE)
    assert panel.lifespans.tolist() == [1, 3, 1, 1]
    assert panel.by_age.tolist() == [[2, 4, 1, 1], [0, 4, 0, 0], [0, 4, 0, 0], [0, 0, 0, 0]]


def test_end_of_training_coverage() -> None:
    assert figures.end_of_training(ONE)[0].share.mean == pytest.approx([0, 4 / 6, 0, 1 / 6])


def test_contributing_set_and_its_bytes() -> None:
    run = hand_run(samples=100, classes=("a", "b", "c"), config={"options": {**BASIC, "tau": 0.2}})
    (own,) = figures.contributing_set([Group("light", (run,))])
    assert own.anchors.mean.tolist() == [1, 1, 1, 1]
    assert own.bytes_each == 100 * 3 * 2
    (basic,) = figures.contributing_set(ONE)
    assert basic.anchors.mean.tolist() == [1, 1, 2, 2]
    assert basic.bytes_each is None
    uniform = hand_run(config={"options": {**BASIC, "weights": "uniform"}})
    assert figures.contributing_set([Group("all", (uniform,))])[0].anchors.mean.tolist() == [1, 2, 3, 4]


def test_test_against_validation() -> None:
    run = Run("run", Path("run"), record_of(val_given=HAND, val_true=~HAND, test=HAND[:, :2]))
    (panel,) = figures.test_against_validation([Group("run", (run,))])
    assert panel.validation.mean == pytest.approx([2 / 6, 4 / 6, 3 / 6, 4 / 6])
    assert panel.validation_true is not None
    assert panel.validation_true.mean == pytest.approx([4 / 6, 2 / 6, 3 / 6, 2 / 6])
    assert panel.test is not None
    assert panel.test.mean == pytest.approx([1, 1, 0.5, 0.5])
    assert figures.test_against_validation(ONE)[0].test is None


def test_forgotten_classes_are_sorted_by_loss() -> None:
    run = hand_run(classes=("x", "y"), val_labels=np.array([1, 1, 1, 0, 0, 0]))
    (panel,) = figures.forgotten_classes([Group("run", (run,))])
    assert panel.classes == ("y", "x")
    assert panel.lost.tolist() == [1, 0]
    assert figures.forgotten_classes(ONE) == []


def test_timeline_holds_the_weights_of_every_teacher() -> None:
    expected = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0.8, 0.2, 0], [0, 0.8, 0, 0.2]]
    assert figures.timeline(ONE)[0].weights == pytest.approx(np.array(expected))
