"""Small trainings to kill, stop and damage: see ``trainings.py``, which is also run as a program."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "faults"))

import trainings


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a small set of digits."""
    return trainings.write_digits(tmp_path_factory.mktemp("data") / "digits.npz")


@pytest.fixture(scope="session")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[trainings.Trainer]:
    """Trains in processes of their own, which may be killed."""
    with trainings.Trainer(tmp_path_factory.mktemp("meetings")) as started:
        yield started
