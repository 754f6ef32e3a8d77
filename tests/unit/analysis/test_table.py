"""The comparison table: means, standard errors, the best in each column, runs that are still going."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_runs import HAND, hand_run, write_run

from vista.analysis.runs import Group, grouped, read_runs
from vista.analysis.table import comparison, mean_and_error


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
    assert going.cells["ece"] is None
    assert going.cells["anchors"].mean == 4
    assert done.cells["minutes"].mean == pytest.approx(2)
