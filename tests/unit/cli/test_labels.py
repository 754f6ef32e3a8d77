"""``vista labels`` speaks of samples by their places in the data as the user has it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from vista.runs.folder import RunFolder

from .conftest import Vista

COUNT = 90
TINY = ("--network", "mlp", "--epochs", "3", "--batch-size", "16", "--lr", "0.05", "--device", "cpu", "--quiet")


@pytest.fixture
def given(tmp_path: Path) -> np.ndarray:
    """Labels of ``own.npz``, which has no test samples of its own and whose labels come in no order."""
    generator = np.random.default_rng(7)
    labels = generator.permutation(np.arange(COUNT) % 3)
    features = np.eye(3)[labels] + 0.1 * generator.normal(size=(COUNT, 3))
    np.savez("own.npz", x=features, y=labels)
    return labels


def test_ids_are_places_in_a_file_that_has_no_test_samples(vista: Vista, given: np.ndarray) -> None:
    assert vista("train", "--data", "npz:own.npz", "--method", "vista", "--out", "run", *TINY).code == 0
    split = RunFolder.open("run").split()
    said = vista("labels", "run", "--top", str(len(split.train)), "--json")
    listed = {row["id"]: row["given"] for row in json.loads(said.out)["suspects"]}
    assert sorted(listed) == split.train.tolist()
    assert all(given[place] == label for place, label in listed.items())


def test_a_label_file_names_samples_by_the_same_ids(vista: Vista, given: np.ndarray) -> None:
    """What ``--clean`` writes has every sample, and changes those alone that were listed."""
    assert vista("train", "--data", "npz:own.npz", "--method", "vista", "--out", "run", *TINY).code == 0
    listed = json.loads(vista("labels", "run", "--top", "5", "--clean", "clean.csv", "--json").out)["suspects"]
    with open("clean.csv", newline="") as file:
        clean = {int(row["id"]): int(row["label"]) for row in csv.DictReader(file)}
    assert sorted(clean) == list(range(COUNT))
    assert {place for place in clean if clean[place] != given[place]} == {row["id"] for row in listed}
    words = ("--data", "npz:own.npz", "--noise", "file:clean.csv", "--method", "ce", "--out", "again", *TINY)
    assert vista("train", *words).code == 0
    assert RunFolder.open("again").labels().given.tolist() == [clean[place] for place in range(COUNT)]


def test_noise_is_drawn_for_the_samples_that_are_not_tested(vista: Vista, given: np.ndarray) -> None:
    assert vista("train", "--data", "npz:own.npz", "--noise", "symmetric:0.5", "--method", "ce", "--out", "run", *TINY)
    folder = RunFolder.open("run")
    labels, split = folder.labels(), folder.split()
    trained = np.sort(np.concatenate([split.train, split.val]))
    assert np.array_equal(labels.true, given)
    assert (labels.given != given)[trained].sum() == len(trained) // 2
    assert not np.delete(labels.given != given, trained).any()
    assert folder.data().noise_rate == 0.5


def test_lists_and_labels_do_not_overwrite_the_run(vista: Vista, trained: Path) -> None:
    said = vista("labels", "trained", "--clean", "trained/config.json")
    assert said.code == 2
    assert "clean must be another file, got trained/config.json: it is part of the run" in said.err
    Path("file").touch()
    assert "out must be a folder, got the file file" in vista("labels", "trained", "--out", "file").err
    assert vista("labels", "trained", "--out", "file").code == 2
    for clean, why in (
        ("labels.npz", "clean must end in .csv, got labels.npz"),
        ("trained/suspected_labels.csv", "the list of suspected labels is written there"),
    ):
        said = vista("labels", "trained", "--clean", clean)
        assert said.code == 2
        assert why in said.err
    assert vista("labels", "trained", "--clean", "trained/labels.csv").code == 0
    assert vista("labels", "trained", "--clean", "trained/labels.csv").code == 0
