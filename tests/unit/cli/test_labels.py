"""``vista labels`` names samples by their positions in the original data."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from vista.analysis.suspects import of_run
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
    said = vista("labels", "run", "--top", str(COUNT), "--json")
    listed = {row["id"]: row["given"] for row in json.loads(said.out)["suspects"]}
    assert sorted(listed) == list(range(COUNT)), "training, validation and held-out samples"
    assert all(given[place] == label for place, label in listed.items())


def test_a_label_file_names_samples_by_the_same_ids(vista: Vista, given: np.ndarray) -> None:
    """What ``--clean`` writes has every sample, and changes only listed training samples."""
    given[:5] = (given[:5] + 1) % 3  # wrong, so that other classes are more likely
    np.savez("own.npz", x=np.load("own.npz")["x"], y=given)
    words = [word if word != "3" else "12" for word in TINY]
    assert vista("train", "--data", "npz:own.npz", "--method", "vista", "--out", "run", *words).code == 0
    listed = json.loads(vista("labels", "run", "--top", "5", "--clean", "clean.csv", "--json").out)["suspects"]
    with open("clean.csv", newline="") as file:
        clean = {int(row["id"]): int(row["label"]) for row in csv.DictReader(file)}
    assert sorted(clean) == list(range(COUNT))
    changed = {row["id"] for row in listed} & set(RunFolder.open("run").split().train.tolist())
    assert {place for place in clean if clean[place] != given[place]} == changed
    words = ("--data", "npz:own.npz", "--noise", "file:clean.csv", "--method", "ce", "--out", "again", *TINY)
    assert vista("train", *words).code == 0
    assert RunFolder.open("again").labels().given.tolist() == [clean[place] for place in range(COUNT)]


@pytest.fixture
def unsure(vista: Vista, tmp_path: Path) -> RunFolder:
    """A run on a few hardly separable samples without a test set of their own: its estimate has a caution."""
    generator = np.random.default_rng(5)
    labels = generator.permutation(np.arange(COUNT) % 3)
    np.savez("own.npz", x=np.eye(3)[labels] + generator.normal(size=(COUNT, 3)), y=labels)
    words = ("--network", "mlp", "--epochs", "40", "--batch-size", "8", "--lr", "0.1", "--device", "cpu", "--quiet")
    assert vista("train", "--data", "npz:own.npz", "--method", "ce", "--out", "run", *words).code == 0
    return RunFolder.open("run")


def labels_in(path: str) -> np.ndarray:
    with open(path, newline="") as file:
        return np.array([int(row["label"]) for row in csv.DictReader(file)])


def held_out(folder: RunFolder) -> np.ndarray:
    split = folder.split()
    return np.setdiff1d(np.arange(COUNT), np.concatenate([split.train, split.val]))


@pytest.mark.filterwarnings("ignore:.* most suspect samples keep their label")
def test_suggestions_change_training_labels_only_and_are_few_after_a_caution(vista: Vista, unsure: RunFolder) -> None:
    """Validation or test labels that the run suggests itself would flatter every network that is judged by them."""
    found, split = of_run(unsure), unsure.split()
    low = found.interval[0]
    assert found.caution is not None
    assert 0 < low < found.estimated
    out = " ".join(vista("labels", "run", "--clean", "clean.csv").out.split())
    changed = np.flatnonzero(labels_in("clean.csv") != unsure.labels().given)
    first = found.ids[:low]
    assert sorted(changed) == sorted(np.intersect1d(first[found.is_doubted[:low]], split.train))
    validated, tested = (len(np.intersect1d(first, own)) for own in (split.val, held_out(unsure)))
    assert validated > 0
    assert tested > 0
    assert (
        f"Corrected {len(changed)} of the {low} most suspect labels (the lower end of the interval, because of the "
        f"caution; --top K takes another number); {validated} validation labels and {tested} test labels among them "
        "stay as given: suggestions of the same run would flatter it. `vista review` decides about them" in out
    )
    said = json.loads(vista("labels", "run", "--top", str(COUNT), "--clean", "clean.csv", "--json").out)
    changed = np.flatnonzero(labels_in("clean.csv") != unsure.labels().given)
    assert sorted(changed) == sorted(np.intersect1d(found.ids[found.is_doubted], split.train))
    assert (said["clean"], said["changed"]) == ("clean.csv", len(changed))
    assert (said["validation_labels_kept"], said["test_labels_kept"]) == (len(split.val), len(held_out(unsure)))
    assert vista("labels", "run", "--top", str(COUNT), "--clean", "clean.csv", "--drop").code == 0
    assert sorted(np.flatnonzero(labels_in("clean.csv") < 0)) == sorted(split.train)


@pytest.mark.filterwarnings("ignore:.* most suspect samples keep their label")
def test_what_follows_suggestions_keeps_the_split(vista: Vista, unsure: RunFolder) -> None:
    said = vista("labels", "run", "--clean", "clean.csv")
    following = said.out.split("Next: vista ")[1].split()
    assert following[:3] == ["train", "--data", "npz:own.npz"]
    assert following[-6:] == ["--labels", "clean.csv", "--split-from", "run", "--out", "run-corrected"]
    assert vista(*following, "--device", "cpu", "--quiet").code == 0
    again = RunFolder.open("run-corrected")
    assert np.array_equal(held_out(again), held_out(unsure))
    assert json.loads(vista("compare", "run", "run-corrected", "--device", "cpu", "--json").out)["changed"] == 0


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


def test_held_out_samples_of_the_same_file_are_judged_after_every_method(vista: Vista, given: np.ndarray) -> None:
    for method in ("vista", "ce"):
        assert vista("train", "--data", "npz:own.npz", "--method", method, "--out", method, *TINY).code == 0
        said = json.loads(vista("labels", method, "--top", str(COUNT), "--json").out)
        assert (said["samples"], said["unjudged"]) == (COUNT, {})
        assert {row["evidence"] for row in said["suspects"]} == {"training predictions", "held out"}
        assert said["interval"][0] <= said["estimated"] <= said["interval"][1]
        out = " ".join(vista("labels", method).out.split())
        assert f"Estimated wrong labels: {said['estimated']} of {COUNT} (95 % interval" in out
        assert "Not judged: none" in out


@pytest.fixture
def predicted() -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that are right everywhere, and labels of which the first 20 of 200 are wrong."""
    true = np.random.default_rng(0).integers(0, 3, 200)
    labels = np.where(np.arange(200) < 20, (true + 1) % 3, true)
    return 0.1 + 0.7 * np.eye(3)[true], labels


@pytest.mark.parametrize("kind", ["npy", "npz", "one array", "csv", "csv with names"])
def test_probabilities_of_any_model(vista: Vista, predicted: tuple[np.ndarray, np.ndarray], kind: str) -> None:
    probs, labels = predicted
    if kind == "npy":
        np.save("p.npy", probs)
        np.save("l.npy", labels)
    elif kind == "npz":
        np.savez("p.npz", probs=probs, other=labels)
        np.savez("l.npz", labels=labels, other=probs)
    elif kind == "one array":
        np.savez("p.npz", anything=probs)
        np.savez("l.npz", anything=labels)
    else:
        names = np.array(["cat", "dog", "cow"] if "names" in kind else ["0", "1", "2"])
        Path("p.csv").write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in probs.tolist())]))
        Path("l.csv").write_text("\n".join(["id,label", *(f"{k},{name}" for k, name in enumerate(names[labels]))]))
    ending = {"one array": "npz"}.get(kind, kind[:3])
    said = vista("labels", "--probs", f"p.{ending}", "--labels", f"l.{ending}", "--clean", "clean.csv", "--json")
    assert said.code == 0, said.err
    listed = json.loads(said.out)
    assert (listed["samples"], listed["estimated"]) == (200, 20)
    assert listed["interval"][0] <= 20 <= listed["interval"][1]
    assert {row["id"] for row in listed["suspects"]} == set(range(20))
    assert Path("suspected_labels.csv").exists()
    with open("clean.csv", newline="") as file:
        written = [row["label"] for row in csv.DictReader(file)]
    classes = ["cat", "dog", "cow"] if "names" in kind else ["0", "1", "2"]
    assert written == [classes[label] for label in probs.argmax(axis=1)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "labels needs either RUN, or both --probs FILE and --labels FILE"),
        (("--probs", "p.npy"), "labels needs either RUN, or both --probs FILE and --labels FILE"),
        (("run", "--probs", "p.npy", "--labels", "l.npy"), "labels needs either RUN"),
        (("--probs", "no.npy", "--labels", "l.npy"), "no.npy does not exist"),
        (("--probs", "p.txt", "--labels", "l.npy"), "p.txt must end in .npy, .npz, .csv"),
        (("--probs", "two.npz", "--labels", "l.npy"), "two.npz must have an array 'pred_probs' or 'probs', got a, b"),
        (("--probs", "p.npy", "--labels", "p.npy"), "p.npy must hold integer labels [n], got float64"),
        (("--probs", "p.npy", "--labels", "short.npy"), "labels must be integers [200], got int64 of shape (3,)"),
        (("--probs", "words.csv", "--labels", "l.npy"), "words.csv must have a probability in every cell"),
        (("--probs", "p.npy", "--labels", "words.csv"), "words.csv must have a column 'label', got a, b"),
        (("--probs", "p.npy", "--labels", "names.csv"), "line 2: label must be a class number or name, got 'cat'"),
        (("--probs", "p.npy", "--labels", "ids.csv"), "id must number the rows from 0, got '5' in row 0"),
    ],
)
def test_unusable_probabilities_and_labels_are_rejected(
    vista: Vista, predicted: tuple[np.ndarray, np.ndarray], words: tuple[str, ...], message: str
) -> None:
    np.save("p.npy", predicted[0])
    np.save("l.npy", predicted[1])
    np.save("short.npy", predicted[1][:3])
    np.savez("two.npz", a=predicted[0], b=predicted[0])
    Path("words.csv").write_text("a,b\nx,y\n")
    Path("names.csv").write_text("label\ncat\n")
    Path("ids.csv").write_text("id,label\n5,0\n")
    said = vista("labels", *words)
    assert said.code == 2
    assert message in said.err


def test_folds_judge_every_sample_by_a_network_that_was_not_trained_on_it(vista: Vista, given: np.ndarray) -> None:
    """The copies train on the labels of the run, noise included, and are continued, not repeated."""
    words = ("--data", "npz:own.npz", "--noise", "symmetric:0.2", "--method", "ce", "--out", "run", *TINY)
    assert vista("train", *words).code == 0
    of_run = RunFolder.open("run").labels().given
    said = vista("labels", "run", "--folds", "3", "--top", str(COUNT), "--json")
    assert said.code == 0, said.err
    listed = json.loads(said.out)["suspects"]
    assert sorted(row["id"] for row in listed) == list(range(COUNT))
    assert {row["evidence"] for row in listed} == {"out of fold"}
    assert all(of_run[row["id"]] == row["given"] for row in listed)
    trained = [np.concatenate([run.split().train, run.split().val]) for run in RunFolder.open("run").folds()]
    assert np.array_equal(np.bincount(np.concatenate(trained)), np.full(COUNT, 2)), "each is left out once"
    assert not any((run.labels().given != of_run).any() for run in RunFolder.open("run").folds())
    wrong = {row["id"] for row in listed if of_run[row["id"]] != given[row["id"]]}
    assert {row["id"] for row in listed[: len(wrong)]} == wrong, "the features are easy"
    times = [run.path.stat().st_mtime_ns for run in RunFolder.open("run").folds()]
    assert "out of fold 90" in vista("labels", "run", "--folds", "3").out
    assert times == [run.path.stat().st_mtime_ns for run in RunFolder.open("run").folds()]
    assert [row["run"] for row in json.loads(vista("runs", ".", "--json").out)["runs"]] == ["run"]
    (RunFolder.open("run").folds()[1].path / "metrics.json").unlink()
    assert "out of fold" not in vista("labels", "run").out, "an unfinished cross-validation does not count"
    assert vista("runs", "delete", "run", "--yes").code == 0


def test_a_single_fold_is_rejected(vista: Vista, trained: Path) -> None:
    said = vista("labels", "trained", "--folds", "1")
    assert (said.code, "folds must be 2 to 50, got 1" in said.err) == (2, True)
