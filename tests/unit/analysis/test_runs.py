"""Runs are read from folders, recorders and other tools; what is damaged or not whole is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import BASIC, HAND, record_of, write_run

from vista.analysis import TrajectoryRecorder, grouped, read_run, read_runs
from vista.files import array_file
from vista.runs.folder import RunFolder
from vista.runs.record import FORMAT, VERSION


def test_a_folder_tells_what_the_run_was(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "ce-seed0", method="vista", options={"tau": 0.01}))
    assert (run.name, run.epochs, len(run), run.samples) == ("ce-seed0", 4, 4, 45)
    assert run.options == {**BASIC, "tau": 0.01}
    assert run.best_labels == "true"
    assert run.keeps_anchors


def test_its_validation_labels_are_those_of_its_split(tmp_path: Path) -> None:
    folder = RunFolder(write_run(tmp_path / "run"))
    labels, val = folder.labels(), folder.split().val
    run = read_run(folder.path)
    assert run.val_labels.tolist() == labels.given[val].tolist()
    assert run.val_true.tolist() == labels.true[val].tolist()
    assert run.val_labels.tolist() != run.val_true.tolist()


@pytest.mark.parametrize(
    ("noise", "judged"),
    [("symmetric:0.4", "true"), ("asymmetric:0.2", "true"), ("pairflip:0.2", "true"),
     ("human", "true"), ("none", "given"),
     ("file:labels.csv", "given")],
)  # fmt: skip
def test_forgetting_is_judged_by_true_labels_where_these_are_known(tmp_path: Path, noise: str, judged: str) -> None:
    """Of a label file nobody knows which side is right."""
    assert read_run(write_run(tmp_path / "run", noise=noise)).best_labels == judged


def test_a_recorded_training_is_over_with_its_last_epoch_and_a_file_always(tmp_path: Path) -> None:
    for epochs, over in [(1, True), (2, False), ("many", False)]:
        folder = tmp_path / str(epochs)
        TrajectoryRecorder(folder, [0, 1, 2], config={"epochs": epochs}).end_epoch(np.eye(3))
        assert read_run(folder).is_over is over
    np.savez(tmp_path / "theirs.npz", correct=HAND)
    assert read_run(tmp_path / "theirs.npz").is_over


def test_labels_that_are_not_those_of_the_record_are_refused(tmp_path: Path) -> None:
    TrajectoryRecorder(tmp_path, [0, 1, 2]).end_epoch(np.eye(3))
    about = json.loads((tmp_path / "trajectory.json").read_text())
    (tmp_path / "trajectory.json").write_text(json.dumps({**about, "val_labels": [0, 1]}))
    with pytest.raises(ValueError, match="has 2 validation labels, but its record has 3 samples"):
        read_run(tmp_path)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"empty is no run: it has no config\.json, and there is no run below"):
        read_runs([tmp_path / "empty"])
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        read_runs([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match="no run was named"):
        read_runs([])


def test_a_record_cut_short_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "bits")
    bits = run / "coverage.safetensors"
    bits.write_bytes(bits.read_bytes()[:-3])
    with pytest.raises(ValueError, match=r"bits/coverage\.safetensors is damaged or cut short"):
        read_run(run)
    run = write_run(tmp_path / "lines")
    lines = (run / "epochs.jsonl").read_text()
    (run / "epochs.jsonl").write_text(lines[:-5])
    with pytest.raises(ValueError, match=r"lines/epochs\.jsonl line 4 is not JSON: the record was cut short"):
        read_run(run)
    (run / "epochs.jsonl").write_text("".join(lines.splitlines(keepends=True)[:3]))
    with pytest.raises(ValueError, match="lines has finished, but its record ends at epoch 3 of 4: it was cut short"):
        read_run(run)


@pytest.mark.parametrize("name", ["data.json", "environment.json", "labels.safetensors", "split.safetensors"])
def test_a_run_that_is_not_whole_is_refused(tmp_path: Path, name: str) -> None:
    run = write_run(tmp_path / "run")
    (run / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"run is no whole run: it has no {name}"):
        read_run(run)


def test_a_missing_epoch_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    lines = (run / "epochs.jsonl").read_text().splitlines(keepends=True)
    (run / "epochs.jsonl").write_text("".join([lines[0], *lines[2:]]))
    with pytest.raises(ValueError, match="line 2 is of epoch 3: epoch 2 is missing"):
        read_run(run)


def test_one_class_only_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    data = json.loads((run / "data.json").read_text())
    (run / "data.json").write_text(json.dumps({**data, "classes": ["cat"]}))
    with pytest.raises(ValueError, match="run has one class only"):
        read_run(run)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ([], "run has no class names"),
        (["cat", "dog"], "run has 2 class names, but a validation sample of class 2"),
    ],
)
def test_fewer_class_names_than_classes_are_refused(tmp_path: Path, classes: list[str], message: str) -> None:
    run = write_run(tmp_path / "run")
    data = json.loads((run / "data.json").read_text())
    (run / "data.json").write_text(json.dumps({**data, "classes": classes}))
    with pytest.raises(ValueError, match=message):
        read_run(run)


@pytest.mark.parametrize("name", ["ece", "aurc"])
def test_metrics_that_lack_what_the_table_shows_are_refused(tmp_path: Path, name: str) -> None:
    run = write_run(tmp_path / "run")
    metrics = json.loads((run / "metrics.json").read_text())
    del metrics["best"]["test"][name]
    (run / "metrics.json").write_text(json.dumps(metrics))
    with pytest.raises(ValueError, match=rf"metrics\.json is damaged: best\.test\.{name} is None"):
        read_run(run)


def test_a_record_that_does_not_follow_the_given_labels_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    record_of(val_given=HAND, test=HAND).write(run)
    bits, about = array_file.read(run / "coverage.safetensors", FORMAT, VERSION)
    sizes = {"test": about["sizes"]["test"]}
    (run / "coverage.safetensors").write_bytes(
        array_file.to_bytes({"test": bits["test"]}, FORMAT, VERSION, sizes=sizes)
    )
    with pytest.raises(ValueError, match="run does not say which validation samples were right"):
        read_run(run)


def test_other_tools_come_in_through_npz(tmp_path: Path) -> None:
    file = tmp_path / "theirs.npz"
    labels = [0, 1, 0, 1, 0, 1]
    np.savez(file, correct=HAND.astype(int), correct_true=~HAND, test=HAND[:, :2], labels=labels, classes=["a", "b"])
    run = read_run(file)
    assert run.name == "theirs"
    assert (run.correct("given") == HAND).all()
    assert (run.correct("true") == ~HAND).all()
    assert (run.correct("test") == HAND[:, :2]).all()
    for epoch, (line, row) in enumerate(zip(run.record.lines, HAND, strict=True), 1):
        shares = row.mean(), 1 - row.mean(), row[:2].mean()
        names = "val_accuracy", "val_true_accuracy", "test_accuracy"
        assert line == pytest.approx({"epoch": epoch, **dict(zip(names, shares, strict=True))})
    TrajectoryRecorder(tmp_path / "ours", labels).end_epoch(np.eye(2)[labels])
    assert [g.name for g in grouped(read_runs([file, tmp_path / "ours"]))] == ["theirs", "ours"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"right": HAND}, "has no key 'correct'"),
        ({"correct": HAND * 2}, r"'correct' is int64 of shape \(4, 6\), but bool or 0/1"),
        ({"correct": HAND, "test": HAND[:3]}, r"'test' has shape \(3, 6\), but 'correct' has \(4, 6\)"),
        (
            {"correct": HAND, "correct_true": HAND[:, :5]},
            r"'correct_true' has shape \(4, 5\), but 'correct'",
        ),
        ({"correct": HAND[:0]}, r"'correct' is bool of shape \(0, 6\), but bool or 0/1 \[epochs, samples\] is needed"),
        ({"correct": HAND, "labels": [0.0] * 6}, r"'labels' is float64 of shape \(6,\), but int \[6\]"),
        ({"correct": HAND, "true_labels": [0, 1, -1, 0, 1, 0]}, r"true_labels\[2\] is -1, which is none"),
        ({"correct": HAND, "labels": [0, 1]}, r"'labels' is int64 of shape \(2,\), but int \[6\]"),
        ({"correct": HAND, "labels": [0, 1, 2, 0, 1, 2], "classes": ["a", "b"]}, r"labels\[2\] is 2, which is none"),
        ({"correct": HAND, "classes": ["a"]}, "has one class only"),
        ({"correct": np.array([[{}]], dtype=object)}, r"no readable \.npz file of plain arrays"),
    ],
)
def test_a_bad_npz_is_refused_by_key(tmp_path: Path, arrays: dict, message: str) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        read_run(tmp_path / "bad.npz")


@pytest.mark.parametrize(
    "options",
    [
        "adam",
        {"tau": None},
        {"tau": 1},
        {"tau": -0.1},
        {"order": "sideways"},
        {"weights": ["x"]},
        {"smoothing": "much"},
        {"smoothing": 0},
        [1],
        3,
    ],
    ids=str,
)
def test_a_recorders_training_may_be_described_by_anything(tmp_path: Path, options: Any) -> None:
    TrajectoryRecorder(tmp_path, [0, 1, 2], config={"method": "mine", "options": options})
    assert read_run(tmp_path).options == BASIC


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "it holds list"),
        ('{"format": 1}', "config is None"),
        ('{"format": 1, "config": []}', r"config is \[\]"),
        ('{"format": 1, "config": {}, "classes": [], "val_labels": [], "true_labels": 3}', "true_labels is 3"),
    ],
)
def test_a_damaged_description_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "trajectory.json").write_text(content)
    with pytest.raises(ValueError, match=rf"trajectory\.json is damaged: {message}"):
        read_run(tmp_path)


def test_a_description_of_another_format_is_refused(tmp_path: Path) -> None:
    TrajectoryRecorder(tmp_path, [0, 1, 2])
    about = json.loads((tmp_path / "trajectory.json").read_text())
    (tmp_path / "trajectory.json").write_text(json.dumps({**about, "format": 2}))
    with pytest.raises(ValueError, match=r"trajectory\.json has format 2, but this version reads format 1"):
        read_run(tmp_path)
