"""Makes the modules in this folder, such as ``doc_pages``, importable by its tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
