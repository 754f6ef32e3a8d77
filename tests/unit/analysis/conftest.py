"""``made_runs.py`` beside this file makes the runs that tests of analysis, report and page look at."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
