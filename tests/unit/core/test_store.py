"""The store of predictions: which row is kept, states, and the memory check."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vista.core import store
from vista.core.store import (
    WORKING_TABLES,
    PredictionStore,
    bytes_needed,
    check_memory,
    last_of_duplicates,
    likely_states,
    readable,
    states_at_most,
)

CPU = torch.device("cpu")


def rows(*values: float) -> torch.Tensor:
    return torch.tensor([[v, 1 - v] for v in values])


def test_rows_rest_as_float16_and_unseen_ones_as_they_began() -> None:
    kept = PredictionStore(rows(0.0, 1.0, 0.5))
    kept.write(torch.tensor([2]), rows(1 / 3))
    assert len(kept) == 3
    assert kept.current.dtype == torch.float16
    assert torch.equal(kept.current[:-1], rows(0.0, 1.0, 1 / 3).half())
    assert kept.recorded().tolist() == [False, False, True]


def test_the_spare_row_is_no_sample() -> None:
    kept = PredictionStore(rows(0.0, 1.0))
    kept.write(torch.tensor([2, 0]), rows(0.7, 0.5))
    kept.keep(1)
    assert torch.equal(kept.states[1], rows(0.5, 1.0).half())
    assert kept.recorded().tolist() == [True, False]


def test_a_kept_state_no_longer_changes() -> None:
    kept = PredictionStore(rows(0.0, 1.0))
    kept.keep(1)
    kept.write(torch.tensor([0, 1]), rows(0.5, 0.5))
    kept.keep(2)
    assert torch.equal(kept.states[1], rows(0.0, 1.0).half())
    assert torch.equal(kept.states[2], rows(0.5, 0.5).half())


def test_a_new_epoch_forgets_what_was_seen_and_keeps_the_rows() -> None:
    kept = PredictionStore(rows(0.0, 1.0))
    kept.write(torch.tensor([1]), rows(0.25))
    kept.start_epoch()
    assert not kept.recorded().any()
    assert torch.equal(kept.current[:-1], rows(0.0, 0.25).half())


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=12), min_size=1, max_size=4))
def test_the_last_write_stands_and_a_device_would_agree(batches: list[list[int]]) -> None:
    """Every copy of a duplicated index gets the same, last row, so that the order of a device's writes is no matter."""
    kept, place, expected = PredictionStore(torch.zeros(6, 2)), torch.zeros(7, dtype=torch.long), {}
    for step, batch in enumerate(batches):
        index = torch.tensor(batch)
        values = torch.arange(len(batch) * 2).view(-1, 2) / 100 + step
        kept.write(index, values)
        last = last_of_duplicates(index, place)
        assert last.tolist() == [max(j for j, other in enumerate(batch) if other == i) for i in batch]
        expected.update({i: values[j].half().tolist() for j, i in enumerate(batch)})
    for i in range(6):
        assert kept.current[i].tolist() == expected.get(i, [0.0, 0.0])
        assert bool(kept.recorded()[i]) == (i in expected)


def test_room_for_light_is_bounded_by_tau_and_never_above_that_for_all() -> None:
    assert bytes_needed(1000, 100, 200, 0.0) == 200 * 1000 * 100 * 2
    assert bytes_needed(1000, 100, 200, 0.1) == 11 * 1000 * 100 * 2
    assert bytes_needed(1000, 100, 5, 0.1) == 5 * 1000 * 100 * 2
    assert bytes_needed(1000, 100, 5, 1e-310) == 5 * 1000 * 100 * 2


def test_few_of_the_anchors_that_tau_allows_are_reserved() -> None:
    """At most 12 were ever kept with tau = 0.01, where 100 might be."""
    assert states_at_most(200, 0.01) == 101
    assert likely_states(200, 0.01) == 13
    assert likely_states(200, 0.001) == 121
    assert likely_states(5, 0.01) == 5


@pytest.mark.parametrize("kind", ["auto", "host"])
def test_only_what_fits_nowhere_is_rejected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: store.Store) -> None:
    """A state of 100 x 10 is 2000 bytes: three of them, and the targets, or their files."""
    size, needed = (100, 10, 200, 0.0, CPU, tmp_path), 2 * (3 + WORKING_TABLES) * 2000
    monkeypatch.setattr(store.shutil, "disk_usage", lambda folder: SimpleNamespace(free=6000))
    monkeypatch.setattr(store, "bytes_available", lambda device: needed)
    assert store.starts_on_device(kind, *size) == (kind == "auto")
    monkeypatch.setattr(store, "bytes_available", lambda device: needed - 1)
    assert not store.starts_on_device(kind, *size)
    monkeypatch.setattr(store.shutil, "disk_usage", lambda folder: SimpleNamespace(free=5999))
    assert kind == "host" or store.starts_on_device(kind, *size), "all of the memory, where there is no disk"
    monkeypatch.setattr(store, "bytes_available", lambda device: needed // 2 - 1)
    with pytest.raises(MemoryError, match=f"{tmp_path} has 6 KB free of 6 KB; choose a store_dir on a larger disk"):
        store.starts_on_device(kind, *size)


def test_what_fits_is_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "bytes_available", lambda device: (200 + (WORKING_TABLES + 1)) * 2000)
    check_memory(100, 10, 200, 0.0, CPU)
    monkeypatch.setattr(store, "bytes_available", lambda device: (200 + (WORKING_TABLES + 1)) * 2000 - 1)
    with pytest.raises(MemoryError, match="410 KB with working memory, but cpu has 410 KB free"):
        check_memory(100, 10, 200, 0.0, CPU)
    monkeypatch.setattr(store, "bytes_available", lambda device: None)
    check_memory(10**9, 10**9, 200, 0.0, CPU)


@settings(max_examples=100)
@given(st.integers(3, 2000), st.integers(2, 3000), st.integers(0, 1999))
def test_the_tau_that_is_advised_fits(states_that_fit: int, epochs: int, odd_bytes: int) -> None:
    available = (states_that_fit + (WORKING_TABLES + 1)) * 2000 + odd_bytes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "bytes_available", lambda device: available)
        if (epochs + (WORKING_TABLES + 1)) * 2000 <= available:
            check_memory(100, 10, epochs, 0.0, CPU)
            return
        with pytest.raises(
            MemoryError, match=rf"tau=0 is likely to keep {epochs} states of 100 x 10 float16"
        ) as refusal:
            check_memory(100, 10, epochs, 0.0, CPU)
        advised = float(str(refusal.value).partition("; tau=")[2].split()[0])
        check_memory(100, 10, epochs, advised, CPU)
        assert 0 < advised <= 0.5


def test_where_not_even_light_fits_a_larger_device_is_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "bytes_available", lambda device: 3000)
    with pytest.raises(MemoryError, match=r"but cpu has 3 KB free; one state alone takes 2 KB: use fewer epochs or"):
        check_memory(100, 10, 200, 0.01, CPU)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 KB"),
        (999_499_999, "999 MB"),
        (999_600_000, "1 GB"),
        (1_584_000_000, "1.58 GB"),
        (5e12, "5 TB"),
        (5e15, "5,000 TB"),
    ],
)
def test_sizes_as_people_write_them(size: float, text: str) -> None:
    assert readable(size) == text
