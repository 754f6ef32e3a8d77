"""Posterior targets against their controls on the digits, with the tuning seeds of docs/recipe.md.

    python benchmarks/recipe_digits.py

Writes results/recipe_digits.json. This checks the implementation: the digits are not a tuning setting of the plan.
Finished runs in the folder of the runs are not repeated.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro

from vista.runs.config import TrainConfig, preset
from vista.runs.folder import RunFolder
from vista.training.compare import over_seeds
from vista.training.events import Event, Finished
from vista.training.scheduler import Job, run_jobs

METHODS = ("ce", "vista-light", "elr", "posterior", "posterior-newest", "posterior-uniform")
NOISE = "symmetric:0.4"
LAST_EPOCHS = 5  # whose validation accuracy is averaged: the criterion of the plan
MEASURES = ("criterion", "test_best", "test_last", "ece_last")


@dataclass(frozen=True)
class Arguments:
    seeds: tuple[int, ...] = (10, 11, 12)
    """Seeds of noise, split, weights and order."""
    epochs: int | None = None
    """Epochs of every run; the preset's by default."""
    runs: str = "runs/recipe_digits"
    """Folder of the runs."""
    out: str = "results/recipe_digits.json"
    """File of the record."""
    threads: int = 1
    """CPU threads."""


def make_config(args: Arguments, method: str, seed: int) -> TrainConfig:
    settings = preset("digits") | ({} if args.epochs is None else {"epochs": args.epochs})
    return TrainConfig(data="digits", noise=NOISE, method=method, seed=seed, device="cpu", **settings)


def summarise_run(folder: RunFolder) -> dict[str, Any]:
    """Accuracies and ECE in percent, and what the method fitted after the last epoch."""
    metrics, lines = folder.metrics(), folder.record().lines
    labels, validation = folder.labels(), folder.split().val
    return {
        "seed": folder.config().seed,
        "criterion": 100 * statistics.fmean(line["val_accuracy"] for line in lines[-LAST_EPOCHS:]),
        "test_best": 100 * metrics["best"]["test"]["top1"],
        "test_last": 100 * metrics["last"]["test"]["top1"],
        "ece_last": 100 * metrics["last"]["test"]["ece"],
        "anchors_max": metrics["anchors_max"],
        "temperature": lines[-1].get("temperature"),
        "noise_rate": lines[-1].get("noise_rate"),
        "true_noise_rate": float((labels.given != labels.true)[validation].mean()),  # of the validation labels
    }


def summarise_method(method: str, runs: list[dict[str, Any]], reference: list[dict[str, Any]]) -> dict[str, Any]:
    """Means and standard errors over the seeds, and the differences from the reference of the same seed."""
    pairs = list(zip(runs, reference, strict=True))
    over = {name: over_seeds([run[name] for run in runs]) for name in MEASURES}
    paired = {name: over_seeds([run[name] - plain[name] for run, plain in pairs]) for name in MEASURES}
    return {"method": method, **over, "minus_ce": paired, "runs": runs}


def main(args: Arguments) -> None:
    torch.set_num_threads(args.threads)
    jobs = {
        method: [Job(make_config(args, method, seed), Path(args.runs) / f"{method}-seed{seed}") for seed in args.seeds]
        for method in METHODS
    }

    def show(job: Job, event: Event) -> None:
        if isinstance(event, Finished):
            print(f"{job.out.name}: {event.metrics['last']['test']['top1']:.4f} at the last epoch", flush=True)

    run_jobs([job for together in jobs.values() for job in together], show)
    for job in (job for together in jobs.values() for job in together):
        if job.error is not None:
            raise job.error
    runs = {method: [summarise_run(RunFolder.open(job.out)) for job in together] for method, together in jobs.items()}
    config = {
        name: value
        for name, value in make_config(args, METHODS[0], args.seeds[0]).to_json().items()
        if name not in ("method", "options", "root", "seed")
    }
    record = {
        "what": "posterior targets and controls on the digits",
        "config": config,
        "seeds": list(args.seeds),
        "criterion": f"accuracy in % on the noisy validation labels, mean of the last {LAST_EPOCHS} epochs",
        "environment": RunFolder.open(jobs["posterior"][0].out).environment(),
        "rows": [summarise_method(method, runs[method], runs["ce"]) for method in METHODS],
    }
    out = Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    print(f"Wrote {out}")


if __name__ == "__main__":
    main(tyro.cli(Arguments))
