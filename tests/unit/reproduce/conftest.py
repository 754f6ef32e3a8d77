"""Puts ``fake_records.py`` (ledger records) and ``made_runs.py`` of the analysis tests (run folders) on the path."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "analysis")]
