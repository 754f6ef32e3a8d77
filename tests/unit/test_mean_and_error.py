"""Mean and standard error, by the textbook."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vista.metrics import mean_and_error


def test_by_hand() -> None:
    assert mean_and_error([1.0, 2.0, 6.0]) == (3.0, pytest.approx(np.sqrt(7.0 / 3.0)))
    assert mean_and_error([5.0]) == (5.0, None)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_as_numpy_has_it(values: list[float]) -> None:
    mean, error = mean_and_error(values)
    assert mean == pytest.approx(np.mean(values), abs=1e-6)
    assert error == pytest.approx(np.std(values, ddof=1) / np.sqrt(len(values)), abs=1e-6)
