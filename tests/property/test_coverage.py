"""Properties of the sweep on any history: few states, few samples and copied rows, so that ties are common."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from vista.core import coverage
from vista.functional import deviation_gap, lifespans, light_coverage, marginal_coverage

Matrix = NDArray[np.bool_]
ORDERS = st.sampled_from(coverage.ORDERS)
TOLERANCES = st.sampled_from([0.0, 0.01, 0.05, 0.1, 0.2, 0.25, 1 / 3, 0.5, 0.9]) | st.floats(0, 0.99)


@st.composite
def histories(draw: st.DrawFn, max_states: int = 14, max_samples: int = 70) -> Matrix:
    """Bool ``[n, m]``: rows are drawn, copied from an earlier one, or an earlier one shuffled (an exact tie)."""
    n, m = draw(st.integers(1, max_states)), draw(st.integers(1, max_samples))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    share = draw(st.sampled_from([0.0, 0.05, 0.3, 0.5, 0.8, 1.0]))
    rows: list[NDArray[np.bool_]] = []
    for kind in draw(st.lists(st.sampled_from(["new", "new", "copy", "tie", "subset"]), min_size=n, max_size=n)):
        if kind == "new" or not rows:
            rows.append(rng.random(m) < share)
        else:
            earlier = rows[rng.integers(len(rows))]
            changed = {"copy": earlier, "tie": rng.permutation(earlier), "subset": earlier & (rng.random(m) < 0.7)}
            rows.append(changed[kind])
    return np.array(rows)


def sweep_by_sets(correct: Matrix, order: str) -> list[int]:
    """The paper's sweep, word by word, on Python sets."""
    covered_by = [set(np.flatnonzero(row).tolist()) for row in correct]
    if order == "accuracy":
        ranked = sorted(range(len(correct)), key=lambda s: (-len(covered_by[s]), s))
    else:
        ranked = list(reversed(range(len(correct))))
    covered: set[int] = set()
    counts = [0] * len(correct)
    for s in ranked:
        counts[s] = len(covered_by[s] - covered)
        covered |= covered_by[s]
    return counts


@given(histories(), ORDERS)
def test_the_fast_sweep_equals_a_sweep_on_sets(correct: Matrix, order: coverage.Order) -> None:
    assert marginal_coverage(correct, order=order).tolist() == sweep_by_sets(correct, order)


@given(histories(), ORDERS)
def test_counts_add_up_to_the_union(correct: Matrix, order: coverage.Order) -> None:
    counts = marginal_coverage(correct, order=order)
    sizes = correct.sum(axis=1)
    assert counts.sum() == correct.any(axis=0).sum()
    assert (counts >= 0).all()
    assert (counts <= sizes).all()
    first = int(np.argmax(sizes)) if order == "accuracy" else len(correct) - 1
    assert counts[first] == sizes[first]


@given(histories(), ORDERS)
def test_claim_1_an_older_count_never_rises_and_zero_stays_zero(correct: Matrix, order: coverage.Order) -> None:
    before = np.zeros(0, np.int64)
    for t in range(1, len(correct) + 1):
        counts = marginal_coverage(correct[:t], order=order)
        assert (counts[:-1] <= before).all()
        assert (counts[:-1][before == 0] == 0).all()
        before = counts


@given(histories(), ORDERS)
def test_light_without_tolerance_credits_as_basic_does(correct: Matrix, order: coverage.Order) -> None:
    by_algorithm_2 = list(coverage.light(coverage.pack(correct), correct.shape[1], 0.0, order))
    for t, anchors in enumerate(by_algorithm_2, 1):
        basic = marginal_coverage(correct[:t], order=order)
        assert anchors == {s: int(count) for s, count in enumerate(basic, 1) if count > 0}


def light_by_sets(correct: Matrix, tau: float) -> list[dict[int, int]]:
    """Algorithm 2, word by word: sweep the kept states and the newest, keep what adds more than ``tau * m``."""
    kept: list[int] = []
    history = []
    for t in range(1, len(correct) + 1):
        kept = [*kept, t]
        counts = sweep_by_sets(correct[[s - 1 for s in kept]], "accuracy")
        anchors = {s: c for s, c in zip(kept, counts) if c > np.float64(tau) * correct.shape[1]}
        history.append(anchors)
        kept = list(anchors)
    return history


@given(histories(), TOLERANCES)
def test_light_is_algorithm_2_from_the_start(correct: Matrix, tau: float) -> None:
    anchors = light_coverage(correct, tau)
    assert anchors == light_by_sets(correct, tau)
    assert len(anchors) == len(correct)
    before: set[int] = set()
    for t, now in enumerate(anchors, 1):
        assert set(now) <= before | {t}, "what is pruned never returns"
        assert list(now) == sorted(now)
        assert len(now) * Fraction(tau) < 1
        assert all(count > tau * correct.shape[1] for count in now.values())
        before = set(now)


@given(histories(), TOLERANCES)
def test_lifespans_count_the_epochs_as_an_anchor(correct: Matrix, tau: float) -> None:
    anchors = light_coverage(correct, tau)
    expected = [sum(s in now for now in anchors) for s in range(1, len(correct) + 1)]
    assert lifespans(correct, tau).tolist() == expected


@given(histories(), ORDERS, TOLERANCES, st.randoms(use_true_random=False))
def test_the_order_of_validation_samples_does_not_matter(correct, order, tau, random) -> None:
    shuffled = correct[:, random.sample(range(correct.shape[1]), correct.shape[1])]
    assert marginal_coverage(shuffled, tau, order).tolist() == marginal_coverage(correct, tau, order).tolist()
    assert light_coverage(shuffled, tau) == light_coverage(correct, tau)


@given(histories(), ORDERS, TOLERANCES)
def test_every_validation_sample_twice_doubles_every_count(correct, order, tau) -> None:
    twice = np.concatenate([correct, correct], axis=1)
    assert marginal_coverage(twice, tau, order).tolist() == (2 * marginal_coverage(correct, tau, order)).tolist()
    doubled = [{s: 2 * count for s, count in anchors.items()} for anchors in light_coverage(correct, tau)]
    assert light_coverage(twice, tau) == doubled


@given(histories())
def test_the_deviation_gap_lies_between_nothing_and_the_accuracy(correct: Matrix) -> None:
    gap = deviation_gap(correct)
    assert gap.tolist() == [float((row & ~correct[-1]).sum()) / correct.shape[1] for row in correct]
    assert gap[-1] == 0
    assert ((gap >= 0) & (gap <= correct.mean(axis=1))).all()


@settings(max_examples=30)
@given(histories(max_samples=200))
def test_packing_loses_nothing(correct: Matrix) -> None:
    bits = coverage.pack(correct)
    assert bits.shape == (len(correct), -(-correct.shape[1] // 64))
    assert (np.unpackbits(bits.view(np.uint8), axis=1, count=correct.shape[1]) == correct).all()
    assert coverage.sizes(bits).tolist() == correct.sum(axis=1).tolist()
