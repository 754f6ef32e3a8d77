"""Figure data, verified by hand on 4 epochs x 6 samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_runs import BASIC, HAND, hand_run, record_of

from vista.analysis.groups import Group
from vista.analysis.runs import Run
from vista.report import figures
from vista.runs.record import Record

ONE = [Group("hand", (hand_run(),))]
SHIFTED = np.roll(HAND, 1, axis=1)
SHIFTED[3] = True
TWO_SEEDS = [Group("both", (hand_run("a"), hand_run("b", SHIFTED)))]


def test_forgetting() -> None:
    (panel,) = figures.forgetting(ONE)
    assert panel.against == "given"
    assert panel.accuracy.mean == pytest.approx([2 / 6, 4 / 6, 3 / 6, 4 / 6])
    assert panel.residual.mean == pytest.approx([1 / 6, 3 / 6, 3 / 6, 4 / 6])
    assert panel.gap.mean == pytest.approx([1 / 6, 1 / 6, 0, 0])
    assert panel.mean_gap.value == pytest.approx(1 / 12)
    assert panel.mean_gap.se is None


def test_forgetting_uses_true_labels_if_all_runs_know_them() -> None:
    knows = Run("knows", Path("knows"), record_of(val_given=HAND, val_true=~HAND))
    assert figures.forgetting([Group("knows", (knows,))])[0].accuracy.mean[0] == pytest.approx(4 / 6)
    assert figures.forgetting([Group("knows", (knows,))], "given")[0].accuracy.mean[0] == pytest.approx(2 / 6)
    assert figures.forgetting([Group("knows", (knows,)), *ONE])[0].against == "given"


def test_several_seeds_have_whiskers_of_one_standard_error() -> None:
    (panel,) = figures.forgetting(TWO_SEEDS)
    assert panel.accuracy.mean == pytest.approx([2 / 6, 4 / 6, 3 / 6, 5 / 6])
    # At the end 4 and 6 of 6 are right: standard deviation sqrt(2) / 6, over sqrt(2).
    assert panel.accuracy.se == pytest.approx([0, 0, 0, 1 / 6])
    assert panel.accuracy.low == pytest.approx([2 / 6, 4 / 6, 3 / 6, 4 / 6])
    assert panel.accuracy.high == pytest.approx([2 / 6, 4 / 6, 3 / 6, 6 / 6])
    assert panel.accuracy.seeds == 2
    assert panel.residual.mean == pytest.approx([1.5 / 6, 3.5 / 6, 3 / 6, 5 / 6])
    assert panel.residual.se == pytest.approx([0.5 / 6, 0.5 / 6, 0, 1 / 6])
    assert panel.gap.mean == pytest.approx([0.5 / 6, 0.5 / 6, 0, 0])
    # The mean gaps of the runs are 1/12 and 0.
    assert (panel.mean_gap.value, panel.mean_gap.se) == pytest.approx((1 / 24, 1 / 24))


def test_one_run_has_no_whiskers() -> None:
    for band in (figures.forgetting(ONE)[0].accuracy, figures.contributing_set(ONE)[0].anchors):
        assert band.se is None
        assert band.seeds == 1
        assert (band.low == band.mean).all()
        assert (band.high == band.mean).all()


def test_every_curve_has_whiskers_for_several_seeds() -> None:
    (anchors,) = figures.contributing_set(TWO_SEEDS)
    # Anchors at the end: two of the first run; of the second its last state alone.
    assert anchors.anchors.mean == pytest.approx([1, 1, 2, 1.5])
    assert anchors.anchors.se == pytest.approx([0, 0, 0, 0.5])
    assert anchors.most == 2
    # One run with two anchors, one that never has any: at most 2, though the mean is 1.
    (never,) = figures.contributing_set([Group("both", (hand_run("a"), hand_run("b", HAND & False)))])
    assert (never.most, never.anchors.mean.max()) == (2, 1)
    pair = (Run("a", Path("a"), record_of(val_given=HAND, val_true=HAND, test=HAND)),
            Run("b", Path("b"), record_of(val_given=SHIFTED, val_true=SHIFTED, test=SHIFTED)))  # fmt: skip
    (accuracies,) = figures.test_against_validation([Group("both", pair)])
    for band in (accuracies.validation, accuracies.validation_true, accuracies.test):
        assert band is not None
        assert band.se == pytest.approx([0, 0, 0, 1 / 6])


def test_seeds_are_compared_up_to_the_epoch_that_all_have_completed() -> None:
    (panel,) = figures.accuracy([Group("both", (hand_run("a"), hand_run("b", HAND[:2])))])
    assert panel.curve.mean == pytest.approx([2 / 6, 4 / 6])


def test_marginal_coverage() -> None:
    (panel,) = figures.marginal_coverage(ONE)
    assert panel.states.tolist() == [2, 4]
    assert panel.sizes.tolist() == [4, 4]
    assert panel.before.tolist() == [0, 4]
    assert panel.gained.tolist() == [4, 1]
    assert panel.weights == pytest.approx([0.8, 0.2])


def test_anchors_of_several_seeds_are_those_of_the_first_run() -> None:
    (panel,) = figures.marginal_coverage(TWO_SEEDS)
    assert (panel.run, panel.seeds) == ("a", 2)
    assert panel.states.tolist() == [2, 4]


def test_recorded_anchor_weights_are_drawn_instead_of_a_replay() -> None:
    """Weights that no replay gives: states 1 and 3 remain anchors after epoch 3."""
    run = hand_run()
    recorded = [{"1": 1.0}, {"2": 1.0}, {"1": 0.25, "3": 0.75}, {"1": 0.1, "4": 0.9}]
    for line, weights in zip(run.record.lines, recorded, strict=True):
        line |= {"anchors": len(weights), "anchor_weights": weights}
    group = [Group("hand", (run,))]
    expected = [[1, 0, 0, 0], [0, 1, 0, 0], [0.25, 0, 0.75, 0], [0.1, 0, 0, 0.9]]
    assert figures.timeline(group)[0].weights.tolist() == expected
    assert figures.contributing_set(group)[0].anchors.mean.tolist() == [1, 1, 2, 2]
    (panel,) = figures.marginal_coverage(group)
    # The last sweep ranks state 4 (samples 1 to 4), 3 (adds none) and 1 (adds sample 0).
    assert panel.states.tolist() == [4, 1]
    assert panel.gained.tolist() == [4, 1]
    assert panel.before.tolist() == [0, 4]
    assert panel.weights.tolist() == [0.9, 0.1]


def test_marginal_coverage_by_a_tolerance() -> None:
    light = hand_run(config={"options": {**BASIC, "tau": 0.2}})
    (panel,) = figures.marginal_coverage([Group("light", (light,))])
    assert panel.states.tolist() == [2]
    assert panel.weights == pytest.approx([1.0])
    assert figures.marginal_coverage([Group("first", (hand_run(correct=HAND[:1]),))])[0].states.tolist() == [1]


def test_contributing_set_and_its_bytes() -> None:
    run = hand_run(samples=100, classes=("a", "b", "c"), config={"options": {**BASIC, "tau": 0.2}})
    (own,) = figures.contributing_set([Group("light", (run,))])
    assert own.anchors.mean.tolist() == [1, 1, 1, 1]
    assert own.bytes_each == 100 * 3 * 2
    assert own.detail == ": at most 1, 600 B, τ = 0.2"
    assert own.most == 1
    (basic,) = figures.contributing_set(ONE)
    assert basic.anchors.mean.tolist() == [1, 1, 2, 2]
    assert basic.bytes_each is None
    assert basic.detail == ": at most 2"
    (plain,) = figures.contributing_set([Group("plain", (hand_run(anchors=False),))])
    assert plain.detail == ": at most 2, replayed as VISTA Basic"
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


def test_forgotten_classes_are_sorted_by_the_share_lost() -> None:
    uneven = hand_run(correct=HAND[:3], classes=("x", "y"), val_labels=np.array([1, 0, 0, 0, 0, 0]))
    (first,) = figures.forgotten_classes([Group("uneven", (uneven,))])
    # After three epochs samples 0 and 3 are lost: all of y, and one of five of x.
    assert (first.classes, first.lost.tolist(), first.samples.tolist()) == (("y", "x"), [1, 1], [1, 5])
    run = hand_run(classes=("x", "y"), val_labels=np.array([1, 1, 1, 0, 0, 0]))
    (panel,) = figures.forgotten_classes([Group("run", (run,))])
    assert panel.classes == ("y", "x")
    assert panel.lost.tolist() == [1, 0]
    assert panel.share.mean == pytest.approx([1 / 3, 0])
    other = hand_run("b", SHIFTED, classes=("x", "y"), val_labels=np.array([1, 1, 1, 0, 0, 0]))
    (both,) = figures.forgotten_classes([Group("both", (run, other))])
    assert both.samples.tolist() == [6, 6]
    assert both.share.mean == pytest.approx([1 / 6, 0])
    assert both.share.se == pytest.approx([1 / 6, 0])
    assert figures.forgotten_classes(ONE) == []


def test_a_seed_without_samples_of_a_class_says_nothing_of_it() -> None:
    first = hand_run(classes=("x", "y"), val_labels=np.array([1, 1, 1, 0, 0, 0]))  # loses one of three of y
    second = hand_run("b", classes=("x", "y"), val_labels=np.zeros(6, np.int64))
    (panel,) = figures.forgotten_classes([Group("both", (first, second))])
    assert panel.classes == ("y", "x")
    assert panel.share.mean == pytest.approx([1 / 3, 1 / 12])
    assert panel.share.se is not None
    assert np.isnan(panel.share.se[0]), "one seed has no standard error"
    assert panel.share.se[1] == pytest.approx(1 / 12)


def test_smoothing_spreads_the_weights_and_keeps_every_state() -> None:
    options = {"method": "vista-smoothing", "options": {"smoothing": 3}}
    group = Group("run", (Run("run", Path("run"), record_of(val_given=HAND), options),))
    (panel,) = figures.timeline([group])
    assert panel.weights[3] == pytest.approx([0.8 / 3, 0.8 / 3, 0.8 / 3 + 0.1, 0.1])
    (kept,) = figures.contributing_set([group])
    assert (kept.anchors.mean.tolist(), kept.most) == ([1, 2, 3, 4], 4)


def test_forgotten_classes_use_the_epochs_that_all_seeds_have() -> None:
    """As in every other figure: one run of an unfinished group may be ahead of another."""
    known = {"classes": ("x", "y"), "val_labels": np.array([1, 1, 1, 0, 0, 0])}
    ahead, behind = hand_run(**known), hand_run("b", HAND[:1], **known)
    (panel,) = figures.forgotten_classes([Group("both", (ahead, behind))])
    assert panel.lost.tolist() == [0, 0], "after one epoch nothing has been forgotten"
    (gap,) = figures.forgetting([Group("both", (ahead, behind))])
    assert gap.mean_gap.value == 0


def test_timeline_shows_the_weights_of_every_teacher() -> None:
    expected = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0.8, 0.2, 0], [0, 0.8, 0, 0.2]]
    assert figures.timeline(ONE)[0].weights == pytest.approx(np.array(expected))


def with_lines(name: str, accuracies: list[float], metrics: float | None = None, **config: object) -> Run:
    """A run of the ledger: accuracies, but no samples."""
    lines = [
        {"epoch": k, "val_accuracy": own / 2, "test_accuracy": own, "lr": rate}
        for k, (own, rate) in enumerate(zip(accuracies, (0.1, 0.01, 0.1, 0.01), strict=True), 1)
    ]
    known = None if metrics is None else {"last": {"test": {"top1": metrics}}, "best": {"test": {"top1": metrics}}}
    return Run(name, Path(name), Record({}, lines), dict(config), metrics=known)


def test_accuracy_of_all_methods_is_on_one_axis_with_restarts() -> None:
    tested = Run("tested", Path("tested"), record_of(val_given=HAND, test=HAND[::-1].copy()))
    lines = with_lines("lines", [0.1, 0.5, 0.4, 0.6])
    first, second = figures.accuracy([Group("a", (tested,)), Group("b", (lines,))])
    assert first.against == second.against == "test"
    assert first.curve.mean == pytest.approx([4 / 6, 3 / 6, 4 / 6, 2 / 6])
    assert second.curve.mean == pytest.approx([0.1, 0.5, 0.4, 0.6])
    assert (first.restarts, second.restarts) == ((), (3,))
    without = figures.accuracy([Group("a", (tested,)), *ONE])
    assert {panel.what for panel in without} == {"validation accuracy on given labels"}


def test_a_fused_prediction_is_shown_apart_from_the_curve() -> None:
    (fused,) = figures.accuracy([Group("kf", (with_lines("kf", [0.1, 0.5, 0.4, 0.6], 0.7),))])
    assert fused.final is not None
    assert fused.final.value == 0.7
    assert figures.accuracy([Group("ce", (with_lines("ce", [0.1, 0.5, 0.4, 0.6], 0.6),))])[0].final is None


def test_runs_without_samples_are_left_out_of_the_figures_of_samples() -> None:
    lines = with_lines("lines", [0.1, 0.5, 0.4, 0.6])
    kept = figures.with_samples([Group("mixed", (lines, hand_run())), Group("none", (lines,))])
    assert [(group.name, [run.name for run in group.runs]) for group in kept] == [("mixed", ["hand"])]


def test_classes_are_aligned_across_methods() -> None:
    """Each method loses another class; the order is that of the mean."""
    known = {"classes": ("x", "y", "z"), "val_labels": np.array([0, 0, 1, 1, 2, 2])}
    start = np.ones((1, 6), bool)
    first = hand_run("a", np.concatenate([start, np.array([[1, 1, 0, 0, 1, 1]], bool)]), **known)
    second = hand_run("b", np.concatenate([start, np.array([[1, 1, 0, 1, 0, 0]], bool)]), **known)
    panels = figures.forgotten_classes([Group("a", (first,)), Group("b", (second,))])
    assert [panel.classes for panel in panels] == [("y", "z", "x")] * 2
    assert [panel.share.mean.tolist() for panel in panels] == [[1, 0, 0], [0.5, 1, 0]]
