"""CE: plain cross-entropy with the given labels, the baseline of every comparison."""

from __future__ import annotations

from typing import Any

from vista.methods.base import Method

NEUTRAL: dict[str, Any] = {}


class CrossEntropy(Method):
    name = "ce"
    family = "plain"
    summary = "Cross-entropy with the given labels"
    cost = "1 forward, 1 backward"
    keeps = "nothing"
    source = "the baseline of every table"
