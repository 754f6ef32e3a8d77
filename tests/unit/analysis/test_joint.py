"""The confident joint verified by hand, and how a run's samples are judged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_runs import write_run

from vista.analysis import joint, suspects
from vista.runs.folder import RunFolder
from vista.runs.predictions import Predictions

PROBS = np.array([[0.8, 0.2], [0.6, 0.4], [0.1, 0.9], [0.3, 0.7]])
GIVEN = np.array([0, 0, 0, 1])


def wrong(probs: np.ndarray, given: np.ndarray) -> float:
    counts = joint.confident_joint(probs, given)
    return joint.count_wrong(joint.calibrate_joint(counts, np.bincount(given, minlength=probs.shape[1])))


def test_thresholds_are_mean_probabilities_of_the_given_class() -> None:
    assert joint.thresholds(PROBS, GIVEN) == pytest.approx([0.5, 0.7])
    assert joint.thresholds(PROBS, np.zeros(4, np.int64)).tolist() == [pytest.approx(0.45), np.inf]


def test_the_joint_is_scaled_to_each_class() -> None:
    # Of the three labelled 0, samples 0 and 1 (class 0) and 2 (class 1) reach a threshold: a third is elsewhere.
    assert wrong(PROBS, GIVEN) == pytest.approx(1)
    # One-hot probabilities: the threshold of class 1 is 1, which the fourth sample reaches exactly.
    assert wrong(np.eye(2)[[0, 0, 0, 1, 1, 1]], np.array([0, 0, 0, 0, 1, 1])) == pytest.approx(1)
    # The only sample labelled 1 reaches both thresholds, and class 0 is more likely.
    assert wrong(np.array([[0.8, 0.2], [0.8, 0.2], [0.9, 0.1]]), np.array([0, 0, 1])) == pytest.approx(1)


@pytest.mark.parametrize("seed", range(5))
def test_the_estimate_equals_a_count_sample_by_sample(seed: int) -> None:
    generator = np.random.default_rng(seed)
    probs, given = generator.dirichlet([0.5, 1.0, 2.0], 60), generator.integers(0, 3, 60)
    usual = [np.mean([row[k] for row, label in zip(probs, given, strict=True) if label == k]) for k in range(3)]
    elsewhere, confident = np.zeros(3), np.zeros(3)
    for row, label in zip(probs, given, strict=True):
        reached = [k for k in range(3) if row[k] >= usual[k]]
        confident[label] += bool(reached)
        elsewhere[label] += bool(reached) and max(reached, key=lambda k: row[k]) != label
    expected = sum(np.sum(given == k) * elsewhere[k] / confident[k] for k in range(3))
    assert wrong(probs, given) == pytest.approx(expected)


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.4])
def test_the_interval_covers_the_share_of_wrong_labels(rate: float) -> None:
    """Confident predictions that know nothing of the labels: in at least nine of ten cases."""
    covered = 0
    for seed in range(40):
        generator = np.random.default_rng(seed)
        true = generator.integers(0, 5, 400)
        flipped = generator.random(400) < rate
        given = np.where(flipped, (true + generator.integers(1, 5, 400)) % 5, true)
        probs = 0.7 * np.eye(5)[true] + 0.3 * generator.dirichlet(np.ones(5), 400)
        found = joint.estimate_noise(probs, given)
        covered += found.low <= flipped.mean() <= found.high
    assert covered >= 36


SAMPLES, VALIDATION = 300, 60


def judged_run(
    path: Path, *, teacher: bool, noise: str = "symmetric:0.4", gap: float = 0.0, churn: float = 0.0
) -> RunFolder:
    """A run that predicts the true labels; its last training pass predicts the given label of a share ``gap``."""
    folder = RunFolder(write_run(path, method="vista" if teacher else "ce", samples=SAMPLES, validation=VALIDATION,
                                 noise=noise, teacher=teacher))  # fmt: skip
    labels, split = folder.labels(), folder.split()
    generator = np.random.default_rng(5)
    true = labels.true[split.train]
    last = np.where(generator.random(len(true)) < gap, labels.given[split.train], true)
    before = np.where(generator.random(len(true)) < churn, (last + 1) % 3, last)
    mean = 0.1 + 0.7 * np.eye(3)[true]
    logits = 4 * np.eye(3, dtype=np.float32)[labels.true[split.val]]
    classes = np.stack([before, last]).astype(np.int8)
    Predictions(classes, mean.astype(np.float16), {"best.val": logits, "last.val": logits}).save(path)
    return folder


@pytest.mark.parametrize("teacher", [False, True])
def test_every_sample_is_judged_and_states_its_evidence(tmp_path: Path, teacher: bool) -> None:
    folder = judged_run(tmp_path / "run", teacher=teacher)
    found = suspects.of_run(folder)
    split = folder.split()
    assert sorted(found.ids) == list(range(SAMPLES))
    assert found.unjudged == {}
    assert found.evidence is not None
    kinds = dict(zip(found.ids.tolist(), found.evidence.tolist(), strict=True))
    assert {kinds[k] for k in split.train.tolist()} == {"training predictions"}, "rather than a teacher"
    assert {kinds[k] for k in split.val.tolist()} == {"held out"}
    assert found.quality()["auroc"] == 1.0
    low, high = found.interval
    assert low <= int((found.given != found.true).sum()) <= high
    assert found.caution is None


def test_samples_without_label_or_prediction_are_counted(tmp_path: Path) -> None:
    folder = judged_run(tmp_path / "run", teacher=False)
    kept = folder.predictions()
    kept.mean[:7] = 0
    kept.save(folder.path)
    found = suspects.of_run(folder)
    assert found.unjudged == {"no prediction": 7}
    assert len(found) == SAMPLES - 7
    (folder.path / "predictions.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no predictions\.safetensors"):
        suspects.of_run(folder)


def test_a_run_with_a_teacher_alone_leaves_validation_samples_unjudged(tmp_path: Path) -> None:
    folder = RunFolder(write_run(tmp_path / "run", method="vista", teacher=True))
    found = suspects.of_run(folder)
    assert found.unjudged == {"no prediction": 15}
    assert found.caution is not None
    assert "likely too low" in found.caution


@pytest.mark.parametrize(
    ("gap", "churn", "word"), [(0.0, 0.0, None), (0.9, 0.0, "overtrained"), (0.0, 0.3, "undertrained")]
)
def test_memorised_labels_and_unsettled_predictions_are_reported(
    tmp_path: Path, gap: float, churn: float, word: str | None
) -> None:
    caution = suspects.of_run(judged_run(tmp_path / "run", teacher=False, gap=gap, churn=churn)).caution
    assert (caution is None) if word is None else (caution is not None and word in caution)


@pytest.mark.parametrize(
    ("gap", "churn", "remedy"),
    [
        (0.9, 0.0, "`vista labels RUN --folds 5` estimates it from all samples."),
        (0.0, 0.3, "a better network, such as a pretrained one, makes fewer errors."),
    ],
)
def test_the_remedy_of_a_caution_is_not_another_number_of_epochs(
    tmp_path: Path, gap: float, churn: float, remedy: str
) -> None:
    """On small data one number of epochs is too few and a larger one too many."""
    caution = suspects.of_run(judged_run(tmp_path / "run", teacher=False, gap=gap, churn=churn)).caution
    assert caution is not None
    assert "epochs" not in caution
    assert caution.endswith(f"Trust the ranking, not the number; {remedy}")
