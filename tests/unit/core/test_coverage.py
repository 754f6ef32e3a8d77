"""The sweep on histories small enough to do by hand."""

from __future__ import annotations

import numpy as np
import pytest

from vista.core import coverage
from vista.functional import lifespans, light_coverage, marginal_coverage


def states(*covered: set[int], m: int) -> np.ndarray:
    """Bool ``[n, m]`` from the sets of samples that each state gets right."""
    return np.array([[i in state for i in range(m)] for state in covered])


def counts(*covered: set[int], m: int, **options) -> list[int]:
    return marginal_coverage(states(*covered, m=m), **options).tolist()


def test_of_identical_states_only_the_oldest_is_credited() -> None:
    assert counts({0, 1}, {0, 1}, {0, 1}, m=4) == [2, 0, 0]
    assert counts({0, 1}, {0, 1}, {0, 1}, m=4, order="newest") == [0, 0, 2]


def test_a_state_inside_a_better_one_adds_nothing() -> None:
    assert counts({1}, {0, 1, 2}, m=4) == [0, 3]
    assert counts({0, 1, 2}, {1}, m=4, order="newest") == [2, 1]


def test_disjoint_states_are_credited_in_full() -> None:
    assert counts({0}, {1, 2}, {3, 4, 5}, m=6) == [1, 2, 3]


def test_the_papers_figure() -> None:
    """Two disjoint circles keep their size; the third, which overlaps both, is credited for the rest of it alone."""
    largest, second, third = {0, 1, 2, 3, 4}, {5, 6, 7, 8}, {4, 5, 9}
    assert counts(third, largest, second, m=12) == [1, 5, 4]


def test_equal_counts_go_to_the_older_state() -> None:
    assert counts({0, 1}, {1, 2}, m=3) == [2, 1]
    assert counts({1, 2}, {0, 1}, {0, 1, 2}, m=3) == [0, 0, 3]


def test_order_newest_sweeps_from_the_last_state_back() -> None:
    assert counts({0, 1, 2}, {2, 3}, {3}, m=5, order="newest") == [2, 1, 1]


@pytest.mark.parametrize(
    ("tau", "m", "count", "is_anchor"),
    [
        (0.01, 300, 3, False),  # exactly tau * m is not above it
        (0.01, 300, 4, True),
        (0.01, 5000, 50, False),
        (0.01, 5000, 51, True),
        (0.29, 100, 29, True),  # 0.29 * 100 is 28.999999999999996 in float64, where the comparison is made
        (0.07, 100, 7, False),  # 0.07 * 100 is 7.000000000000001
        (0.0, 10, 0, False),
        (0.0, 10, 1, True),
    ],
)
def test_an_anchor_adds_more_than_tau_m_in_float64(tau: float, m: int, count: int, is_anchor: bool) -> None:
    state = np.arange(m)[None] < count
    assert (marginal_coverage(state, tau).tolist() == [count]) == (is_anchor or count == 0)
    assert (light_coverage(state, tau) == [{1: count}]) == is_anchor
    assert coverage.above_tolerance(np.array([count]), tau, m).tolist() == [is_anchor]


def test_light_never_takes_back_what_it_pruned_and_lets_survivors_grow() -> None:
    """State 1 keeps sample 4 alone when 3 comes, and is pruned; in epoch 4 that sample is credited to state 2."""
    history = states({0, 1, 2, 3, 4}, {4, 5, 6, 7}, {0, 1, 2, 3, 8, 9}, set(), m=10)
    assert light_coverage(history, 0.1) == [{1: 5}, {1: 5, 2: 3}, {2: 3, 3: 6}, {2: 4, 3: 6}]
    assert marginal_coverage(history, 0.1).tolist() == [0, 3, 6, 0], "thresholding Basic gives something else"
    assert light_coverage(history, 0.0) == [{1: 5}, {1: 5, 2: 3}, {1: 1, 2: 3, 3: 6}, {1: 1, 2: 3, 3: 6}]
    assert lifespans(history, 0.1).tolist() == [2, 3, 2, 0]
    assert lifespans(history).tolist() == [4, 3, 2, 0]


def test_a_history_without_a_right_sample_has_no_anchor() -> None:
    assert counts(set(), set(), m=3) == [0, 0]
    assert light_coverage(states(set(), {1}, m=3), 0.0) == [{}, {2: 1}]
    assert lifespans(states(set(), {1}, m=3)).tolist() == [0, 1]


def test_no_states_at_all_is_a_sweep_of_nothing() -> None:
    nothing = coverage.pack(np.zeros((0, 9), np.bool_))
    assert coverage.sweep(nothing).tolist() == []
    assert list(coverage.light(nothing, 9, 0.1)) == []


@pytest.mark.parametrize("m", [1, 7, 8, 63, 64, 65, 128, 129])
def test_word_boundaries_do_not_matter(m: int) -> None:
    correct = np.ones((2, m), np.bool_)
    correct[1, : m - 1] = False
    assert marginal_coverage(correct).tolist() == [m, 0]
    assert marginal_coverage(correct, order="newest").tolist() == [m - 1, 1]
    assert coverage.deviation_gap(coverage.pack(correct), m).tolist() == [(m - 1) / m, 0.0]


@pytest.mark.parametrize("tau", [-0.01, 1.0, 1.5, float("nan"), float("inf")])
def test_a_tau_that_is_no_fraction_is_rejected(tau: float) -> None:
    with pytest.raises(ValueError, match=rf"^tau must be .*0 <= tau < 1.*got {tau}"):
        marginal_coverage(np.ones((1, 3), np.bool_), tau)
    with pytest.raises(ValueError, match=rf"^tau must be .*got {tau}"):
        light_coverage(np.ones((1, 3), np.bool_), tau)


def test_an_unknown_order_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"^order must be one of accuracy, newest, got 'oldest'"):
        marginal_coverage(np.ones((1, 3), np.bool_), order="oldest")  # type: ignore[arg-type]


def test_the_bits_of_a_record_become_words_in_any_memory_order() -> None:
    correct = np.random.default_rng(0).random((70, 3)) > 0.5
    for each in (correct, correct.T):
        words = coverage.as_words(np.packbits(each, axis=1))
        assert words.shape == (len(each), -(-each.shape[1] // 64))
        assert coverage.sizes(words).tolist() == each.sum(axis=1).tolist()
