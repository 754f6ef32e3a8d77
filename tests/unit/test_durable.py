"""A file is there whole or not at all, and every change of the disk announces itself."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from vista import durable


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What was announced."""
    seen: list[tuple[str, str]] = []
    monkeypatch.setattr(durable, "on_write", lambda what, path: seen.append((what, path.name)))
    return seen


def test_a_write_announces_its_steps(tmp_path: Path, seen: list[tuple[str, str]]) -> None:
    durable.write(tmp_path / "a", b"content")
    assert (tmp_path / "a").read_bytes() == b"content"
    assert seen == [(what, "a") for what in ("open", "half", "rename", "done")]
    durable.rename(tmp_path / "a", tmp_path / "b")
    assert seen[4:] == [("rename", "b"), ("done", "b")]
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


@pytest.mark.parametrize("step", ["open", "half", "rename"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), RuntimeError("x")])
def test_an_error_leaves_what_was_there_and_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    durable.write(tmp_path / "a", b"before")

    def fail(what: str, path: Path) -> None:
        if what == step:
            raise error

    monkeypatch.setattr(durable, "on_write", fail)
    with pytest.raises(type(error)) as raised:
        durable.write(tmp_path / "a", b"after")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"before"
    if isinstance(error, OSError) and step != "open":
        assert f"cannot write {tmp_path / 'a'}: No space left on device" in str(raised.value)


def test_two_processes_may_write_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a temporary name of its own, or one would rename the other's half."""

    def write_as_another(what: str, path: Path) -> None:
        if what == "half":
            monkeypatch.setattr(durable, "on_write", lambda what, path: None)
            monkeypatch.setattr("vista.exchange.rank", lambda: 1)
            durable.write(path, b"content")
            monkeypatch.setattr("vista.exchange.rank", lambda: 0)

    monkeypatch.setattr(durable, "on_write", write_as_another)
    durable.write(tmp_path / "a", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"content"


def test_json_is_one_form_and_a_cut_file_is_named(tmp_path: Path) -> None:
    durable.write_json(tmp_path / "a.json", {"b": 1, "a": [0.1]})
    assert (tmp_path / "a.json").read_text() == '{\n "a": [\n  0.1\n ],\n "b": 1\n}\n'
    assert durable.read_json(tmp_path / "a.json") == {"a": [0.1], "b": 1}
    (tmp_path / "a.json").write_text('{"a": ')
    with pytest.raises(ValueError, match=r"a\.json is not JSON \(line 1\): was it cut short\?"):
        durable.read_json(tmp_path / "a.json")
    with pytest.raises(ValueError):
        durable.write_json(tmp_path / "a.json", {"a": float("nan")})
