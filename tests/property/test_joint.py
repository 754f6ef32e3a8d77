"""Properties of the confident joint and of the estimated number of wrong labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from vista import find_label_issues
from vista.analysis import joint as joints

Case = tuple[np.ndarray, np.ndarray]


@st.composite
def predictions(draw: st.DrawFn) -> Case:
    """Probabilities ``[n, K]`` and labels of at least two classes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    classes = draw(st.integers(2, 6))
    count = draw(st.integers(classes, 80))
    probs = rng.dirichlet(np.full(classes, draw(st.sampled_from([0.1, 1.0, 5.0]))), count)
    labels = rng.integers(0, classes, count)
    labels[:2] = 0, 1
    return probs, labels


@settings(deadline=None, max_examples=80)
@for_all(predictions())
def test_the_joint_sums_to_the_samples_of_each_class(case: Case) -> None:
    probs, labels = case
    found = find_label_issues(labels, probs)
    sizes = np.bincount(labels, minlength=probs.shape[1])
    assert found.joint.sum(axis=1) == pytest.approx(sizes)
    assert (found.joint >= 0).all()
    low, high = found.interval
    assert 0 <= low <= found.estimated <= high <= len(labels)
    assert found.estimated == round(joints.count_wrong(found.joint))
    assert (np.diff(found.score) <= 0).all()
    assert (found.suggested != found.given).all()


@settings(deadline=None, max_examples=60)
@for_all(predictions(), st.integers(0, 1000))
def test_the_order_of_samples_and_classes_does_not_matter(case: Case, seed: int) -> None:
    probs, labels = case
    rng = np.random.default_rng(seed)
    rows, classes = rng.permutation(len(labels)), rng.permutation(probs.shape[1])
    before = find_label_issues(labels, probs)
    after = find_label_issues(np.argsort(classes)[labels[rows]], probs[rows][:, classes], ids=rows)
    assert after.joint == pytest.approx(before.joint[classes][:, classes])
    assert after.interval == before.interval
    assert after.score == pytest.approx(before.score)
    assert set(after.ids) == set(before.ids)


@settings(deadline=None, max_examples=40)
@for_all(st.integers(2, 8), st.integers(1, 40), st.floats(0.6, 1.0))
def test_perfect_labels_have_no_issues(classes: int, each: int, confidence: float) -> None:
    labels = np.repeat(np.arange(classes), each)
    probs = np.full((len(labels), classes), (1 - confidence) / max(classes - 1, 1))
    probs[np.arange(len(labels)), labels] = confidence
    found = find_label_issues(labels, probs)
    assert found.estimated == 0
    assert found.interval[0] == 0
    assert not found.is_doubted.any()
    assert found.noise_rate == pytest.approx(0)


@settings(deadline=None, max_examples=60)
@for_all(predictions(), st.floats(0.01, 0.99))
def test_a_rescaled_joint_has_the_wanted_number_of_wrong_labels(case: Case, share: float) -> None:
    probs, labels = case
    joint = find_label_issues(labels, probs).joint
    sizes = joint.sum(axis=1)
    most = sizes[sizes - np.diag(joint) > 1e-9].sum()
    least = sizes[(np.diag(joint) < 1e-9) & (sizes > 0)].sum()  # rows without correct labels stay
    wanted = least + share * (most - least)
    scaled = joints.rescale_joint(joint, wanted)
    assert scaled.sum(axis=1) == pytest.approx(sizes)
    assert joints.count_wrong(scaled) == pytest.approx(wanted, rel=1e-6, abs=1e-6)
