"""A run whose folder is moved or removed while it trains stops with an error, and nothing appears at its old path."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from reliability import record
from trainings import config, damage, ended_as, noting_states, stopped, train

from vista.files import atomic
from vista.runs import folder
from vista.runs.checkpoint import Checkpoints
from vista.runs.config import TrainConfig
from vista.runs.lock import FolderMoved
from vista.training import loop
from vista.training.events import EpochEnded, Event, Stepped

pytestmark = pytest.mark.faults


def train_and(wanted: TrainConfig, out: Path, kind: type[Event], count: int, change: object) -> None:
    """Train, and call ``change`` after the n-th event of a kind."""
    with noting_states():
        for event in loop.train(wanted, out):
            count -= isinstance(event, kind)
            if isinstance(event, kind) and count == 0:
                change()  # type: ignore[operator]


@pytest.mark.parametrize("kind", [Stepped, EpochEnded])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_moved_run_stops_and_resumes_at_its_new_path(
    data: str, tmp_path: Path, kind: type[Event], count: int
) -> None:
    wanted, old, new = config(data), tmp_path / "old", tmp_path / "new"
    train(wanted, tmp_path / "whole")
    with pytest.raises(FolderMoved, match=rf"{old} was moved to {new} during training: resume it at its new path"):
        train_and(wanted, old, kind, count, lambda: old.rename(new))
    assert not old.exists()
    if count < 3 or kind is Stepped:
        assert Checkpoints(new).names(), "with a checkpoint"
    train(wanted, new)
    assert ended_as(new) == ended_as(tmp_path / "whole")
    record(f"moved folder after {kind.__name__} {count}", moves=1, resumed=1)


def test_a_run_moved_while_its_last_checkpoint_is_written_names_its_new_path(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, old, new, moved = config(data), tmp_path / "old", tmp_path / "new", threading.Event()
    last = wanted.epochs

    def wait_for_the_move(kind: str, target: Path) -> None:
        if kind == "rename" and target.name.startswith(f"epoch-{last:05d}"):
            moved.wait(timeout=60)

    def move() -> None:
        old.rename(new)
        moved.set()

    monkeypatch.setattr(atomic, "on_write", wait_for_the_move)
    with pytest.raises(FolderMoved, match=f"{old} was moved to {new}"):
        train_and(wanted, old, EpochEnded, last, move)
    assert not old.exists()


@pytest.mark.parametrize("kind", [Stepped, EpochEnded])
def test_a_removed_run_stops_and_is_not_created_again(data: str, tmp_path: Path, kind: type[Event]) -> None:
    out = tmp_path / "run"
    with pytest.raises(FolderMoved, match=f"{out} was moved or removed during training"):
        train_and(config(data), out, kind, 2, lambda: remove(out))
    assert not out.exists()


def remove(folder: Path) -> None:
    """Delete a folder into which a checkpoint may be written at the same time."""
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


def test_a_run_whose_folder_was_replaced_leaves_the_other_one_alone(data: str, tmp_path: Path) -> None:
    out, moved = tmp_path / "run", tmp_path / "moved"

    def replace() -> None:
        out.rename(moved)
        out.mkdir()

    with pytest.raises(FolderMoved):
        train_and(config(data), out, Stepped, 3, replace)
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("kind", ["flipped", "cut short", "missing"])
@pytest.mark.parametrize("name", [folder.LABELS, folder.SPLIT])
def test_resume_verifies_labels_and_split(data: str, tmp_path: Path, name: str, kind: str) -> None:
    out = stopped(config(data), tmp_path / "run", 2, 1)
    damage(out / name, kind)
    with pytest.raises((ValueError, FileNotFoundError), match=rf"{name} is (damaged|missing): "):
        train(config(data), out)


def test_resume_rejects_labels_of_another_run(data: str, tmp_path: Path) -> None:
    out = stopped(config(data), tmp_path / "run", 2, 1)
    other = stopped(config(data, seed=1), tmp_path / "other", 2, 1)
    for name in (folder.LABELS, folder.SPLIT):
        kept = (out / name).read_bytes()
        shutil.copy(other / name, out / name)
        with pytest.raises(ValueError, match=rf"{name} is damaged: its hash is \w+, but data\.json has \w+"):
            train(config(data), out)
        (out / name).write_bytes(kept)
