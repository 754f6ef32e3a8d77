"""The comparison table: means, standard errors, the best in each column, runs that are still going."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_runs import HAND, hand_run, write_run

from vista import functional
from vista.analysis.groups import Group, grouped, read_runs
from vista.analysis.table import comparison, mean_and_error
from vista.report import figures


def test_the_standard_error_is_over_the_seeds() -> None:
    cell = mean_and_error([1.0, 2.0, 6.0])
    assert cell.mean == 3.0
    assert cell.se == pytest.approx(np.sqrt(7.0 / 3.0))
    assert mean_and_error([5.0]).se is None


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


def test_a_finished_run_speaks_by_its_metrics_and_a_running_one_by_its_record(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / f"done{seed}", seed=seed)
        write_run(tmp_path / f"going{seed}", method="vista", seed=seed, finished=False)
    done, going = comparison(grouped(read_runs([tmp_path])))
    for key in ("best", "last"):
        assert done.cells[key].mean == going.cells[key].mean  # made from the same bits
        assert done.cells[key].se is not None
    assert done.cells["ece"].mean == pytest.approx(10)
    assert done.cells["aurc"].mean == pytest.approx(20)
    assert going.cells["ece"] is None
    assert going.cells["anchors"].mean == 4
    assert done.cells["minutes"].mean == pytest.approx(2)


def test_a_seed_that_is_behind_sets_the_epoch_of_its_row(tmp_path: Path) -> None:
    write_run(tmp_path / "done", epochs=6)
    write_run(tmp_path / "going", epochs=6, seed=1)
    (tmp_path / "going" / "metrics.json").unlink()
    lines = (tmp_path / "going" / "epochs.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "going" / "epochs.jsonl").write_text("".join(lines[:3]))
    groups = grouped(read_runs([tmp_path]))
    (row,) = comparison(groups)
    (panel,) = figures.forgetting(groups)
    assert row.epochs == 3
    assert row.cells["gap"].mean == pytest.approx(100 * panel.mean_gap.value)
    assert row.cells["last"].mean == pytest.approx(
        np.mean([100 * run.correct("test")[2].mean() for run in groups[0].runs])
    )
    assert row.cells["ece"] is None


def test_the_gap_is_on_labels_that_all_runs_know(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels, given = np.arange(30) % 3, rng.random((5, 30)) < 0.5
    np.savez(
        tmp_path / "a.npz", correct=given, correct_true=rng.random((5, 30)) < 0.7, labels=labels, true_labels=labels
    )
    np.savez(tmp_path / "b.npz", correct=rng.random((5, 30)) < 0.6, labels=labels)
    groups = grouped(read_runs([tmp_path / "a.npz", tmp_path / "b.npz"]))
    shown = [row.cells["gap"].mean for row in comparison(groups)]
    assert shown == pytest.approx([100 * panel.mean_gap.value for panel in figures.forgetting(groups)])
    assert shown[0] == pytest.approx(100 * functional.deviation_gap(given).mean())


def test_one_value_alone_is_not_the_best_of_its_column(tmp_path: Path) -> None:
    write_run(tmp_path / "done")
    write_run(tmp_path / "going", method="vista", finished=False)
    done, _ = comparison(grouped(read_runs([tmp_path])))
    assert not done.cells["ece"].best
