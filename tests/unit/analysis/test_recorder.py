"""TrajectoryRecorder: records correctness, continues after restarts, rejects invalid input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from made_runs import HAND

from vista.analysis import TrajectoryRecorder, read_run
from vista.files import atomic

LABELS = [0, 1, 2, 0, 1, 2]


def logits_of(row: np.ndarray, labels: list[int] = LABELS) -> torch.Tensor:
    """Logits that are right where ``row`` is true and predict the next class elsewhere."""
    guesses = torch.tensor([label if right else (label + 1) % 3 for label, right in zip(labels, row, strict=True)])
    return torch.nn.functional.one_hot(guesses, 3).float()


def test_correct_samples_are_recorded(tmp_path: Path) -> None:
    recorder = TrajectoryRecorder(tmp_path / "mine", LABELS, classes=["a", "b", "c"], config={"method": "own"})
    for number, row in enumerate(HAND, 1):
        assert recorder.end_epoch(logits_of(row)) == number
    run = read_run(tmp_path / "mine")
    assert (run.correct("given") == HAND).all()
    assert run.classes == ("a", "b", "c")
    assert run.config == {"method": "own"}
    assert run.record.lines[1]["val_accuracy"] == pytest.approx(4 / 6)
    assert [timing["epoch"] for timing in run.record.timings] == [1, 2, 3, 4]
    assert not run.has("true")
    assert not run.has("test")


def test_a_recorder_before_its_first_epoch_reads_as_an_empty_run(tmp_path: Path) -> None:
    recorder = TrajectoryRecorder(tmp_path / "mine", LABELS, config={"epochs": 4})
    run = read_run(tmp_path / "mine")
    assert (len(run), run.epochs, run.is_over) == (0, 4, False)
    recorder.end_epoch(logits_of(HAND[0]))
    (tmp_path / "mine" / "coverage.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"coverage\.safetensors is missing"):
        read_run(tmp_path / "mine")


def test_true_labels_and_test_samples_are_recorded(tmp_path: Path) -> None:
    recorder = TrajectoryRecorder(tmp_path / "mine", LABELS, true_labels=[1, 1, 2, 0, 1, 2])
    recorder.end_epoch(logits_of(HAND[1]).numpy(), test_logits=torch.eye(3), test_labels=[0, 1, 1])
    run = read_run(tmp_path / "mine")
    # Sample 0 was guessed as its given class 0, but is truly of class 1.
    assert run.correct("true")[0].tolist() == [False, True, True, True, False, False]
    assert run.correct("test")[0].tolist() == [True, True, False]
    assert run.best_labels == "true"


def test_val_index_reorders_rows_and_the_first_of_a_repeated_sample_counts(tmp_path: Path) -> None:
    recorder = TrajectoryRecorder(tmp_path, LABELS)
    order = torch.tensor([5, 3, 1, 0, 2, 4])
    logits = torch.cat([logits_of(HAND[1])[order], logits_of(~HAND[1])[:2]])
    recorder.end_epoch(logits, val_index=torch.cat([order, torch.tensor([0, 1])]))
    assert (read_run(tmp_path).correct("given")[0] == HAND[1]).all()


@pytest.mark.parametrize(
    "turned", [lambda array: array[:, ::-1][:, ::-1], lambda array: array.astype(">f4")], ids=["reversed", "big-endian"]
)
def test_arrays_of_any_memory_layout_are_accepted(tmp_path: Path, turned) -> None:
    recorder = TrajectoryRecorder(tmp_path, LABELS)
    logits = turned(logits_of(HAND[1]).numpy())
    recorder.end_epoch(logits, test_logits=logits, test_labels=LABELS)
    assert (read_run(tmp_path).correct("given")[0] == HAND[1]).all()
    assert (read_run(tmp_path).correct("test")[0] == HAND[1]).all()


def test_two_recorders_of_one_folder_do_not_overwrite_each_other(tmp_path: Path) -> None:
    first, second = (TrajectoryRecorder(tmp_path, LABELS) for _ in range(2))
    first.end_epoch(logits_of(HAND[0]))
    first.end_epoch(logits_of(HAND[1]))
    with pytest.raises(RuntimeError, match="was changed by another process"):
        second.end_epoch(logits_of(~HAND[0]))
    first.end_epoch(logits_of(HAND[2]))
    assert (read_run(tmp_path).correct("given") == HAND[:3]).all()
    third = TrajectoryRecorder(tmp_path, LABELS)
    assert third.end_epoch(logits_of(HAND[3])) == 4


def test_a_restart_continues_and_may_return_to_an_older_checkpoint(tmp_path: Path) -> None:
    first = TrajectoryRecorder(tmp_path, LABELS, config={"lr": (0.1, 0.2)})
    first.end_epoch(logits_of(HAND[0]))
    first.end_epoch(logits_of(~HAND[1]))
    again = TrajectoryRecorder(tmp_path, LABELS, config={"lr": (0.1, 0.2)})
    assert again.epoch == 2
    assert again.end_epoch(logits_of(HAND[1]), epoch=2) == 2
    again.end_epoch(logits_of(HAND[2]))
    assert (read_run(tmp_path).correct("given") == HAND[:3]).all()
    with pytest.raises(ValueError, match="epoch must be between 1 and 4, the next of this record, got 5"):
        again.end_epoch(logits_of(HAND[3]), epoch=5)
    with pytest.raises(ValueError, match="epoch must be between 1 and 4, the next of this record, got 0"):
        again.end_epoch(logits_of(HAND[3]), epoch=0)


def test_a_complete_record_rejects_further_epochs(tmp_path: Path) -> None:
    """Otherwise a script that is run twice would join two trainings."""
    for _ in range(2):
        recorder = TrajectoryRecorder(tmp_path, LABELS, config={"epochs": 2})
        if recorder.epoch:
            with pytest.raises(ValueError, match=r"has all 2 epochs of its config: .* pass epoch=1 to start over"):
                recorder.end_epoch(logits_of(HAND[0]))
        for number in (1, 2):
            recorder.end_epoch(logits_of(HAND[number]), epoch=number)
    assert len(read_run(tmp_path)) == 2


def test_too_few_inferred_classes_suggest_num_classes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"val_logits has 5 classes, but the highest .* is 2: pass num_classes=5"):
        TrajectoryRecorder(tmp_path, LABELS).end_epoch(torch.zeros(6, 5))


def test_starting_over_may_change_the_recorded_sets(tmp_path: Path) -> None:
    TrajectoryRecorder(tmp_path, LABELS).end_epoch(logits_of(HAND[0]))
    again = TrajectoryRecorder(tmp_path, LABELS)
    again.end_epoch(logits_of(HAND[1]), test_logits=torch.eye(3), test_labels=[0, 1, 1], epoch=1)
    run = read_run(tmp_path)
    assert (run.correct("given") == HAND[1:2]).all()
    assert run.correct("test").tolist() == [[True, True, False]]


class Killed(BaseException):
    """Stands for a killed process."""


def killed(folder: Path, rows: np.ndarray, patch: pytest.MonkeyPatch, write: int = 0, first: int = 1) -> bool:
    """Record the rows from epoch ``first`` on; returns whether the recorder was killed at that write."""
    left = write

    def count(what: str, path: Path) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed

    patch.setattr(atomic, "on_write", count)
    try:
        recorder = TrajectoryRecorder(folder, LABELS)
        for epoch, row in enumerate(rows, first):
            recorder.end_epoch(logits_of(row), epoch=epoch)
    except Killed:
        return True
    return False


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("known", [0, 4])
def test_a_recorder_killed_at_any_write_continues_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: int, first: int
) -> None:
    """With ``known`` epochs recorded, training returns to an older checkpoint and differs from epoch ``first`` on."""
    before = np.concatenate([HAND[: first - 1], ~HAND[first - 1 : known]])
    assert not killed(tmp_path / "whole", HAND, monkeypatch)
    write = 1
    while True:
        folder = tmp_path / str(write)
        killed(folder, before, monkeypatch)
        if not killed(folder, HAND[first - 1 :], monkeypatch, write, first):
            break
        found, epoch = read_run(folder).correct("given"), TrajectoryRecorder(folder, LABELS).epoch
        assert any(np.array_equal(found, rows[:epoch]) for rows in (before, HAND)), f"write {write}"
        done = min(epoch, 3) if np.array_equal(found, HAND[:epoch]) else first - 1
        assert not killed(folder, HAND[done:], monkeypatch, first=done + 1)
        assert files(folder) == files(tmp_path / "whole"), f"write {write}"
        write += 1
    assert write > 12 * (len(HAND) - first + 1), "every file of every epoch is written under the hook"


def test_temporary_files_of_a_killed_recorder_are_ignored(tmp_path: Path) -> None:
    (tmp_path / ".trajectory.json.0.tmp").write_text("{")
    assert TrajectoryRecorder(tmp_path, LABELS).epoch == 0


def test_the_folder_of_another_training_is_rejected(tmp_path: Path) -> None:
    TrajectoryRecorder(tmp_path / "mine", LABELS).end_epoch(logits_of(HAND[0]))
    with pytest.raises(ValueError, match="holds the record of another training: its val_labels differ"):
        TrajectoryRecorder(tmp_path / "mine", LABELS[::-1])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(ValueError, match="must be empty or hold a record of this training"):
        TrajectoryRecorder(tmp_path / "other", LABELS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"val_labels": [0, 0, 0]}, "num_classes must be at least 2, got 1"),
        ({"val_labels": torch.zeros(0, dtype=torch.long)}, "num_classes must be at least 2, got 0"),
        ({"val_labels": LABELS, "num_classes": 2}, r"val_labels\[2\] must be 0 to 1, got 2"),
        ({"val_labels": LABELS, "classes": ["a"], "num_classes": 3}, "classes has 1 names, but num_classes is 3"),
        ({"val_labels": LABELS, "true_labels": [0]}, "true_labels has 1 entries, but val_labels has 6"),
    ],
)
def test_invalid_labels_are_rejected(tmp_path: Path, arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrajectoryRecorder(tmp_path, **arguments)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"method": "own", "a": object()}, r"config\['a'\] must be JSON, got <object object .*>: .*object"),
        ({"a": {"b": [1.0, float("nan")]}}, r"config\['a'\] must be JSON, got \{'b': \[1.0, nan\]\}: "),
        ({(1, 2): 3}, r"config\[\(1, 2\)\] must be JSON, got 3: keys must be str"),
    ],
)
def test_a_config_that_json_cannot_encode_is_rejected_by_key(tmp_path: Path, config: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrajectoryRecorder(tmp_path / "mine", LABELS, config=config)
    assert not (tmp_path / "mine").exists()


def test_invalid_logits_are_rejected_and_nothing_is_recorded(tmp_path: Path) -> None:
    recorder = TrajectoryRecorder(tmp_path, LABELS)
    good = logits_of(HAND[0])
    with pytest.raises(ValueError, match="val_logits must have 6 rows, one for each of val_labels, got 5"):
        recorder.end_epoch(good[:5])
    with pytest.raises(ValueError, match="val_index must name all 6 validation samples, got 5; the first missing is 5"):
        recorder.end_epoch(good[:5], val_index=[0, 1, 2, 3, 4])
    with pytest.raises(FloatingPointError, match="must be finite, got NaN or infinity in epoch 1 for samples 2"):
        recorder.end_epoch(good.index_fill(0, torch.tensor([2]), torch.nan))
    with pytest.raises(
        FloatingPointError, match=r"test_logits must be finite, got NaN or infinity in epoch 1 for samples 1"
    ):
        recorder.end_epoch(good, test_logits=torch.eye(3) / torch.tensor([[1.0], [0.0], [1.0]]), test_labels=[0, 1, 2])
    with pytest.raises(ValueError, match="test_logits and test_labels must be given together"):
        recorder.end_epoch(good, test_logits=good)
    assert recorder.epoch == 0
    recorder.end_epoch(good)
    with pytest.raises(ValueError, match="epoch 2 has 6 val_given samples, 3 test samples, but the record has"):
        recorder.end_epoch(good, test_logits=torch.eye(3), test_labels=[0, 1, 2])
