"""The whole loop: without a teacher in its targets, a VISTA run is the plain run, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.training.scheduler import Job, run_jobs

EPOCHS, BATCH = 4, 128
COMMON = ("epoch", "lr", "train_loss", "val_accuracy", "val_true_accuracy", "test_accuracy", "best")
RUNS = {
    "ce": "ce",
    "zero": "vista:schedule=fixed:value=0",
    "zero, clean pass": "vista:schedule=fixed:value=0:record=eval",
    "one": "vista:schedule=fixed:value=1",
    "exp": "vista",
    "linear": "vista:schedule=linear",
    "cosine": "vista:schedule=cosine",
}
Trained = Callable[[str], RunFolder]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Runs by name, each made once: a network with BatchNorm, noisy digits, a short last batch."""
    root = tmp_path_factory.mktemp("runs")

    def run(name: str) -> RunFolder:
        out = root / name
        if not out.exists():
            _train(RUNS[name], out)
        return RunFolder.open(out)

    return run


def _train(method: str, out: Path) -> None:
    job = Job(
        TrainConfig(
            data="digits", noise="symmetric:0.4", method=method, network="tiny-staged", epochs=EPOCHS,
            batch_size=BATCH, lr=0.1, validation=270, device="cpu",
        ),
        out,
    )  # fmt: skip
    run_jobs([job], lambda job, event: None)
    if job.error is not None:
        raise job.error


def same_weights(one: RunFolder, other: RunFolder, which) -> bool:
    ours, theirs = one.weights(which), other.weights(which)
    return list(ours) == list(theirs) and all(torch.equal(ours[name], theirs[name]) for name in ours)


def lines(run: RunFolder, epochs: int) -> list[dict]:
    return [{name: line[name] for name in COMMON} for line in run.record().lines[:epochs]]


@pytest.mark.parametrize("name", ["zero", "zero, clean pass"])
def test_at_beta_0_the_run_is_the_plain_run(trained: Trained, name: str) -> None:
    """With the clean pass, too: it leaves no trace in weights, BatchNorm or draws."""
    plain, ours = trained("ce"), trained(name)
    assert same_weights(plain, ours, "best")
    assert same_weights(plain, ours, "last")
    assert lines(plain, EPOCHS) == lines(ours, EPOCHS)
    for samples in ("val_given", "val_true", "test"):
        assert (plain.record().correct(samples) == ours.record().correct(samples)).all()


@pytest.mark.parametrize("name", ["exp", "linear", "cosine"])
def test_epochs_1_and_2_are_those_of_the_plain_run(trained: Trained, name: str) -> None:
    plain, ours = trained("ce"), trained(name)
    assert lines(plain, 2) == lines(ours, 2)
    assert lines(plain, 3)[2]["train_loss"] != lines(ours, 3)[2]["train_loss"], "epoch 3 has a teacher"
    for samples in ("val_given", "val_true", "test"):
        assert (plain.record().correct(samples)[:2] == ours.record().correct(samples)[:2]).all()


def test_a_teacher_makes_another_run(trained: Trained) -> None:
    """The equalities above are not those of runs that learn nothing."""
    plain, ours = trained("ce"), trained("one")
    assert not same_weights(plain, ours, "last")
    assert lines(plain, 1) == lines(ours, 1), "epoch 1 is hard under a fixed schedule"
    assert lines(plain, 2)[1] != lines(ours, 2)[1]
    assert max(line["test_accuracy"] for line in lines(plain, EPOCHS)) > 0.3


@pytest.mark.parametrize("name", ["ce", "zero, clean pass"])
def test_batchnorm_sees_every_training_step_and_no_other_pass(trained: Trained, name: str) -> None:
    steps = -(-trained(name).data().samples["train"] // BATCH)
    seen = {int(value) for key, value in trained(name).weights("last").items() if key.endswith("num_batches_tracked")}
    assert seen == {EPOCHS * steps}


def test_what_the_clean_pass_remembers_is_not_what_training_saw(trained: Trained) -> None:
    assert not torch.equal(trained("zero").teacher(), trained("zero, clean pass").teacher())
