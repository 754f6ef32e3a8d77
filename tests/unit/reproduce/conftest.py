"""``made_runs.py``, beside the tests of analysis, makes the runs that the ledger keeps here."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "analysis"))
