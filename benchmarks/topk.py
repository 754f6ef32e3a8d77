"""VISTA with the k largest probabilities of each past prediction: `python benchmarks/topk.py --root DATA`.

Trains on CIFAR-100 with all probabilities and with each k: same labels, split, weights and order for a seed. Finished
runs in the folder of the runs are not repeated. The table of docs/scale.md is written by `docs/scale_table.py`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro

from vista.metrics import mean_and_error
from vista.runs.folder import RunFolder
from vista.training.api import execute_jobs, make_config, new_job
from vista.training.events import EpochEnded, Event
from vista.training.scheduler import Job

SETTINGS = ("noise", "method", "network", "epochs", "batch_size", "precision")


@dataclass(frozen=True)
class Arguments:
    root: str
    """Folder that holds CIFAR-100."""
    noise: str = "symmetric:0.4"
    """Its label noise."""
    method: str = "vista-light"
    """The method."""
    network: str = "resnet18"
    """Network; `quick_cnn:build` beside this script trains on a CPU."""
    epochs: int = 50
    """Epochs of each training, along one cosine."""
    batch_size: int = 64
    """Batch size."""
    precision: str = "auto"
    """Precision."""
    kept: tuple[int, ...] = (5, 20, 50)
    """Values of k."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds."""
    runs: str = "runs/topk"
    """Folder of the runs."""
    out: str = "results/topk.json"
    """File of the record."""


def main(args: Arguments) -> None:
    torch.set_num_threads(1)
    jobs = {(kept, seed): make_job(args, kept, seed) for seed in args.seeds for kept in (None, *args.kept)}
    execute_jobs(list(jobs.values()), show)
    for job in jobs.values():
        if job.error is not None:
            raise job.error
    rows = [summarise(kept, [jobs[kept, seed] for seed in args.seeds], [jobs[None, seed] for seed in args.seeds])
            for kept in (None, *args.kept)]  # fmt: skip
    record = {
        "what": "topk",
        "environment": RunFolder(next(iter(jobs.values())).out).environment(),
        "settings": {name: getattr(args, name) for name in SETTINGS},
        "seeds": list(args.seeds),
        "rows": rows,
    }
    Path(args.out).write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    print(f"Wrote {args.out}")


def make_job(args: Arguments, kept: int | None, seed: int) -> Job:
    fields: dict[str, Any] = {name: getattr(args, name) for name in SETTINGS}
    fields["method"] += "" if kept is None else f":topk={kept}"
    config = make_config(
        None, "noisy", {**fields, "data": "cifar100", "root": args.root, "lr_schedule": "cosine", "seed": seed}
    )
    return new_job(config, Path(args.runs) / f"{'all' if kept is None else kept}-seed{seed}")


def show(job: Job, event: Event) -> None:
    if isinstance(event, EpochEnded):
        print(job.out.name, event.line["epoch"], flush=True)


def summarise(kept: int | None, jobs: Sequence[Job], dense: Sequence[Job]) -> dict[str, Any]:
    """Test accuracy and ECE in percent over the seeds, and the difference from all probabilities, seed by seed."""
    values, reference = [measure(job) for job in jobs], [measure(job) for job in dense]
    commits = [RunFolder(job.out).environment()["commit"] for job in jobs]
    result: dict[str, Any] = {"kept": kept, "runs": values, "commits": commits}
    for name in values[0]:
        result[name] = mean_and_error([each[name] for each in values])
        if kept is not None:
            gains = [each[name] - plain[name] for each, plain in zip(values, reference, strict=True)]
            result[f"{name}_minus_all"] = mean_and_error(gains)
    return result


def measure(job: Job) -> dict[str, float]:
    assert job.metrics is not None
    test = {which: job.metrics[which]["test"] for which in ("best", "last")}
    accuracies = {which: 100 * values["top1"] for which, values in test.items()}
    return {**accuracies, "ece_last": 100 * test["last"]["ece"], "anchors_max": job.metrics["anchors_max"]}


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
