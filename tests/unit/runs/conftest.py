"""Small trainings to kill, stop and damage: see ``trainings.py``, which is also run as a program."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "faults"))

from training_fixtures import data, trainer

__all__ = ["data", "trainer"]
