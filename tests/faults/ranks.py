"""Vista in several processes on given logits, without a training loop."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DistributedSampler
from trainings import config, digests, noting_states

from vista import Vista
from vista.core import collectives, host_store
from vista.files import atomic
from vista.runs.checkpoint import Checkpoints
from vista.runs.folder import RunFolder
from vista.training.scheduler import Job, run_jobs

SAMPLES, VALIDATION, CLASSES, EPOCHS = 43, 31, 5, 6  # no number of processes divides the first two
LABELS, VAL_LABELS = torch.arange(SAMPLES) % CLASSES, torch.arange(VALIDATION) % CLASSES
OPTIONS: dict[str, dict[str, Any]] = {
    "basic": {},
    "light": {"tau": 0.12},
    "clean pass": {"record": "eval"},
    "accuracy": {"weights": "accuracy", "smoothing": 3},
    "top-k": {"topk": 2},
    "basic on the host": {"store": "host"},
    "light on the host": {"tau": 0.12, "store": "host"},
    "top-k on the host": {"topk": 2, "store": "host"},
}


def drawn(labels: Tensor, epoch: int) -> Tensor:
    """Logits that are right for some, float32 ``[n, K]``."""
    source = torch.Generator().manual_seed(1000 * epoch + len(labels))
    return torch.randn(len(labels), CLASSES, generator=source) + torch.nn.functional.one_hot(labels, CLASSES)


def part(size: int, epoch: int) -> Tensor:
    """This process's samples, padded so that every process has as many."""
    count, rank = collectives.world_size(), collectives.rank()
    sampler = DistributedSampler(range(size), num_replicas=count, rank=rank, seed=3)
    sampler.set_epoch(epoch)
    return torch.tensor(list(sampler))


def given_logits(out: Path) -> None:
    """Note anchors, weights, targets and state of every epoch, for every option."""
    results = {name: list(_epochs(Vista(**_arguments(), **options))) for name, options in OPTIONS.items()}
    (out / f"{collectives.world_size()}-{collectives.rank()}.json").write_text(json.dumps(results))


def _arguments() -> dict[str, Any]:
    return {"labels": LABELS, "num_classes": CLASSES, "epochs": EPOCHS, "val_labels": VAL_LABELS}


def _epochs(vista: Vista) -> Any:
    for epoch in vista.epochs():
        own, of_val = part(SAMPLES, epoch), part(VALIDATION, epoch)
        logits = drawn(LABELS, epoch)[own].requires_grad_()
        for batch in range(0, len(own), 4):
            vista.loss(logits[batch : batch + 4], own[batch : batch + 4])
        if vista.state_dict()["identity"]["record"] == "eval":
            vista.record(logits.detach(), own)
        summary = vista.end_epoch(drawn(VAL_LABELS, epoch)[of_val], val_index=of_val)
        everything = {"targets": vista.targets(torch.arange(SAMPLES)), "teacher": vista.teacher()}
        hashes = digests({**everything, "state": vista.state_dict(), "record": {}})
        hashes["predictions"] = digests({"predictions": vista.state_dict()["predictions"], "record": {}})["predictions"]
        yield [summary.anchors, summary.accuracy, summary.unrecorded, hashes]


def another_tolerance(out: Path) -> None:
    """A process whose settings differ is found at the end of the first epoch in which that matters."""
    vista = Vista(**_arguments(), tau=0.05 if collectives.rank() == 0 else 0.6)
    said = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            list(_epochs(vista))
        except RuntimeError as error:
            said = str(error)
    (out / f"said-{collectives.rank()}").write_text(said)


def store_folder_of_its_own(out: Path) -> None:
    """What each process says when it sees no store folder but its own, as in containers of one host."""
    host_store._is_visible = lambda folder: f"-{os.getpid()}-" in folder.name
    said = ""
    try:
        list(_epochs(Vista(**_arguments(), store="host", store_dir=out)))
    except OSError as error:
        said = str(error)
    (out / f"said-{collectives.rank()}").write_text(said)


def other_versions(out: Path) -> None:
    """What each process says when the second one has another version of torch."""
    if collectives.rank() == 1:
        torch.__version__ = "1.0"
    _note_error(out, f"npz:{out / 'digits.npz'}")


def other_data(out: Path) -> None:
    """What each process says when it reads a file of its own."""
    _note_error(out, f"npz:{out / f'digits-{collectives.rank()}.npz'}")


def _note_error(out: Path, data: str) -> None:
    said = ""
    try:
        run_jobs([Job(config(data, "ce"), out / "run")], lambda job, event: None)
    except ValueError as error:
        said = str(error)
    (out / f"said-{collectives.rank()}").write_text(said)


def full_disk_of_one(out: Path) -> None:
    """What each process says when the second one cannot write its part, and which checkpoints are left."""
    checkpoints = Checkpoints(out, collectives.rank())
    checkpoints.save("epoch-00001-step-0000000", {"weights": torch.zeros(2)})

    def fill(what: str, path: Path) -> None:
        if what == "half" and collectives.rank() == 1:
            raise OSError(errno.ENOSPC, "full")

    atomic.on_write = fill
    said = ""
    try:
        checkpoints.save("epoch-00002-step-0000000", {"weights": torch.ones(2)})
    except OSError as error:
        said = str(error)
    state = Checkpoints(out, collectives.rank()).load_newest()
    (out / f"said-{collectives.rank()}").write_text(json.dumps([said, float(state["weights"].sum())]))


def two_runs(out: Path) -> list[Job]:
    return [Job(config(f"npz:{out.parent / 'digits.npz'}", "ce", seed=seed), out / str(seed)) for seed in range(2)]


def one_after_the_other(out: Path) -> None:
    with noting_states(collectives.rank()):
        run_jobs(two_runs(out), lambda job, event: None)


def in_use_for_the_first(out: Path) -> None:
    """The same, but the first process finds the first run's folder in use: what each one says."""
    taken = RunFolder(out / "0").locked() if collectives.rank() == 0 else contextlib.nullcontext()
    said = ""
    with taken:
        try:
            one_after_the_other(out)
        except RuntimeError as error:
            said = str(error)
    (out / f"said-{collectives.rank()}").write_text(said)
