"""After a power loss no complete checkpoint is missing, and the run resumes to the same bytes."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from disk import MODES, Recorder, materialise, states
from reliability import record
from trainings import config, ended_as, train

from vista.files import atomic
from vista.runs.checkpoint import FOLDER, Checkpoints
from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.training.resolve import resolve

pytestmark = pytest.mark.faults
RESUMED = 120  # power losses after which the run is trained to its end


@pytest.fixture(scope="module")
def whole(data: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    out = tmp_path_factory.mktemp("whole") / "run"
    train(config(data), out)
    return ended_as(out, 0)


def record_training(wanted: TrainConfig, root: Path, monkeypatch: pytest.MonkeyPatch, failing: int = 0) -> Recorder:
    """Record a run; with ``failing``, one whose n-th flush of a folder fails, and which is resumed."""
    root.mkdir()
    recorder, left = Recorder(root), [failing]
    sync_folder = atomic.sync_folder

    def mark_checkpoint(what: str, path: Path) -> None:
        if what == "done" and path.parent.name == FOLDER:
            recorder.mark(path.name)

    def sync(folder: Path) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(5, "Input/output error")
        sync_folder(folder)

    monkeypatch.setattr(atomic, "on_write", mark_checkpoint)
    monkeypatch.setattr(atomic, "sync_folder", sync)
    with recorder.recording():
        with suppress(OSError):
            train(wanted, root / "run")
        train(wanted, root / "run")
    monkeypatch.undo()
    return recorder


def losses(recorder: Recorder, folder: Path, seed: int = 0) -> Iterator[tuple[str, Path, list[str]]]:
    """Every state that a power loss may leave, as a folder that is removed afterwards, with the marks until then."""
    generator = np.random.default_rng(seed)
    for number, nodes, marks in states(recorder):
        for mode in MODES:
            target = folder / f"{number}-{mode}"
            materialise(nodes, target, mode, generator)
            yield target.name, target / "run", marks
            shutil.rmtree(target)


def check_nothing_is_lost(wanted: TrainConfig, run: Path, marks: list[str], root: Path | None = None) -> None:
    """The newest complete checkpoint is there and readable, unless the run has finished."""
    if RunFolder(run).is_finished():
        RunFolder(run).metrics()
        RunFolder(run).weights("best")
        RunFolder(run).weights("last")
        RunFolder(run).record()
    elif marks:
        checkpoints = Checkpoints(root or run)
        newest = checkpoints.names()[0]
        assert newest >= marks[-1]
        assert checkpoints.load(newest, resolve(wanted).identity)


def test_no_complete_checkpoint_is_lost(
    data: str, tmp_path: Path, whole: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = config(data)
    recorder = record_training(wanted, tmp_path / "recorded", monkeypatch)
    total, resumed = len(MODES) * len(recorder.log), 0
    chosen = set(np.random.default_rng(1).choice(total, RESUMED, replace=False).tolist())
    for number, (name, run, marks) in enumerate(losses(recorder, tmp_path)):
        check_nothing_is_lost(wanted, run, marks)
        if number in chosen:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                train(wanted, run)
            assert ended_as(run, 0) == whole, name
            resumed += 1
    record("power loss", operations=len(recorder.log), losses=total, kept=total, resumed=resumed)


@pytest.mark.parametrize("failing", [1, 10, 22, 24, 37])
def test_nor_after_an_earlier_failure(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    """What a process that stopped has written without flushing it counts as lost, also for the process that resumes."""
    wanted = config(data)
    recorder = record_training(wanted, tmp_path / "recorded", monkeypatch, failing)
    for _, run, marks in losses(recorder, tmp_path, failing):
        check_nothing_is_lost(wanted, run, marks)
    total = len(MODES) * len(recorder.log)
    record(
        f"power loss after failing flush {failing}",
        operations=len(recorder.log), losses=total, kept=total, resumed=0,
    )  # fmt: skip


def test_nor_below_a_checkpoint_dir(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that --checkpoint-dir names, and its parent, are new too."""
    wanted = config(data, checkpoint_dir=str(tmp_path / "recorded" / "new" / "scratch"))
    recorder = record_training(wanted, tmp_path / "recorded", monkeypatch)
    for _, run, marks in losses(recorder, tmp_path):
        roots = list((run.parent / "new" / "scratch").glob("run.vista-*"))
        check_nothing_is_lost(wanted, run, marks, roots[0] if roots else None)
    total = len(MODES) * len(recorder.log)
    record("power loss with --checkpoint-dir", operations=len(recorder.log), losses=total, kept=total, resumed=0)


def test_the_layer_finds_a_missing_flush(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any fsync of folders, checkpoints are lost: the simulation can fail."""
    wanted = config(data)
    with monkeypatch.context() as patched:
        patched.setattr(atomic, "sync_folder", lambda folder: None)
        recorder = record_training(wanted, tmp_path / "recorded", monkeypatch)

    def check_all() -> None:
        for _, run, marks in losses(recorder, tmp_path):
            check_nothing_is_lost(wanted, run, marks)

    with pytest.raises((AssertionError, IndexError, OSError)):
        check_all()
