"""The lock of a run folder: errors name its owner, and an untrained folder keeps no lock file."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from vista.runs import lock as run_lock
from vista.runs.lock import FILE, locked


def test_a_lock_leaves_what_was_there_and_takes_what_it_made(tmp_path: Path) -> None:
    with locked(tmp_path / "a" / "run"):
        assert (tmp_path / "a" / "run" / FILE).exists()
    assert not (tmp_path / "a").exists()
    (tmp_path / "mine").write_text("")
    with locked(tmp_path):
        (tmp_path / "config.json").write_text("{}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", FILE, "mine"]


def test_parents_of_new_folders_are_flushed_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a power failure could lose the run folder after its checkpoints were written."""
    flushed: list[Path] = []
    monkeypatch.setattr(run_lock.atomic, "sync_folder", flushed.append)
    with locked(tmp_path / "a" / "run"):
        assert flushed == [tmp_path, tmp_path / "a"]
        (tmp_path / "a" / "run" / "config.json").touch()
    flushed.clear()
    with locked(tmp_path / "a" / "run"):
        assert flushed == [tmp_path / "a"], "the process that made it may have ended before"


def test_a_lock_takes_no_more_than_it_made_and_bears_that_all_is_gone(tmp_path: Path) -> None:
    with locked(tmp_path / "a" / "run"):
        (tmp_path / "a" / "mine").touch()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["mine"]
    with locked(tmp_path / "b" / "run"):
        shutil.rmtree(tmp_path / "b")
    assert not (tmp_path / "b").exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder can be made in /proc, which does not exist here")
def test_a_path_that_takes_no_folder_is_reported_with_its_option() -> None:
    with (
        pytest.raises(
            FileNotFoundError, match=r"^/proc/x cannot be written to: No such file .*; choose another --out$"
        ),
        locked(Path("/proc/x")),
    ):
        pass


def test_a_lock_names_its_present_owner_alone(tmp_path: Path) -> None:
    """Also if a killed process left its id in the file; the owner is unknown until it has written its own."""
    lock = tmp_path / FILE
    lock.write_text("99999999999")
    with locked(tmp_path):
        assert lock.read_text().split()[:2] == [platform.node(), str(os.getpid())]
        os.truncate(lock, 0)
        with pytest.raises(RuntimeError, match="is in use by process another one"), locked(tmp_path):
            pass


def test_a_lock_that_its_owner_deleted_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file may go between opening and locking it; who holds the lock of a file without a name holds nothing."""
    lock, calls = tmp_path / FILE, []

    def flock(file: IO[str], operation: int) -> None:
        calls.append(file)
        if len(calls) == 1:
            lock.unlink()
        fcntl.flock(file, operation)

    monkeypatch.setattr(run_lock, "fcntl", SimpleNamespace(**{**vars(fcntl), "flock": flock}))
    with locked(tmp_path):
        assert len(calls) == 2
        assert lock.read_text().split()[:2] == [platform.node(), str(os.getpid())]


def of_another_host(lock: Path, seconds_ago: float) -> str:
    text = f"elsewhere 7 {int(time.time() - seconds_ago)}\n"
    lock.write_text(text)
    return text


def test_the_owner_gives_signs_of_life_and_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lock, "HEARTBEAT", 0.01)
    with locked(tmp_path):
        (tmp_path / "config.json").touch()
        (tmp_path / FILE).write_text("")
        while len((tmp_path / FILE).read_text().split()) < 3:
            time.sleep(0.01)
        assert abs(float((tmp_path / FILE).read_text().split()[2]) - time.time()) < 10
    assert (tmp_path / FILE).read_text() == ""


@pytest.mark.parametrize("holds", [False, True])
def test_the_lock_of_a_host_that_is_gone_is_taken_over(
    tmp_path: Path, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``holds``: its file server still keeps the lock for it."""
    of_another_host(tmp_path / FILE, 61)
    with (tmp_path / FILE).open() as gone:
        if holds:
            fcntl.flock(gone, fcntl.LOCK_EX)
        with locked(tmp_path) as held:
            assert (tmp_path / FILE).read_text().startswith(platform.node())
            held.check_path()
            (tmp_path / FILE).unlink()
            of_another_host(tmp_path / FILE, 0)
            with pytest.raises(RuntimeError, match=r"was taken over by process 7 on host elsewhere: this one stops"):
                held.check_path()


def test_the_lock_of_a_living_host_is_respected_where_locks_are_not_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / FILE
    monkeypatch.setattr(run_lock, "HEARTBEAT", 0.1)
    monkeypatch.setattr(run_lock, "ABANDONED", 2.0)
    of_another_host(lock, 0)
    beat = threading.Timer(0.2, lambda: lock.write_text("elsewhere 7 99999999999\n"))
    beat.start()
    with (
        pytest.warns(UserWarning, match="was in use by process 7 on host elsewhere [0-2] s ago: it is taken over if"),
        pytest.raises(RuntimeError, match="is in use by process 7 on host elsewhere: wait until that has ended"),
        locked(tmp_path),
    ):
        pass
    of_another_host(lock, 1)
    with pytest.warns(UserWarning, match="no sign of life for"), locked(tmp_path):
        assert lock.read_text().startswith(platform.node())


def test_a_lock_that_cannot_be_written_or_renewed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> int:
        raise OSError(28, os.strerror(28))

    def cannot_start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    open_files = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", fails)
        with pytest.raises(OSError, match=r"cannot write .*lock: No space left"), locked(tmp_path):
            pass
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cannot_start)
        with pytest.raises(RuntimeError, match=r"renew .*lock: can't start new thread"), locked(tmp_path):
            pass
    assert len(os.listdir("/proc/self/fd")) == open_files
    with locked(tmp_path):
        pass
