"""Beta: from the label to the teacher."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vista.functional import beta

RISING = st.sampled_from(["exp", "linear", "cosine"])


@given(st.integers(2, 400), st.floats(1e-3, 8), RISING)
def test_rises_strictly_from_0_to_1(epochs: int, k: float, schedule) -> None:
    values = [beta(t, epochs, k, schedule) for t in range(1, epochs + 1)]
    assert values[0] == 0.0
    assert values[-1] == 1.0
    assert all(before < after for before, after in itertools.pairwise(values))


@given(st.integers(2, 400), st.floats(1e-12, 1e3))
def test_exp_never_falls_or_leaves_the_unit_interval_whatever_k(epochs: int, k: float) -> None:
    values = [beta(t, epochs, k) for t in range(1, epochs + 1)]
    assert values[0] == 0.0
    assert values[-1] == 1.0
    assert all(0 <= before <= after <= 1 for before, after in itertools.pairwise(values))


@pytest.mark.parametrize("t", [1, 2, 57, 150, 199, 200])
def test_the_formulas(t: int) -> None:
    u = (t - 1) / 199
    assert beta(t, 200) == pytest.approx((1 - math.exp(-2 * u)) / (1 - math.exp(-2)), abs=1e-15)
    assert beta(t, 200, k=5.0) == pytest.approx((1 - math.exp(-5 * u)) / (1 - math.exp(-5)), abs=1e-15)
    assert beta(t, 200, schedule="linear") == u
    assert beta(t, 200, schedule="cosine") == pytest.approx((1 - math.cos(math.pi * u)) / 2, abs=1e-15)


def test_exp_becomes_linear_as_k_goes_to_0() -> None:
    for t in range(1, 51):
        assert beta(t, 50, k=1e-9) == pytest.approx(beta(t, 50, schedule="linear"), abs=1e-8)
    assert beta(7, 50, k=0.0, schedule="linear") == 6 / 49, "k is exp's alone"


def test_fixed_is_its_value_in_every_epoch() -> None:
    assert [beta(t, 4, schedule="fixed", value=0.3) for t in range(1, 5)] == [0.3] * 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"t": 0, "epochs": 10}, r"t must be an epoch from 1 to 10, got 0"),
        ({"t": 11, "epochs": 10}, r"t must be an epoch from 1 to 10, got 11"),
        ({"t": 1, "epochs": 1}, r"epochs must be at least 2, got 1"),
        ({"t": 1, "epochs": 5, "k": 0.0}, r"k must be finite and greater than 0 .*got 0.0"),
        ({"t": 1, "epochs": 5, "k": -1.0}, r"k must be .*got -1.0"),
        ({"t": 1, "epochs": 5, "k": math.nan}, r"k must be .*got nan"),
        ({"t": 1, "epochs": 5, "k": math.inf}, r"k must be .*got inf"),
        ({"t": 1, "epochs": 5, "schedule": "sine"}, r"schedule must be one of exp, linear, cosine, fixed, got 'sine'"),
        ({"t": 1, "epochs": 5, "schedule": "fixed"}, r"value must be between 0 and 1 for schedule='fixed', got None"),
        ({"t": 1, "epochs": 5, "schedule": "fixed", "value": 1.2}, r"value must be between 0 and 1 .*got 1.2"),
        ({"t": 1, "epochs": 5, "schedule": "fixed", "value": math.nan}, r"value must be between 0 and 1 .*got nan"),
        (
            {"t": 1, "epochs": 5, "schedule": "linear", "value": 0.5},
            r"value must be None for schedule='linear', got 0.5: use schedule='fixed'",
        ),
    ],
)
def test_what_could_not_run_is_rejected_by_name(arguments, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message):
        beta(**arguments)
