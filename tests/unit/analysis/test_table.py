"""The comparison table: means, standard errors, the best of each column, unfinished runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_runs import HAND, hand_run, record_of, write_run

from vista import functional
from vista.analysis.groups import Group, group_runs, read_runs
from vista.analysis.runs import Run
from vista.analysis.table import comparison
from vista.report import figures


def test_the_best_of_each_column_is_marked_and_ties_are_shared() -> None:
    better = HAND.copy()
    better[3, 0] = True
    groups = [
        Group("a", (hand_run(),)),
        Group("b", (hand_run(correct=better),)),
        Group("c", (hand_run(correct=better),)),
    ]
    rows = comparison(groups)
    assert [row.cells["gap"].mean for row in rows] == pytest.approx([100 / 12, 0, 0])
    assert [row.cells["gap"].best for row in rows] == [False, True, True]
    accuracies = 100 * HAND.mean(axis=1), 100 * better.mean(axis=1)
    assert rows[0].cells["val_best"].mean == pytest.approx(accuracies[0].max())
    assert rows[1].cells["val_best"].mean == pytest.approx(accuracies[1].max())
    assert all(row.cells["best"] is None for row in rows)  # no test samples were recorded


def test_means_that_round_to_the_same_value_are_both_the_best() -> None:
    def with_ece(value: float) -> Group:
        test = {"top1": 0.5, "ece": value, "aurc": 0.2}
        return Group(str(value), (hand_run(metrics={"best": {"test": test}, "last": {"test": test}}),))

    rows = comparison([with_ece(value) for value in (0.100001, 0.100002, 0.1002)])
    assert [row.cells["ece"].best for row in rows] == [True, True, False]


def test_the_best_epoch_is_chosen_on_the_validation_samples() -> None:
    test = HAND[[0, 2, 1, 3]] | np.eye(4, 6, k=2, dtype=bool)[::-1]
    assert test.mean(axis=1).argmax() != HAND.mean(axis=1).argmax() == 1
    run = Run("run", Path("run"), record_of(val_given=HAND, test=test))
    (row,) = comparison([Group("run", (run,))])
    assert row.cells["best"].mean == pytest.approx(100 * test[1].mean())
    assert row.cells["last"].mean == pytest.approx(100 * test[3].mean())


def test_a_value_that_one_run_of_a_row_lacks_is_not_shown() -> None:
    known = Run("known", Path("known"), record_of(val_given=HAND, test=HAND))
    (row,) = comparison([Group("both", (known, hand_run()))])
    assert row.cells["last"] is None
    assert row.cells["val_best"] is not None


def test_finished_runs_use_their_metrics_and_running_ones_their_record(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / f"done{seed}", seed=seed)
        write_run(tmp_path / f"going{seed}", method="vista", seed=seed, finished=False)
    done, going = comparison(group_runs(read_runs([tmp_path])))
    for key in ("best", "last"):
        assert done.cells[key].mean == going.cells[key].mean  # made from the same bits
        assert done.cells[key].se is not None
    assert done.cells["ece"].mean == pytest.approx(10)
    assert done.cells["aurc"].mean == pytest.approx(20)
    assert going.cells["ece"] is None
    assert going.cells["anchors"].mean == 4
    assert done.cells["minutes"].mean == pytest.approx(2)


def test_the_slowest_seed_sets_the_epoch_of_its_row(tmp_path: Path) -> None:
    write_run(tmp_path / "done", method="vista", epochs=6)
    write_run(tmp_path / "going", method="vista", epochs=6, seed=1)
    (tmp_path / "going" / "metrics.json").unlink()
    lines = (tmp_path / "going" / "epochs.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "going" / "epochs.jsonl").write_text("".join(lines[:3]))
    groups = group_runs(read_runs([tmp_path]))
    (row,) = comparison(groups)
    (panel,) = figures.forgetting(groups)
    assert row.epochs == 3
    assert row.cells["gap"].mean == pytest.approx(100 * panel.mean_gap.value)
    assert row.cells["last"].mean == pytest.approx(
        np.mean([100 * run.correct("test")[2].mean() for run in groups[0].runs])
    )
    assert row.cells["ece"] is None
    assert row.cells["anchors"].mean == 3, "there is one more with each epoch"
    assert row.cells["minutes"].mean == pytest.approx(1.5), "half a minute each"


def test_a_row_before_its_first_epoch_has_no_numbers() -> None:
    (row,) = comparison([Group("new", (hand_run(correct=HAND[:0]),))])
    assert row.epochs == 0
    assert set(row.cells.values()) == {None}


def test_the_gap_uses_labels_that_all_runs_know(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels, given, true = np.arange(30) % 3, rng.random((5, 30)) < 0.5, rng.random((5, 30)) < 0.7
    np.savez(tmp_path / "a.npz", correct=given, correct_true=true, labels=labels, true_labels=labels)
    np.savez(tmp_path / "b.npz", correct=rng.random((5, 30)) < 0.6, labels=labels)
    groups = group_runs(read_runs([tmp_path / "a.npz", tmp_path / "b.npz"]))
    shown = [row.cells["gap"].mean for row in comparison(groups)]
    assert shown == pytest.approx([100 * panel.mean_gap.value for panel in figures.forgetting(groups)])
    assert shown[0] == pytest.approx(100 * functional.deviation_gap(given).mean())
    (alone,) = comparison(groups[:1])
    assert alone.cells["gap"].mean == pytest.approx(100 * functional.deviation_gap(true).mean())


def test_a_single_value_is_not_the_best_of_its_column(tmp_path: Path) -> None:
    write_run(tmp_path / "done")
    write_run(tmp_path / "going", method="vista", finished=False)
    done, _ = comparison(group_runs(read_runs([tmp_path])))
    assert not done.cells["ece"].best
