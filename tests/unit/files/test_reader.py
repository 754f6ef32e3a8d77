"""The reader of run folders: regular files within limits, one form of error for everything else."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vista.files import reader
from vista.files.reader import DamagedFile


@pytest.mark.parametrize("kind", ["symbolic link", "folder", "FIFO", "socket", "device"])
def test_only_regular_files_are_opened(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    path = Path("file.json")
    if kind == "symbolic link":
        (tmp_path / "target").write_text("{}")
        path.symlink_to(tmp_path / "target")
    elif kind == "folder":
        path.mkdir()
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    else:
        path = Path("/dev/zero")
    for read in (reader.read_object, reader.read_lines, reader.read_tensors, reader.read_arrays, reader.sha256):
        with pytest.raises(DamagedFile, match=rf"{path} is damaged: it is a .*, not a file; restore the file"):
            read(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"a\.json is missing: restore the file"):
        reader.read_object(tmp_path / "a.json")


def test_a_file_above_the_limit_is_not_read(tmp_path: Path) -> None:
    for name, size in (("large.json", reader.MAX_JSON_BYTES + 1), ("sparse.safetensors", 2**43)):
        with open(tmp_path / name, "wb") as file:
            try:
                file.truncate(size)
            except OSError:
                pytest.skip("the file system has no sparse files of this size")
    for read, name in ((reader.read_object, "large.json"), (reader.read_tensors, "sparse.safetensors")):
        with pytest.raises(DamagedFile, match=rf"{name} is damaged: it has \d+ bytes, but at most \d+ can be read"):
            read(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "it is not JSON"),
        ('{"a": ', "it is not JSON"),
        ("[1]", "it must hold a JSON object, got list"),
        ('{"a": NaN}', "numbers must be finite, got NaN"),
        ('{"a": -Infinity}', "numbers must be finite, got -Infinity"),
        ('{"a": 1e999}', "numbers must be finite, got 1e999"),
        ('{"a": 18446744073709551616}', "numbers must have at most 64 bits, got 18446744073709551616"),
        ('{"a": ' + "9" * 5000 + "}", "numbers must have at most 64 bits, got 9999"),
        ('{"a": ' + "[" * 64 + "]" * 64 + "}", "it is nested more than 64 levels deep"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "it is nested more than 64 levels deep"),
    ],
)
def test_json_outside_the_limits_is_rejected(tmp_path: Path, content: str, why: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DamagedFile, match=rf"a\.json is damaged: {why}.*; restore the file"):
        reader.read_object(tmp_path / "a.json")


def test_json_within_the_limits_is_read(tmp_path: Path) -> None:
    content = '{"a": [18446744073709551615, -9223372036854775808, 1.5e300, "ü"]}'
    (tmp_path / "a.json").write_text(content)
    assert reader.read_object(tmp_path / "a.json") == {"a": [2**64 - 1, -(2**63), 1.5e300, "ü"]}


@given(content=st.binary(max_size=200) | st.text('[]{}",:0123456789eNaIft.-', max_size=80).map(str.encode))
def test_any_content_is_read_or_named(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(content)
    for read in (reader.read_object, reader.read_lines, reader.read_tensors, reader.read_arrays):
        with suppress(DamagedFile):
            read(path)
