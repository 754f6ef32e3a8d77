"""Splitting a validation set off a training set."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from vista import indexed
from vista.data.holdout import holdout


def test_each_part_has_its_own_labels_in_order():
    labels = np.repeat([0, 1, 2, -1], 10)
    dataset = TensorDataset(torch.arange(40), torch.from_numpy(labels))
    train, val, train_labels, val_labels = holdout(dataset, labels, 0.2, seed=3)
    assert [int(y) for _, y in val] == val_labels.tolist() == [0, 0, 1, 1, 2, 2]
    for x, y, i in indexed(train):
        assert int(y) == train_labels[i] == labels[int(x)]
    assert (train_labels == -1).sum() == 10  # unlabelled samples stay in the training part
    assert sorted([int(x) for x, _ in train] + [int(x) for x, _ in val]) == list(range(40))
    assert holdout(dataset, labels, 0.2, seed=4).val.indices != val.indices


def test_labels_of_another_length_are_rejected():
    with pytest.raises(ValueError, match="labels must have one entry for each of the 4 samples, got 3"):
        holdout(range(4), [0, 1, 2], 0.5)


@pytest.mark.parametrize(
    ("dataset", "labels", "message"),
    [
        (
            iter([]),
            [0, 1],
            r"holdout\(\) needs a map-style dataset \(__getitem__ and __len__\), got list_iterator$",
        ),
        (range(2), iter([0, 1]), "labels must be whole numbers, got a list_iterator without plain numbers"),
        (range(2), None, "labels must be whole numbers, got a NoneType without plain numbers"),
        (range(2), [0.0, 1.0], r"labels must be whole numbers \(torch.long\), got torch.float64"),
    ],
)
def test_iterables_and_labels_that_are_not_integers_are_rejected(dataset, labels, message):
    with pytest.raises(TypeError, match=message):
        holdout(dataset, labels, 0.5)
