"""``made_runs.py`` in this folder makes the runs for the tests of analysis, report and page."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
