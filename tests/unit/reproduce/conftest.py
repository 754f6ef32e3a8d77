"""Beside these tests ``fake_records.py`` writes records; ``made_runs.py``, beside those of analysis, whole runs."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "analysis")]
