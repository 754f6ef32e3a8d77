"""How much memory is free, of the machine and of a container."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from vista.core import store

CPU = torch.device("cpu")


def test_this_machine_says_how_much_is_free() -> None:
    free = store.bytes_available(CPU)
    assert free is None or free > 1_000_000


@pytest.mark.parametrize(
    ("folder", "files"),
    [
        (".", {"memory.max": "5000", "memory.current": "3000", "memory.stat": "anon 7\ninactive_file 500"}),
        (
            "memory",
            {
                "memory.limit_in_bytes": "5000",
                "memory.usage_in_bytes": "3000",
                "memory.stat": "inactive_file 9\ntotal_inactive_file 500",
            },
        ),
    ],
    ids=["version 2", "version 1"],
)
def test_a_container_has_what_its_limit_leaves(tmp_path: Path, folder: str, files: dict[str, str]) -> None:
    """Pages of files that were not used for long can be dropped."""
    (tmp_path / folder).mkdir(exist_ok=True)
    for name, content in files.items():
        (tmp_path / folder / name).write_text(f"{content}\n")
    assert store.free_in_container(tmp_path) == 2500


def test_where_there_is_no_limit_none_is_reported(tmp_path: Path) -> None:
    assert store.free_in_container(tmp_path) is None
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("3000\n")
    assert store.free_in_container(tmp_path) is None


@pytest.mark.parametrize(("machine", "container", "least"), [(5, 3, 3), (3, 5, 3), (None, 4, 4), (4, None, 4)])
def test_the_tighter_of_both_counts(
    monkeypatch: pytest.MonkeyPatch, machine: int | None, container: int | None, least: int
) -> None:
    monkeypatch.setattr(store, "_free_on_machine", lambda: machine)
    monkeypatch.setattr(store, "free_in_container", lambda: container)
    assert store.bytes_available(CPU) == least
