"""Runs side by side are grouped over their seeds; what cannot be compared is refused by name."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from made_runs import hand_run, write_run

from vista.analysis import grouped, read_runs
from vista.analysis.groups import check_comparable


def test_runs_that_differ_in_seeds_alone_are_one_group(tmp_path: Path) -> None:
    for method, tau, seed in [("ce", None, 0), ("ce", None, 1), ("vista", 0.0, 0), ("vista", 0.01, 0)]:
        options = {} if tau is None else {"tau": tau}
        write_run(tmp_path / f"{method}-{tau}-{seed}", method=method, seed=seed, options=options)
    groups = grouped(read_runs([tmp_path]))
    assert [(g.name, len(g.runs)) for g in groups] == [("ce", 2), ("vista (tau=0.0)", 1), ("vista (tau=0.01)", 1)]


def test_runs_without_a_configuration_keep_their_own_names() -> None:
    assert [g.name for g in grouped([hand_run("one"), hand_run("two")])] == ["one", "two"]


def test_of_several_with_one_name_each_is_told_by_its_place() -> None:
    runs = [dataclasses.replace(hand_run("run"), path=Path(place) / "run") for place in "abc"]
    assert [group.name for group in grouped(runs)] == ["run [a/run]", "run [b/run]", "run [c/run]"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"validation": 12}, "one has 15 validation samples, but .*two has 12"),
        ({"noise": "none"}, "one has noise symmetric:0.4, but .*two has none"),
        ({"data": "digits"}, "one has data npz:nowhere.npz, but .*two has digits"),
        ({"seed": 1}, "one and .*two share no validation set"),
        ({"samples": 75}, "have seed 0 but other validation samples or labels"),
    ],
)
def test_runs_over_different_validation_sets_are_refused(tmp_path: Path, other: dict, message: str) -> None:
    write_run(tmp_path / "one", method="ce")
    write_run(tmp_path / "two", method="vista", **other)
    with pytest.raises(ValueError, match=f"{message}.*report them apart"):
        read_runs([tmp_path])


def test_a_run_named_twice_is_one_run(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "ce-seed0")
    write_run(tmp_path / "runs" / "ce-seed1", seed=1)
    runs = read_runs(
        [tmp_path / "runs" / "ce-seed1", tmp_path / "runs", tmp_path / "runs" / ".." / "runs" / "ce-seed0"]
    )
    assert [run.name for run in runs] == ["ce-seed1", "ce-seed0"]


def test_a_copy_of_a_run_is_no_other_seed(tmp_path: Path) -> None:
    write_run(tmp_path / "one", seed=3)
    write_run(tmp_path / "two", seed=3)
    with pytest.raises(ValueError, match=r"one and .*two are one run twice, with seed 3: name one of them"):
        read_runs([tmp_path])


def test_many_runs_are_compared_without_delay(tmp_path: Path) -> None:
    """Labels are hashed once a run, not once a pair."""
    runs = [hand_run(config={"method": f"m{i}"}) for i in range(3)]
    assert all(run.validation_set == run.validation_set for run in runs)
    assert all("validation_set" in vars(run) for run in runs)


def test_a_seed_may_be_anything_that_json_holds() -> None:
    runs = [hand_run(f"run{i}", config={"method": "own", "seed": [1, i]}) for i in range(2)]
    check_comparable(runs)
    assert [len(group.runs) for group in grouped(runs)] == [2]
    with pytest.raises(ValueError, match=r"run0 and run0 are one run twice, with seed \[1, 0\]"):
        check_comparable([runs[0], hand_run("run0", config={"seed": [1, 0], "method": "own"})])
