"""Metrics against values by hand, independent slow loops, and properties that always hold."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vista.metrics import aurc, classification_report, eaurc, ece, nll, topk_accuracy

METRICS = (nll, ece, aurc, eaurc)


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@st.composite
def logits_and_labels(draw):
    """Random predictions with few distinct values, so that ties are common."""
    n, k = draw(st.integers(1, 40)), draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    logits = rng.integers(-3, 4, size=(n, k)) * draw(st.sampled_from([0.3, 1.0, 2.5]))
    return logits, rng.integers(0, k, size=n)


@st.composite
def distinct_confidences(draw):
    """Binary predictions whose confidences all differ: ``(confidence in (.5, 1), right or wrong)``."""
    n = draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.permutation(np.linspace(0.51, 0.99, n)), rng.random(n) < 0.6


def binary(confidence, right):
    return np.stack([confidence, 1 - confidence], axis=1), np.where(right, 0, 1)


def slow_topk(scores, labels, k):
    hits = 0
    for row, label in zip(scores.tolist(), labels.tolist()):
        ranked = sorted(range(len(row)), key=lambda c: (-row[c], c))
        hits += label in ranked[:k]
    return hits / len(labels)


def slow_ece(probs, labels, bins):
    total = 0.0
    for b in range(bins):
        inside = [
            (max(row), row.index(max(row)) == label)
            for row, label in zip(probs.tolist(), labels.tolist())
            if b / bins < max(row) <= (b + 1) / bins
        ]
        if inside:
            accuracy = sum(right for _, right in inside) / len(inside)
            confidence = sum(high for high, _ in inside) / len(inside)
            total += len(inside) / len(labels) * abs(accuracy - confidence)
    return total


def slow_aurc(probs, labels):
    rows = [(max(row), row.index(max(row)) != label) for row, label in zip(probs.tolist(), labels.tolist())]
    order = sorted(range(len(rows)), key=lambda i: (-rows[i][0], i))
    risks = [sum(rows[j][1] for j in order[: i + 1]) / (i + 1) for i in range(len(order))]
    return sum(risks) / len(risks)


class TestByHand:
    PROBS = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.5, 0.3, 0.2], [0.2, 0.0, 0.8]])
    LABELS = np.array([0, 2, 1, 2])  # right, wrong, wrong, right

    def test_topk(self):
        assert topk_accuracy(self.PROBS, self.LABELS) == 0.5
        assert topk_accuracy(self.PROBS, self.LABELS, k=2) == 1.0

    def test_topk_ties_go_to_the_lower_class(self):
        flat = np.zeros((4, 4))
        labels = np.arange(4)
        assert [topk_accuracy(flat, labels, k) for k in (1, 2, 3, 4)] == [0.25, 0.5, 0.75, 1.0]
        assert topk_accuracy(flat[:1], labels[:1]) == 1.0
        assert topk_accuracy(flat[:1], labels[1:2]) == 0.0

    def test_nll(self):
        expected = -(math.log(0.7) + 2 * math.log(0.3) + math.log(0.8)) / 4
        assert nll(self.PROBS, self.LABELS) == pytest.approx(expected, rel=1e-12)

    def test_nll_of_an_impossible_label_is_infinite(self):
        assert nll(self.PROBS, np.array([0, 0, 0, 1])) == math.inf

    def test_ece(self):
        # Two bins: 0.5 in (0, .5], wrong: gap .5. Then .7 right, .6 wrong, .8 right: |2/3 - .7| weighs 3/4.
        assert ece(self.PROBS, self.LABELS, bins=2) == pytest.approx(0.25 * 0.5 + 0.75 * (0.7 - 2 / 3), rel=1e-12)

    def test_ece_bins_are_open_below_and_closed_above(self):
        # 0.5 right belongs to (0, .5] and .75 wrong to (.5, 1]; in one bin the gaps would partly cancel.
        probs, labels = np.array([[0.5, 0.5], [0.75, 0.25]]), np.array([0, 1])
        assert ece(probs, labels, bins=2) == pytest.approx(0.5 * 0.5 + 0.5 * 0.75)
        assert ece(probs, labels, bins=1) == pytest.approx(abs(0.5 - 0.625))

    def test_ece_has_15_bins_of_its_own_accord(self):
        # .52 right and .55 wrong: apart in fifteenths, (7/15, 8/15] and (8/15, 9/15], but together in any number near.
        probs, labels = binary(np.array([0.52, 0.55]), np.array([True, False]))
        assert ece(probs, labels) == pytest.approx((0.48 + 0.55) / 2)
        for bins in (10, 14, 16, 20):
            assert ece(probs, labels, bins) == pytest.approx(0.535 - 0.5)

    def test_aurc(self):
        # Order .8 right, .7 right, .6 wrong, .5 wrong: risks 0, 0, 1/3, 2/4. That is the best possible order.
        assert aurc(self.PROBS, self.LABELS) == pytest.approx((1 / 3 + 1 / 2) / 4, rel=1e-12)
        assert eaurc(self.PROBS, self.LABELS) == 0.0

    def test_aurc_keeps_ties_in_the_order_of_the_samples(self):
        probs = np.array([[0.6, 0.4], [0.6, 0.4]])
        assert aurc(probs, np.array([1, 0])) == pytest.approx((1 + 1 / 2) / 2)
        assert aurc(probs, np.array([0, 1])) == pytest.approx((0 + 1 / 2) / 2)

    def test_eaurc_of_the_worst_order(self):
        probs, labels = binary(np.array([0.9, 0.8, 0.7]), np.array([False, True, True]))
        assert eaurc(probs, labels) == pytest.approx((1 + 1 / 2 + 1 / 3) / 3 - (1 / 3) / 3, rel=1e-12)

    def test_oracle_is_the_closed_form(self):
        n, errors = 50, 13
        right = np.arange(n) < n - errors
        probs, labels = binary(np.linspace(0.99, 0.51, n), right)
        closed = sum(j / (n - errors + j) for j in range(1, errors + 1)) / n
        assert aurc(probs, labels) == pytest.approx(closed, rel=1e-12)


class TestAgainstSlowLoops:
    @given(logits_and_labels(), st.integers(1, 8))
    def test_topk(self, drawn, k):
        logits, labels = drawn
        k = min(k, logits.shape[1])
        assert topk_accuracy(logits, labels, k) == slow_topk(logits, labels, k)

    @given(logits_and_labels(), st.integers(1, 20))
    def test_ece(self, drawn, bins):
        probs, labels = softmax(drawn[0]), drawn[1]
        assert ece(probs, labels, bins) == pytest.approx(slow_ece(np.minimum(probs, 1.0), labels, bins), abs=1e-12)

    @given(logits_and_labels())
    def test_aurc(self, drawn):
        probs, labels = softmax(drawn[0]), drawn[1]
        assert aurc(probs, labels) == pytest.approx(slow_aurc(probs, labels), abs=1e-12)
        errors = int((probs.argmax(axis=1) != labels).sum())
        best = sum(j / (len(labels) - errors + j) for j in range(1, errors + 1)) / len(labels)
        assert eaurc(probs, labels) == pytest.approx(slow_aurc(probs, labels) - best, abs=1e-12)

    @given(logits_and_labels())
    def test_report(self, drawn):
        logits, labels = drawn
        probs = softmax(logits)
        report = classification_report(logits, labels)
        assert list(report) == ["top1", "top5", "nll", "ece", "aurc"]
        assert all(type(value) is float for value in report.values())
        assert report["top1"] == slow_topk(logits, labels, 1)
        assert report["top5"] == slow_topk(logits, labels, min(5, logits.shape[1]))
        assert report["nll"] == pytest.approx(nll(probs, labels), abs=1e-12)


class TestAlways:
    @given(logits_and_labels())
    def test_ranges(self, drawn):
        probs, labels = softmax(drawn[0]), drawn[1]
        assert 0.0 <= ece(probs, labels) <= 1.0 + 1e-12
        assert 0.0 <= aurc(probs, labels) <= 1.0
        assert eaurc(probs, labels) >= 0.0
        assert nll(probs, labels) >= -1e-12

    @given(distinct_confidences())
    def test_no_error_no_risk(self, drawn):
        probs, labels = binary(drawn[0], np.ones_like(drawn[1]))
        assert aurc(probs, labels) == 0.0

    @given(distinct_confidences(), st.randoms(use_true_random=False))
    def test_aurc_ignores_the_order_of_samples_without_ties(self, drawn, random):
        probs, labels = binary(*drawn)
        order = random.sample(range(len(labels)), len(labels))
        assert aurc(probs[order], labels[order]) == aurc(probs, labels)

    @given(distinct_confidences(), st.floats(0.2, 5.0))
    def test_aurc_ignores_monotone_maps_of_confidence(self, drawn, power):
        confidence, right = drawn
        mapped = 0.5 + 0.5 * (2 * confidence - 1) ** power
        assert aurc(*binary(mapped, right)) == aurc(*binary(*drawn))

    @pytest.mark.parametrize("errors", [0, 1, 3, 6])
    def test_aurc_of_random_orders_is_the_error_rate_on_average(self, errors):
        confidence = np.linspace(0.9, 0.6, 6)
        orders = [
            aurc(*binary(confidence, np.isin(np.arange(6), wrong, invert=True)))
            for wrong in itertools.combinations(range(6), errors)
        ]
        assert np.mean(orders) == pytest.approx(errors / 6, rel=1e-12)

    def test_calibrated_predictions_have_nearly_no_ece(self):
        rng = np.random.default_rng(0)
        confidence = rng.uniform(0.5, 1.0, size=200_000)
        probs, labels = binary(confidence, rng.random(200_000) < confidence)
        assert ece(probs, labels) < 0.01
        assert ece(*binary(np.full(1000, 0.95), rng.random(1000) < 0.5)) > 0.4

    def test_half_precision_is_widened_first(self):
        rng = np.random.default_rng(0)
        logits, labels = rng.normal(size=(500, 10)).astype(np.float16), rng.integers(0, 10, size=500)
        assert classification_report(logits, labels) == classification_report(logits.astype(np.float64), labels)

    def test_far_logits_do_not_overflow(self):
        report = classification_report(np.array([[1e4, -1e4], [1e4, -1e4]]), np.array([0, 1]))
        assert report["nll"] == pytest.approx(1e4)

    def test_a_row_of_far_logits_leaves_the_others_alone(self):
        report = classification_report(np.array([[1e4, 0.0], [0.0, 0.0]]), np.array([0, 1]))
        assert report["nll"] == pytest.approx(math.log(2) / 2)


class TestRefusals:
    PROBS = np.full((3, 4), 0.25)
    LABELS = np.array([0, 1, 2])

    @pytest.mark.parametrize("metric", [*METRICS, topk_accuracy, classification_report])
    def test_shapes_and_labels(self, metric):
        with pytest.raises(ValueError, match=r"must be \[samples, classes\] .*got shape \(4,\)"):
            metric(self.PROBS[0], self.LABELS)
        with pytest.raises(ValueError, match=r"got shape \(0, 4\)"):
            metric(self.PROBS[:0], self.LABELS[:0])
        with pytest.raises(
            ValueError, match=r"labels must have shape \(3,\), as many as rows of (probs|scores|logits), got \(2,\)"
        ):
            metric(self.PROBS, self.LABELS[:2])
        with pytest.raises(TypeError, match="labels must be integers, got float64"):
            metric(self.PROBS, self.LABELS / 1.0)
        with pytest.raises(ValueError, match=r"labels\[1\] must be 0 to .*, got 4"):
            metric(self.PROBS, np.array([0, 4, 9]))
        with pytest.raises(ValueError, match=r"labels\[2\] must be 0 to .*, got -1"):
            metric(self.PROBS, np.array([0, 3, -1]))

    @pytest.mark.parametrize("metric", [*METRICS, topk_accuracy, classification_report])
    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_non_finite(self, metric, value):
        probs = self.PROBS.copy()
        probs[1, 2] = value
        with pytest.raises(ValueError, match=r"\[1, 2\] must be finite, got -?(nan|inf)"):
            metric(probs, self.LABELS)

    @pytest.mark.parametrize("metric", METRICS)
    def test_what_is_no_probability(self, metric):
        with pytest.raises(ValueError, match=r"probs\[0\] must sum to 1, got 1.004"):
            metric(self.PROBS * 1.004, self.LABELS)
        with pytest.raises(ValueError, match=r"probs\[0, 1\] must be at least 0, got -0.5"):
            metric(np.tile([0.0, -0.5, 0.5, 1.0], (3, 1)), self.LABELS)
        metric(self.PROBS * 1.0009, self.LABELS)

    @pytest.mark.parametrize("metric", METRICS)
    def test_one_row_of_logits_among_probabilities(self, metric):
        probs = self.PROBS.copy()
        probs[1] = [4.0, 0.0, 0.0, 0.0]
        with pytest.raises(ValueError, match=r"probs\[1\] must sum to 1, got 4"):
            metric(probs, self.LABELS)

    @pytest.mark.parametrize("metric", METRICS)
    def test_probabilities_of_bfloat16_are_let_in(self, metric):
        """Where the softmax itself was taken in it."""
        logits = torch.randn(2000, 10, generator=torch.Generator().manual_seed(0)).bfloat16()
        probs = logits.softmax(dim=1).float().numpy()
        assert np.abs(probs.sum(axis=1) - 1).max() > 2.5e-3
        metric(probs, np.arange(2000) % 10)

    @pytest.mark.parametrize("k", [0, 5])
    def test_k(self, k):
        with pytest.raises(ValueError, match=f"k must be 1 to 4, the number of classes, got {k}"):
            topk_accuracy(self.PROBS, self.LABELS, k)

    def test_bins(self):
        with pytest.raises(ValueError, match="bins must be at least 1, got 0"):
            ece(self.PROBS, self.LABELS, bins=0)
