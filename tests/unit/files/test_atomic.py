"""Writes are atomic, and every change of the disk calls the hook."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from vista.files import atomic


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The operations reported to the hook."""
    seen: list[tuple[str, str]] = []
    monkeypatch.setattr(atomic, "on_write", lambda what, path: seen.append((what, path.name)))
    return seen


def test_a_write_announces_its_steps(tmp_path: Path, seen: list[tuple[str, str]]) -> None:
    atomic.write(tmp_path / "a", b"content")
    assert (tmp_path / "a").read_bytes() == b"content"
    assert seen == [(what, "a") for what in ("open", "half", "rename", "done")]
    atomic.rename(tmp_path / "a", tmp_path / "b")
    assert seen[4:] == [("rename", "b"), ("done", "b")]
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_content_is_on_the_disk_before_its_name_and_the_name_before_the_write_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power may fail at every instant: a name without its content would be a file that is not whole."""
    steps: list[object] = []
    handles: list[int] = []

    def sync(handle: int) -> None:
        found = os.fstat(handle)
        handles.append(handle)
        steps.append("folder" if stat.S_ISDIR(found.st_mode) else found.st_size)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(atomic, "on_write", lambda what, path: steps.append(what))
    atomic.write(tmp_path / "a", b"content")
    assert steps == ["open", "half", len(b"content"), "rename", "folder", "done"]
    steps.clear()
    atomic.rename(tmp_path / "a", tmp_path / "b")
    assert steps == ["rename", "folder", "done"]
    for handle in handles:
        with pytest.raises(OSError):
            os.fstat(handle)  # it was closed


@pytest.mark.parametrize("step", ["open", "half", "rename"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), RuntimeError("x")])
def test_an_error_leaves_what_was_there_and_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    atomic.write(tmp_path / "a", b"before")

    def fail(what: str, path: Path) -> None:
        if what == step:
            raise error

    monkeypatch.setattr(atomic, "on_write", fail)
    with pytest.raises(type(error)) as raised:
        atomic.write(tmp_path / "a", b"after")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"before"
    if isinstance(error, OSError) and step != "open":
        assert f"cannot write {tmp_path / 'a'}: No space left on device" in str(raised.value)


def test_a_folder_that_is_gone_is_reported_as_such(tmp_path: Path) -> None:
    """Not by the temporary file, which was never there to be taken away."""
    with pytest.raises(FileNotFoundError, match=f"cannot write {tmp_path / 'gone' / 'a'}: No such file or directory"):
        atomic.write(tmp_path / "gone" / "a", b"content")


def test_two_processes_may_write_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one training or of two commands: with one temporary name for both, one would rename the other's half."""

    def write_as_another(what: str, path: Path) -> None:
        if what == "half":
            with monkeypatch.context() as patch:
                patch.setattr(atomic, "on_write", lambda what, path: None)
                patch.setattr(os, "getpid", lambda: 1)
                atomic.write(path, b"short")
            assert path.read_bytes() == b"short"

    monkeypatch.setattr(atomic, "on_write", write_as_another)
    atomic.write(tmp_path / "a", b"a longer content")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"a longer content"


def test_what_killed_processes_left_half_written_goes_with_the_next_write(tmp_path: Path) -> None:
    """Of the same file: what is another one's goes when that is written again."""
    killed = (
        "import os, sys; from pathlib import Path; from vista.files import atomic\n"
        "atomic.on_write = lambda what, path: os._exit(9) if what == 'half' else None\n"
        "atomic.write(Path(sys.argv[1]), b'content')"
    )
    for name in ("a", "a", "b"):
        assert subprocess.run([sys.executable, "-c", killed, tmp_path / name]).returncode == 9
    left = sorted(path.name for path in tmp_path.iterdir())
    assert len(left) == 2, left
    assert all(atomic.is_temporary(name) for name in left)
    atomic.write(tmp_path / "a", b"content")
    assert sorted(path.name for path in tmp_path.iterdir()) == [left[1], "a"]


@pytest.mark.parametrize("name", [".git", ".notes.txt", ".tmp", "a.0-host-12.tmp", ".mine.tmp", ".a.tmp.html"])
def test_other_names_with_a_dot_are_not_taken_for_temporary_ones(name: str) -> None:
    assert not atomic.is_temporary(name)
    assert atomic.is_temporary(".config.json.0.tmp"), "as older versions wrote them"


def test_json_has_one_form(tmp_path: Path) -> None:
    atomic.write_json(tmp_path / "a.json", {"b": 1, "a": [0.1]})
    assert (tmp_path / "a.json").read_text() == '{\n "a": [\n  0.1\n ],\n "b": 1\n}\n'
    with pytest.raises(ValueError):
        atomic.write_json(tmp_path / "a.json", {"a": float("nan")})


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_folder_with_foreign_entries_is_left_with_them(tmp_path: Path, kind: str) -> None:
    entry = tmp_path / "folder" / "state.json" if kind == "folder" else tmp_path / "folder" / "notes.txt"
    (tmp_path / "folder").mkdir()
    for name in ("manifest.json", ".a.json.0-host-1.tmp"):
        (tmp_path / "folder" / name).touch()
    if kind == "folder":
        entry.mkdir()
    {"file": entry.touch, "folder": (entry / "inner").mkdir, "link": lambda: entry.symlink_to(tmp_path)}[kind]()
    is_own = {"manifest.json", "state.json"}.__contains__
    assert atomic.delete_entries(tmp_path, ["folder", "missing"], is_own) == ["folder"]
    assert [path.name for path in (tmp_path / "folder").iterdir()] == [entry.name]
    (entry / "inner").rmdir() if kind == "folder" else entry.unlink()
    assert atomic.delete_entries(tmp_path, ["folder"], is_own) == []
    assert list(tmp_path.iterdir()) == []


def test_the_parent_of_every_new_folder_is_flushed_outermost_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power failure may lose a folder after a file in it was written."""
    synced: list[Path] = []
    monkeypatch.setattr(atomic, "sync_folder", synced.append)
    folder = tmp_path / "a" / "b" / "c"
    atomic.make_folder(folder)
    assert folder.is_dir()
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    synced.clear()
    atomic.make_folder(folder)
    assert synced == []
