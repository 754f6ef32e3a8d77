"""Measure calibration without clean labels: ECE, NLL and AURC on the test set before and after, and the noise rate.

    python benchmarks/calibration.py
    python benchmarks/calibration.py --methods ce vista-light --noise human --data cifar100 --root DATA

Each run is calibrated by its own validation labels, noisy as they are; the true test labels only score the result. Runs
are kept in --runs and reused. "calibrated" is what runs do; "noise ignored" is the usual temperature scaling, which
takes validation labels as true.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro

from vista import calibrate
from vista.data import source
from vista.metrics import classification_report
from vista.runs.config import TrainConfig, preset
from vista.runs.environment import environment
from vista.runs.folder import WEIGHTS, RunFolder
from vista.training.compare import over_seeds
from vista.training.scheduler import Job, run_jobs

SCORES = ("ece", "nll", "aurc")
KINDS = {"calibrated": "auto", "symmetric": "symmetric", "structured": "structured", "noise ignored": "none"}


@dataclass(frozen=True)
class Arguments:
    data: str = "digits"
    """Data set."""
    root: str | None = None
    """Folder of the data sets."""
    noise: tuple[str, ...] = ("symmetric:0.4", "asymmetric:0.4")
    """Kinds of noise."""
    methods: tuple[str, ...] = ("ce", "label-smoothing", "vista-light", "sat", "elr", "posterior")
    """Methods."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds."""
    device: str = "cpu"
    """Device of the runs."""
    runs: str = "runs/calibration"
    """Folder of the runs."""
    out: str | None = None
    """File of the record; results/calibration_DATA.json by default."""


def main(args: Arguments) -> None:
    torch.set_num_threads(1)
    test_labels = source.load(args.data, args.root).test_labels
    measured = []
    for noise in args.noise:
        for method in args.methods:
            for seed in args.seeds:
                folder = train(args, noise, method, seed)
                measured += [
                    {"noise": noise, "method": method, "seed": seed, **row} for row in score(folder, test_labels)
                ]
                print(f"{folder.path} is scored", flush=True)
    first = RunFolder(run_path(args, args.noise[0], args.methods[0], args.seeds[0]))
    config = {k: v for k, v in first.config().to_json().items() if k not in ("root", "seed", "method", "noise")}
    record = {
        "config": config,
        "seeds": list(args.seeds),
        "environment": {**first.environment(), "scored_at": environment(torch.device("cpu"))["commit"]},
        "rows": summarise(measured),
        "per_seed": measured,
    }
    out = Path(args.out or f"results/calibration_{args.data}.json")
    out.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    print(f"Wrote {out}")


def run_path(args: Arguments, noise: str, method: str, seed: int) -> Path:
    return Path(args.runs) / f"{args.data}-{noise.replace(':', '-')}-{method}-seed{seed}"


def train(args: Arguments, noise: str, method: str, seed: int) -> RunFolder:
    """Train a run, or use the finished one."""
    values = {**preset("auto", args.data, noise), "device": args.device}
    config = TrainConfig(data=args.data, root=args.root, noise=noise, method=method, seed=seed, **values)
    job = Job(config, run_path(args, noise, method, seed))
    run_jobs([job], lambda _job, _event: None)
    if job.error is not None:
        raise job.error
    return RunFolder(job.out)


def score(folder: RunFolder, test_labels: np.ndarray) -> list[dict[str, Any]]:
    """Scores of the best and of the last weights on the test set, before and after every kind of calibration."""
    logits, labels, val = folder.predictions().logits, folder.labels(), folder.split().val
    given = labels.given[val]
    true_rate = float((given != labels.true[val]).mean())
    rows = []
    for which in WEIGHTS:
        test_logits = logits[f"{which}.test"].astype(np.float64)
        report = classification_report(test_logits, test_labels)
        row = {"which": which, "samples": len(given), "true_rate": true_rate, "top1": report["top1"]}
        row["before"] = {name: report[name] for name in SCORES}
        for name, kind in KINDS.items():
            found = calibrate(logits[f"{which}.val"], given, kind)
            report = classification_report(test_logits / found.temperature, test_labels)
            row[name] = {score: report[score] for score in SCORES}
            row[name] |= {"temperature": found.temperature, "noise_rate": found.noise_rate}
            row[name]["is_structured"] = float(found.noise == "structured")
        rows.append(row)
    return rows


def summarise(measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard error over the seeds."""
    rows = []
    keys = dict.fromkeys((row["noise"], row["method"], row["which"]) for row in measured)
    for noise, method, which in keys:
        same = [row for row in measured if (row["noise"], row["method"], row["which"]) == (noise, method, which)]
        cells: dict[str, Any] = {name: over_seeds([row[name] for row in same]) for name in ("true_rate", "top1")}
        for name in ("before", *KINDS):
            cells[name] = {score: over_seeds([row[name][score] for row in same]) for score in same[0][name]}
        rows.append({"noise": noise, "method": method, "which": which, **cells})
    return rows


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
