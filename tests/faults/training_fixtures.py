"""Fixtures of the small trainings in ``trainings.py``, for every folder of tests that kills, stops or damages them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trainings


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a small set of digits."""
    return trainings.write_digits(tmp_path_factory.mktemp("data") / "digits.npz")


@pytest.fixture(scope="session")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[trainings.Trainer]:
    """Trains in separate processes, which may be killed."""
    with trainings.Trainer(tmp_path_factory.mktemp("meetings")) as started:
        yield started
