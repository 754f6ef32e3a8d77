"""The calibration that a command applies, with a note where a run has none."""

from __future__ import annotations

import sys

from vista.cli import terminal
from vista.runs.folder import RunFolder, Which


def calibration_to_use(folder: RunFolder, which: Which, raw: bool) -> float | None:
    """The temperature to divide logits by; ``None`` with ``--raw``, or for a run without one, noted on stderr."""
    if raw:
        return None
    temperature = folder.temperature(which)
    if temperature is None:
        terminal.say(
            f"vista: note: {folder.path} has no calibration (an older run, or too few validation labels): "
            "its logits are used as with --raw",
            sys.stderr,
        )
    return temperature
