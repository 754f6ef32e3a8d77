"""Runs are grouped over their seeds; runs that are not comparable are rejected."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from made_runs import hand_run, write_run

from vista.analysis import TrajectoryRecorder, group_runs, read_runs
from vista.analysis.groups import check_comparable
from vista.runs.config import INCIDENTAL


def test_runs_that_differ_only_in_seeds_are_one_group(tmp_path: Path) -> None:
    for method, tau, seed in [("ce", None, 0), ("ce", None, 1), ("vista", 0.0, 0), ("vista", 0.01, 0)]:
        options = {} if tau is None else {"tau": tau}
        write_run(tmp_path / f"{method}-{tau}-{seed}", method=method, seed=seed, options=options)
    groups = group_runs(read_runs([tmp_path]))
    assert [(g.name, len(g.runs)) for g in groups] == [("ce", 2), ("vista (tau=0.0)", 1), ("vista (tau=0.01)", 1)]


def test_incidental_settings_do_not_distinguish_groups() -> None:
    settings = [{"method": "own", "lr": lr, "seed": seed} for lr in (0.1, 0.2) for seed in range(2)]
    runs = [hand_run(f"run{i}", config=own | dict.fromkeys(INCIDENTAL, i)) for i, own in enumerate(settings)]
    groups = group_runs(runs)
    assert [(group.name, len(group.runs)) for group in groups] == [("own (lr=0.1)", 2), ("own (lr=0.2)", 2)]


def test_options_of_a_recorded_training_need_not_be_an_object() -> None:
    runs = [hand_run(f"run{i}", config={"method": "own", "lr": i, "options": "adam"}) for i in range(2)]
    assert [group.name for group in group_runs(runs)] == ["own (lr=0)", "own (lr=1)"]


def test_runs_without_a_configuration_keep_their_own_names() -> None:
    assert [g.name for g in group_runs([hand_run("one"), hand_run("two")])] == ["one", "two"]


def test_groups_with_one_name_are_distinguished_by_path() -> None:
    runs = [dataclasses.replace(hand_run("run"), path=Path(place) / "run") for place in "ab"]
    assert [group.name for group in group_runs(runs)] == ["run [a/run]", "run [b/run]"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"validation": 12}, "one has 15 validation samples, but .*two has 12"),
        ({"noise": "none"}, "one has noise symmetric:0.4, but .*two has none"),
        ({"data": "digits"}, "one has data npz:nowhere.npz, but .*two has digits"),
        ({"seed": 1}, "one and .*two share no validation set"),
        ({"samples": 75}, "have seed 0 but different validation samples or labels"),
    ],
)
def test_runs_with_different_validation_sets_are_rejected(tmp_path: Path, other: dict, message: str) -> None:
    write_run(tmp_path / "one", method="ce")
    write_run(tmp_path / "two", method="vista", **other)
    with pytest.raises(ValueError, match=f"{message}.*report them separately"):
        read_runs([tmp_path])


def test_other_samples_are_another_validation_set_even_with_the_same_labels() -> None:
    """Every stratified split of data sorted by class has the same labels in the same order."""
    drawn, other, recorded = (
        hand_run(name, config={"method": name, "seed": 0}, val_labels=np.arange(6) // 2, val_ids=ids)
        for name, ids in (("drawn", np.arange(6)), ("other", np.arange(6) + 6), ("recorded", None))
    )
    with pytest.raises(ValueError, match="drawn and other have seed 0 but different validation samples or labels"):
        check_comparable([drawn, other])
    check_comparable([drawn, recorded])


def test_unknown_settings_are_no_difference() -> None:
    known = hand_run("known", config={"method": "a", "seed": 0, "data": "digits"}, val_labels=np.arange(6) % 2)
    unknown = hand_run("unknown", config={"method": "b", "seed": 0})
    check_comparable([known, unknown])
    check_comparable([unknown, known])


def test_runs_without_a_seed_may_have_different_validation_sets() -> None:
    runs = [hand_run(f"run{i}", config={"method": "own"}, val_labels=np.roll(np.arange(6) % 3, i)) for i in range(2)]
    check_comparable(runs)
    assert [len(group.runs) for group in group_runs(runs)] == [2]


def test_one_seed_with_two_splits_is_rejected_within_a_group() -> None:
    runs = [
        hand_run(f"run{i}", config={"method": "own", "seed": 0, "split_seed": i}, val_labels=np.arange(6) % (2 + i))
        for i in range(2)
    ]
    with pytest.raises(ValueError, match="run0 and run1 have seed 0 but different validation samples or labels"):
        check_comparable(runs)


def test_recorded_trainings_are_found_below_a_folder_but_not_below_a_run(tmp_path: Path) -> None:
    for seed in range(2):
        TrajectoryRecorder(tmp_path / f"run{seed}", [0, 1, 2], config={"seed": seed})
    TrajectoryRecorder(tmp_path / "run0" / "before", [0, 1, 2], config={"seed": 2})
    assert [run.seed for run in read_runs([tmp_path / "run0", tmp_path / "run1"])] == [0, 1]
    assert [run.seed for run in read_runs([tmp_path])] == [0, 2, 1]


def test_a_run_named_twice_is_read_once(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "ce-seed0")
    write_run(tmp_path / "runs" / "ce-seed1", seed=1)
    runs = read_runs(
        [tmp_path / "runs" / "ce-seed1", tmp_path / "runs", tmp_path / "runs" / ".." / "runs" / "ce-seed0"]
    )
    assert [run.name for run in runs] == ["ce-seed1", "ce-seed0"]


def test_a_copy_of_a_run_is_rejected(tmp_path: Path) -> None:
    write_run(tmp_path / "one", seed=3)
    write_run(tmp_path / "two", seed=3)
    with pytest.raises(ValueError, match=r"one and .*two are copies of one run \(seed 3\): name one of them"):
        read_runs([tmp_path])


def test_labels_are_hashed_once_per_run(tmp_path: Path) -> None:
    """Not once per pair of runs."""
    runs = [hand_run(config={"method": f"m{i}"}) for i in range(3)]
    check_comparable(runs)
    assert all("_validation_set" in vars(run) for run in runs)


def test_a_seed_may_be_any_json_value() -> None:
    runs = [hand_run(f"run{i}", config={"method": "own", "seed": [1, i]}) for i in range(2)]
    check_comparable(runs)
    assert [len(group.runs) for group in group_runs(runs)] == [2]
    with pytest.raises(ValueError, match=r"run0 and run0 are copies of one run \(seed \[1, 0\]\)"):
        check_comparable([runs[0], hand_run("run0", config={"seed": [1, 0], "method": "own"})])
