"""Runs are read from run folders, recorders and .npz files; damaged and incomplete ones are rejected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import BASIC, HAND, hand_run, record_of, write_run

from vista.analysis import TrajectoryRecorder, group_runs, read_run, read_runs
from vista.files import array_file
from vista.runs.folder import RunFolder
from vista.runs.record import FORMAT, VERSION


def test_a_run_folder_is_read(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "ce-seed0", method="vista", options={"tau": 0.01}))
    assert (run.name, run.epochs, len(run), run.samples) == ("ce-seed0", 4, 4, 45)
    assert run.options == {**BASIC, "tau": 0.01}
    assert run.best_labels == "true"
    assert run.keeps_anchors


def test_validation_labels_are_those_of_the_split(tmp_path: Path) -> None:
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
def test_forgetting_uses_true_labels_where_they_are_known(tmp_path: Path, noise: str, judged: str) -> None:
    """A label file does not say which labels are right."""
    assert read_run(write_run(tmp_path / "run", noise=noise)).best_labels == judged


def test_a_recorded_training_is_over_after_its_planned_epochs_and_a_file_always(tmp_path: Path) -> None:
    for epochs, over in [(1, True), (2, False), ("many", False)]:
        folder = tmp_path / str(epochs)
        TrajectoryRecorder(folder, [0, 1, 2], config={"epochs": epochs}).end_epoch(np.eye(3))
        assert read_run(folder).is_over is over
    np.savez(tmp_path / "theirs.npz", correct=HAND)
    assert read_run(tmp_path / "theirs.npz").is_over


def test_labels_that_do_not_match_the_record_are_rejected(tmp_path: Path) -> None:
    TrajectoryRecorder(tmp_path, [0, 1, 2]).end_epoch(np.eye(3))
    about = json.loads((tmp_path / "trajectory.json").read_text())
    (tmp_path / "trajectory.json").write_text(json.dumps({**about, "val_labels": [0, 1]}))
    with pytest.raises(ValueError, match="has 2 validation labels, but its record has 3 samples"):
        read_run(tmp_path)


def test_a_folder_without_a_run_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"empty is not a run: it has no config\.json, and no run is below"):
        read_runs([tmp_path / "empty"])
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        read_runs([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match="no run given"):
        read_runs([])


def test_a_truncated_record_is_rejected(tmp_path: Path) -> None:
    run = write_run(tmp_path / "bits")
    bits = run / "coverage.safetensors"
    bits.write_bytes(bits.read_bytes()[:-3])
    with pytest.raises(
        ValueError, match=r"bits/coverage\.safetensors is damaged: it is not a complete safetensors file"
    ):
        read_run(run)
    run = write_run(tmp_path / "lines")
    lines = (run / "epochs.jsonl").read_text()
    (run / "epochs.jsonl").write_text(lines[:-5])
    with pytest.raises(ValueError, match=r"lines/epochs\.jsonl line 4 is damaged: it is not JSON"):
        read_run(run)
    (run / "epochs.jsonl").write_text("".join(lines.splitlines(keepends=True)[:3]))
    with pytest.raises(ValueError, match="lines has finished, but its record ends at epoch 3 of 4: it was cut short"):
        read_run(run)


@pytest.mark.parametrize("name", ["data.json", "environment.json", "labels.safetensors", "split.safetensors"])
def test_an_incomplete_run_is_rejected(tmp_path: Path, name: str) -> None:
    run = write_run(tmp_path / "run")
    (run / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"run is an incomplete run: it has no {name}"):
        read_run(run)


def test_a_missing_epoch_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    lines = (run / "epochs.jsonl").read_text().splitlines(keepends=True)
    (run / "epochs.jsonl").write_text("".join([lines[0], *lines[2:]]))
    with pytest.raises(ValueError, match="line 2 is damaged: epoch must be 2, got 3"):
        read_run(run)


def test_a_single_class_is_rejected(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    data = json.loads((run / "data.json").read_text())
    (run / "data.json").write_text(json.dumps({**data, "classes": ["cat"]}))
    with pytest.raises(ValueError, match="run must have at least 2 class names, got only 'cat'"):
        read_run(run)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ([], "run must have at least 2 class names, got none"),
        (["cat", "dog"], r"run must have at least 3 class names \(.* has class 2\), got 2"),
    ],
)
def test_too_few_class_names_are_rejected(tmp_path: Path, classes: list[str], message: str) -> None:
    run = write_run(tmp_path / "run")
    data = json.loads((run / "data.json").read_text())
    (run / "data.json").write_text(json.dumps({**data, "classes": classes}))
    with pytest.raises(ValueError, match=message):
        read_run(run)


@pytest.mark.parametrize("name", ["ece", "aurc"])
def test_metrics_that_lack_a_column_of_the_table_are_rejected(tmp_path: Path, name: str) -> None:
    run = write_run(tmp_path / "run")
    metrics = json.loads((run / "metrics.json").read_text())
    del metrics["best"]["test"][name]
    (run / "metrics.json").write_text(json.dumps(metrics))
    with pytest.raises(ValueError, match=rf"metrics\.json is damaged: best\.test\.{name} must be a number, got None"):
        read_run(run)


def test_a_record_without_the_given_labels_is_rejected(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    record_of(val_given=HAND, test=HAND).write(run)
    bits, about = array_file.read(run / "coverage.safetensors", FORMAT, VERSION)
    sizes = {"test": about["sizes"]["test"]}
    (run / "coverage.safetensors").write_bytes(
        array_file.to_bytes({"test": bits["test"]}, FORMAT, VERSION, sizes=sizes)
    )
    with pytest.raises(ValueError, match="run has no record of correctness against given labels"):
        read_run(run)


def test_npz_files_of_other_tools_are_read(tmp_path: Path) -> None:
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
    assert [g.name for g in group_runs(read_runs([file, tmp_path / "ours"]))] == ["theirs", "ours"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"right": HAND}, "has no key 'correct'"),
        ({"correct": HAND * 2}, r"'correct' must be bool or 0/1 \[epochs, samples\], got int64 of shape \(4, 6\)"),
        ({"correct": HAND, "test": HAND[:3]}, r"'test' has shape \(3, 6\), but 'correct' has \(4, 6\)"),
        (
            {"correct": HAND, "correct_true": HAND[:, :5]},
            r"'correct_true' has shape \(4, 5\), but 'correct'",
        ),
        ({"correct": HAND[:0]}, r"'correct' must be bool or 0/1 \[epochs, samples\], got bool of shape \(0, 6\)"),
        ({"correct": HAND, "labels": [0.0] * 6}, r"'labels' must be int \[6\], got float64 of shape \(6,\)"),
        ({"correct": HAND, "true_labels": [0, 1, -1, 0, 1, 0]}, r"true_labels\[2\] is -1, which is not a class index"),
        ({"correct": HAND, "labels": [0, 1]}, r"'labels' must be int \[6\], got int64 of shape \(2,\)"),
        (
            {"correct": HAND, "labels": [0, 1, 2, 0, 1, 2], "classes": ["a", "b"]},
            r"labels\[2\] is 2, which is not",
        ),
        ({"correct": HAND, "classes": ["a"]}, "must have at least 2 class names"),
        ({"correct": np.array([[{}]], dtype=object)}, r"not a readable \.npz file of plain arrays"),
    ],
)
def test_an_invalid_npz_is_rejected_by_key(tmp_path: Path, arrays: dict, message: str) -> None:
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
def test_a_recorder_accepts_any_method_options(tmp_path: Path, options: Any) -> None:
    TrajectoryRecorder(tmp_path, [0, 1, 2], config={"method": "mine", "options": options})
    assert read_run(tmp_path).options == BASIC


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "it must hold a JSON object, got list"),
        ('{"format": 1}', "config is None"),
        ('{"format": 1, "config": []}', r"config is \[\]"),
        ('{"format": 1, "config": {}, "classes": [], "val_labels": [], "true_labels": 3}', "true_labels is 3"),
    ],
)
def test_a_damaged_description_is_rejected(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "trajectory.json").write_text(content)
    with pytest.raises(ValueError, match=rf"trajectory\.json is damaged: {message}"):
        read_run(tmp_path)


def test_a_description_of_another_format_is_rejected(tmp_path: Path) -> None:
    TrajectoryRecorder(tmp_path, [0, 1, 2])
    about = json.loads((tmp_path / "trajectory.json").read_text())
    (tmp_path / "trajectory.json").write_text(json.dumps({**about, "format": 2}))
    with pytest.raises(ValueError, match=r"trajectory\.json has format 2, but this version reads format 1"):
        read_run(tmp_path)


RECORDED = [{"1": 1.0}, {"2": 1.0}, {"1": 0.25, "3": 0.75}, {}]


def test_recorded_anchor_weights_are_read() -> None:
    run = hand_run()
    for line, weights in zip(run.record.lines, RECORDED, strict=True):
        line |= {"anchors": len(weights), "anchor_weights": weights}
    assert run.anchor_weights.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0.25, 0, 0.75, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize("recorded", [0, 3])
def test_a_record_without_all_anchor_weights_is_replayed(recorded: int) -> None:
    run = hand_run(config={"options": {"tau": 0.0}})
    for line, weights in list(zip(run.record.lines, RECORDED, strict=True))[:recorded]:
        line |= {"anchors": 1, "anchor_weights": weights}
    assert run.anchor_weights == pytest.approx(
        np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0.8, 0.2, 0], [0, 0.8, 0, 0.2]])
    )


@pytest.mark.parametrize(
    "weights", [None, [1.0], {"2": 1.0}, {"0": 1.0}, {"x": 1.0}, {"1": "much"}, {"1": 2.0}], ids=str
)
def test_damaged_anchor_weights_are_rejected(weights: Any) -> None:
    run = hand_run(correct=HAND[:1])
    run.record.lines[0]["anchor_weights"] = weights
    with pytest.raises(ValueError, match="hand is damaged: anchor_weights of epoch 1 must be weights"):
        _ = run.anchor_weights
