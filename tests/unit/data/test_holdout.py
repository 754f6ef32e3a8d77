"""Splitting a validation set off a training set."""

import random

import numpy as np
import pytest
import torch
from PIL import Image
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


class Augmented(torch.utils.data.Dataset):
    """Samples to which ``noise`` adds something."""

    def __init__(self, noise):
        self.noise = noise

    def __len__(self):
        return 40

    def __getitem__(self, index):
        x = torch.full((3,), float(index))
        x[0] = float("nan")
        return {"x": self.noise(x), "name": object()}


@pytest.mark.parametrize("noise", [
    lambda x: x + torch.rand(3), lambda x: (x + torch.rand(3)).numpy(),
    lambda x: Image.fromarray((x[1:] + 99 * torch.rand(2)).numpy()[None]), lambda x: random.random(),
])  # fmt: skip
def test_random_augmentation_of_held_out_samples_is_reported(noise):
    labels = np.arange(40) % 2
    augmented, plain = Augmented(noise), Augmented(lambda x: x)
    states = torch.get_rng_state(), random.getstate()
    with pytest.warns(UserWarning, match=r"augmented at random \(sample \d+ differs .* pass val_dataset="):
        holdout(augmented, labels, 0.2)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    train, val, _, val_labels = holdout(augmented, labels, 0.2, val_dataset=plain)  # without a warning
    assert train.dataset is augmented
    assert val.dataset is plain
    assert [int(item["x"][1]) % 2 for item in val] == val_labels.tolist()
    with pytest.raises(ValueError, match=r"val_dataset must hold the same 40 samples as dataset, .* got 3"):
        holdout(augmented, labels, 0.2, val_dataset=range(3))
