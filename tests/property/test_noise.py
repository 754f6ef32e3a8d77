from decimal import Decimal

import numpy as np
from hypothesis import given as drawn
from hypothesis import strategies as st

from vista import noise
from vista.split import stratified

SEEDS = st.integers(0, 2**63 - 1)


@st.composite
def labelled(draw, smallest=-1):
    classes = draw(st.integers(2, 7))
    labels = draw(st.lists(st.integers(smallest, classes - 1), min_size=1, max_size=80))
    return np.array(labels, dtype=np.int64), classes


RATES = st.decimals(0, 1, places=3)


@drawn(labelled(smallest=0), RATES, SEEDS)
def test_symmetric_changes_exactly_that_many_to_other_classes(data, rate, seed):
    labels, classes = data
    made = noise.symmetric(labels, classes, float(rate), seed)
    assert (made != labels).sum() == int(rate * len(labels))
    assert made.min() >= 0
    assert made.max() < classes
    assert np.array_equal(made, noise.symmetric(labels, classes, float(rate), seed))


@drawn(labelled(smallest=0), RATES, SEEDS)
def test_asymmetric_changes_exactly_that_many_by_the_mapping(data, rate, seed):
    labels, classes = data
    mapping = noise.cycle_mapping(classes)
    made = noise.asymmetric(labels, classes, rate, seed, mapping)
    changed = made != labels
    assert changed.sum() == int(Decimal(rate) * len(labels))
    assert np.array_equal(made[changed], mapping[labels[changed]])


@drawn(st.lists(st.integers(0, 4), min_size=2, max_size=30))
def test_a_cycle_is_a_bijection_inside_groups_without_fixed_points(groups):
    groups = groups + groups  # no class is alone in its group
    mapping = noise.cycle_mapping(len(groups), groups)
    assert sorted(mapping.tolist()) == list(range(len(groups)))
    assert (mapping != np.arange(len(groups))).all()
    assert np.array_equal(np.array(groups)[mapping], groups)


@drawn(labelled(), st.floats(0.01, 0.99), SEEDS)
def test_a_split_is_complete_disjoint_and_stratified(data, fraction, seed):
    labels, classes = data
    labelled_count = int((labels >= 0).sum())
    wanted = round(fraction * labelled_count)
    if not 0 < wanted < labelled_count:
        return
    split = stratified(labels, fraction, seed)
    assert len(split.val) == wanted
    assert np.array_equal(np.sort(np.concatenate([split.train, split.val])), np.arange(len(labels)))
    assert (np.diff(split.train) > 0).all()
    assert (np.diff(split.val) > 0).all()
    assert (labels[split.val] >= 0).all()
    for label in range(classes):
        quota = wanted * int((labels == label).sum()) / labelled_count
        assert abs(int((labels[split.val] == label).sum()) - quota) < 1
    assert split.hash == stratified(labels, fraction, seed).hash


@drawn(st.lists(st.one_of(st.just(1), st.integers(1, 30)), min_size=2, max_size=8), st.data())
def test_a_class_is_rounded_up_to_its_last_sample_only_after_those_that_keep_one(sizes, data):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    wanted = data.draw(st.integers(1, len(labels) - 1))
    held = np.bincount(labels[stratified(labels, wanted, 0).val], minlength=len(sizes))
    exact = np.array(sizes) * wanted
    rounded_down = (exact % len(labels) > 0) & (held * len(labels) < exact)
    if (held == sizes).any():
        assert (held[rounded_down] + 1 == np.array(sizes)[rounded_down]).all()
