"""The record of what the fault tests tried.

``VISTA_RELIABILITY=$PWD/results/reliability.json make test-faults`` writes it.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import torch

from vista.files import atomic
from vista.runs.environment import environment

RECORD = "VISTA_RELIABILITY"


def record(name: str, **counts: int) -> None:
    """Store the counts of one test under its name, if the environment names a record.

    Args:
        name: The test.
        **counts: What was tried, and how often it was noticed.
    """
    if path := os.environ.get(RECORD):
        folder = os.open(Path(path).parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # two workers of pytest write one record
            entries = json.loads(Path(path).read_text())["tests"] if Path(path).exists() else {}
            where = environment(torch.device("cpu"))  # commit, machine and versions
            atomic.write_json(Path(path), {"format": 1, "environment": where, "tests": {**entries, name: counts}})
        finally:
            os.close(folder)
