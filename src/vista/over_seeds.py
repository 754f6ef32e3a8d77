"""What several seeds come to."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard error: the sample's standard deviation over the root of its size; one value has no error."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return statistics.fmean(values), error
