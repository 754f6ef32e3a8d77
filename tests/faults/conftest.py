"""Small trainings to kill, stop and damage: see ``trainings.py``, which is also run as a program."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from training_fixtures import data, trainer

__all__ = ["data", "trainer"]
