"""A word where a run's result is more than its network."""

from __future__ import annotations

import sys

from vista.cli import terminal
from vista.methods import Method, available
from vista.runs.config import TrainConfig
from vista.training.resolve import choose_method


def note_fusion(config: TrainConfig) -> None:
    """Say on stderr that the run reported a blend of several epochs, of which this is one network."""
    if config.method not in available():
        return  # from outside, and not registered here: its network is all that is known of it
    if choose_method(config).method.fused_predictions is not Method.fused_predictions:
        terminal.say(
            f"vista: note: {config.method} fuses predictions of several epochs in the end; this is the network alone",
            sys.stderr,
        )
