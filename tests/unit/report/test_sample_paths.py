"""Paths of single samples: validation samples by method, and predictions for suspected samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from made_runs import HAND, hand_run, write_run

from vista.analysis.groups import Group
from vista.report import sample_paths
from vista.runs.folder import RunFolder
from vista.runs.predictions import Predictions


def test_validation_paths_start_with_the_sample_lost_most_often() -> None:
    known = {"classes": ("x", "y"), "val_labels": np.array([1, 1, 1, 0, 0, 0]), "val_ids": np.arange(10, 16)}
    groups = [Group("a", (hand_run("a", **known),)), Group("b", (hand_run("b", HAND[::-1].copy(), **known),))]
    found = sample_paths.validation_paths(groups)
    assert found is not None
    assert found["total"] == 6
    first = found["samples"][0]
    # Sample 3 is right at epochs 2 and 4 only, and in reverse order at 1 and 3: lost once and twice.
    assert (first["id"], first["lost"], first["given"]) == (13, 3, "x")
    assert first["methods"] == {"a": [1, 1, 1, 1], "b": [0, 1, 1, 1, 1]}
    assert sample_paths.validation_paths([]) is None


def test_only_runs_with_the_same_validation_set_are_compared() -> None:
    first = hand_run("a", val_labels=np.array([1, 1, 1, 0, 0, 0]), classes=("x", "y"))
    other = hand_run("b", val_labels=np.array([0, 1, 1, 0, 0, 0]), classes=("x", "y"))
    found = sample_paths.validation_paths([Group("a", (first,)), Group("b", (other,))])
    assert found is not None
    assert all(list(sample["methods"]) == ["a"] for sample in found["samples"])


def test_predicted_paths_are_run_lengths_of_classes(tmp_path: Path) -> None:
    folder = RunFolder(write_run(tmp_path / "run"))
    train, val = folder.split().train, folder.split().val
    assert sample_paths.predicted_paths(folder, [0]) == {}
    classes = np.tile(np.array([[-1], [2], [2], [0]]), (1, len(train)))
    Predictions(classes, np.zeros((len(train), 3), np.float16), {}).save(folder.path)
    sample = int(train[5])
    assert sample_paths.predicted_paths(folder, [sample, int(val[0])]) == {sample: [-1, 1, 2, 2, 0, 1]}
