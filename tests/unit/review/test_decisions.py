"""Decisions on disk: the last line of a sample counts, and none is lost by a kill or a full disk."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

from vista.files import atomic
from vista.review.decisions import Decision, DecisionLog, Subject, corrected, read, summary

SUBJECT = Subject("run", "data", ("cat", "dog", "cow"), np.array([0, 1, 2, 0]))


def decision(sample: int, kind: str, label: int | None = None) -> Decision:
    return Decision(sample, kind, label, int(SUBJECT.given[sample]), f"{sample}.png", "hash", "now", "me")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "decisions.jsonl"


def write(path: Path, *made: Decision) -> None:
    log = DecisionLog(path, SUBJECT)
    for each in made:
        log.append([each])
    log.close()


def test_the_last_line_counts_and_an_undo_is_a_line(path: Path) -> None:
    write(path, decision(0, "accept", 1), decision(0, "other", 2), decision(1, "keep", 1), decision(1, "undo"))
    found = read(path, SUBJECT)
    assert {sample: each.label for sample, each in found.items()} == {0: 2}
    assert len(path.read_text().splitlines()) == 4
    assert json.loads(path.read_text().splitlines()[0]) == {
        "format": 1, "run": "run", "data": "data", "id": 0, "file": "0.png", "content": "hash", "given": 0,
        "decision": "accept", "label": 1, "time": "now", "author": "me",
    }  # fmt: skip
    assert summary(found) == {"other": 1}


def test_labels_after_the_decisions(path: Path) -> None:
    write(path, decision(0, "accept", 1), decision(1, "unlabel"), decision(2, "skip"), decision(3, "keep", 0))
    assert corrected(SUBJECT.given, read(path, SUBJECT)).tolist() == [1, -1, 2, 0]


@pytest.mark.parametrize("kind", ["link", "hard link", "FIFO"])
def test_nothing_but_a_regular_file_is_written(path: Path, kind: str) -> None:
    target = path.with_name("target")
    target.write_text("mine")
    {"link": path.symlink_to, "hard link": path.hardlink_to, "FIFO": lambda _: os.mkfifo(path)}[kind](target)
    with pytest.raises(ValueError, match=r"\.jsonl (is a symbolic link|must be a regular file with no other)"):
        DecisionLog(path, SUBJECT)
    assert target.read_text() == "mine"


def test_a_torn_last_line_is_dropped(path: Path) -> None:
    write(path, decision(0, "accept", 1))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    assert list(read(path, SUBJECT)) == [0]
    write(path, decision(1, "keep", 1))
    assert sorted(read(path, SUBJECT)) == [0, 1]
    assert all(json.loads(line) for line in path.read_bytes().splitlines())


def test_a_full_disk_leaves_complete_lines_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = DecisionLog(path, SUBJECT)
    log.append([decision(0, "accept", 1)])
    before = path.read_bytes()

    def full(what: str, where: Path) -> None:
        if what == "half":
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic, "on_write", full)
    with pytest.raises(OSError, match=r"cannot write .*: No space left on device"):
        log.append([decision(1, "keep", 1)])
    assert path.read_bytes() == before
    assert sorted(log.current) == [0]
    monkeypatch.undo()
    log.append([decision(1, "keep", 1)])
    log.close()
    assert sorted(read(path, SUBJECT)) == [0, 1]


def test_one_review_at_a_time(path: Path) -> None:
    log = DecisionLog(path, SUBJECT)
    with pytest.raises(ValueError, match="is open in another `vista review`"):
        DecisionLog(path, SUBJECT)
    log.close()
    DecisionLog(path, SUBJECT).close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "line 1: format is 2, but this version reads 1"),
        ({"data": "others"}, "line 1 is about other data than the run's"),
        ({"given": 2}, "line 1 was made for another run: sample 0 had the label 2 there, and has 0 here"),
        ({"id": 9}, "line 1: id must be 0 to 3, got 9"),
        ({"decision": "guess"}, "decision must be one of accept, keep"),
        ({"label": "cta"}, "line 1: label 'cta' is no class; did you mean 'cat'"),
    ],
)
def test_decisions_of_other_data_and_unknown_classes_are_rejected(path: Path, changes: dict, message: str) -> None:
    write(path, decision(0, "accept", 1))
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}) + "\n")
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        read(path, SUBJECT)
