"""Plain cross-entropy on the given labels: what every other method is compared with."""

from __future__ import annotations

from typing import Any

from vista.methods.base import Method

NEUTRAL: dict[str, Any] = {}


class CrossEntropy(Method):
    name = "ce"
    family = "plain"
    summary = "Cross-entropy on the given labels"
    cost = "1 forward, 1 backward"
    keeps = "nothing"
    source = "the baseline of every table"
