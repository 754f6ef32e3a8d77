"""Validate the estimated number of wrong labels against the truth, and the ranking against cleanlab.

    python benchmarks/label_issues.py --runs runs/label_issues

1. Runs on the digits with known noise: does the 95 % interval of `vista labels RUN` cover the number of wrong labels?
2. Out-of-fold predictions on simulated data and on digits with rare classes: the same question for
   `vista.find_label_issues`, and its ranking compared with cleanlab's on identical inputs.

Runs are kept in --runs and reused. Without cleanlab the comparison is left out. The weights of the score were chosen on
simulations with seeds 0 to 3 and on the digits with seeds 0 to 2; part 2 uses other seeds.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict

import vista
from vista.analysis import suspects
from vista.runs.config import TrainConfig, preset
from vista.runs.environment import environment
from vista.runs.folder import RunFolder
from vista.training.scheduler import Job, run_jobs

CLEANLAB = {  # its default first
    "self confidence": {"method": "self_confidence"},
    "normalized margin": {"method": "normalized_margin"},
    "adjusted self confidence": {"method": "self_confidence", "adjust_pred_probs": True},
}
RARE = (178, 177, 150, 120, 90, 60, 45, 30, 20, 12)  # samples per digit


@dataclass(frozen=True)
class Arguments:
    noise: tuple[str, ...] = ("symmetric:0.2", "symmetric:0.4", "asymmetric:0.2")
    """Noise of the runs on the digits."""
    methods: tuple[str, ...] = ("vista", "ce")
    """Their methods."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Their seeds."""
    simulated_seeds: tuple[int, ...] = (10, 11, 12, 13)
    """Seeds of the simulations."""
    runs: str = "runs/label_issues"
    """Folder of the runs."""
    out: str = "results/label_issues_digits.json"
    """File of the record."""


def main(args: Arguments) -> None:
    torch.set_num_threads(1)
    has_cleanlab = importlib.util.find_spec("cleanlab") is not None
    rows = [judge_run(args, *which) for which in train(args)]
    simulated = [row for seed in args.simulated_seeds for row in simulate(seed)]
    record = {
        "network": "small-cnn",
        "seeds": list(args.seeds),
        "simulated_seeds": list(args.simulated_seeds),
        "environment": environment(torch.device("cpu")) | {"cleanlab": version("cleanlab") if has_cleanlab else None},
        "covered": {method: covered([row for row in rows if row["method"] == method]) for method in args.methods},
        "runs": rows,
        "simulated": summarise(simulated),
        "simulated_per_seed": simulated,
    }
    Path(args.out).write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    for row in rows:
        print(
            f"{row['noise']:<16}{row['method']:<8}{row['seed']:>2}{row['wrong']:>6}{row['estimated']:>6}",
            row["interval"],
        )
    for row in record["simulated"]:
        print(row)
    print(record["covered"], f"Wrote {args.out}")


def train(args: Arguments) -> list[tuple[str, str, int]]:
    """Train the runs that --runs lacks; returns noise, method and seed of each."""
    grid = [(noise, method, seed) for noise in args.noise for method in args.methods for seed in args.seeds]
    jobs = []
    for noise, method, seed in grid:
        values = preset("auto", "digits", noise) | {"network": "small-cnn", "device": "cpu"}
        config = TrainConfig(data="digits", noise=noise, method=method, seed=seed, **values)
        if not folder_of(args, noise, method, seed).is_finished():
            jobs.append(Job(config, folder_of(args, noise, method, seed).path))
    run_jobs(jobs, lambda job, event: None)
    for job in jobs:
        if job.error is not None:
            raise job.error
    return grid


def folder_of(args: Arguments, noise: str, method: str, seed: int) -> RunFolder:
    return RunFolder(Path(args.runs) / f"digits-{noise.replace(':', '-')}-{method}-seed{seed}")


def judge_run(args: Arguments, noise: str, method: str, seed: int) -> dict[str, Any]:
    """Judge all samples of a run; also its training samples alone, by the teacher and by their mean prediction."""
    folder = folder_of(args, noise, method, seed)
    found = suspects.of_run(folder)
    wrong = int((found.given != found.true).sum())
    low, high = found.interval
    labels, train = folder.labels(), folder.split().train
    probs = {"training predictions": folder.predictions().mean.astype(np.float64)}
    if (folder.path / "teacher.safetensors").exists():
        probs["teacher"] = folder.teacher().double().numpy()
    return {
        "noise": noise,
        "method": method,
        "seed": seed,
        "samples": len(found),
        "unjudged": sum(found.unjudged.values()),
        "wrong": wrong,
        "estimated": found.estimated,
        "interval": [low, high],
        "covered": low <= wrong <= high,
        "auroc": found.quality()["auroc"],
        "caution": found.caution,
        "training_samples": {
            evidence: score_inputs(values, labels.given[train], labels.true[train])
            for evidence, values in probs.items()
        },
    }


def score_inputs(probs: np.ndarray, given: np.ndarray, true: np.ndarray) -> dict[str, Any]:
    """Our ranking and estimate and cleanlab's, of identical inputs."""
    wrong = given != true
    found = vista.find_label_issues(given, probs, true=true)
    low, high = found.interval
    result = {
        "wrong": int(wrong.sum()),
        "estimated": found.estimated,
        "interval": [low, high],
        "covered": bool(low <= wrong.sum() <= high),
        "accuracy": float(np.mean(probs.argmax(axis=1) == true)),
        "auroc": {"vista": found.quality()["auroc"]},
    }
    if importlib.util.find_spec("cleanlab") is not None:
        from cleanlab.count import estimate_joint
        from cleanlab.rank import get_label_quality_scores

        joint = estimate_joint(given, probs)
        result["cleanlab_estimated"] = round(float(len(given) * (1 - np.trace(joint))))
        for name, options in CLEANLAB.items():
            quality = get_label_quality_scores(given, probs, **options)
            result["auroc"][f"cleanlab: {name}"] = float(roc_auc_score(wrong, 1 - quality))
    return result


def simulate(seed: int) -> list[dict[str, Any]]:
    """Out-of-fold predictions of two classifiers on four data sets with four kinds of noise."""
    rng, rows = np.random.default_rng(seed), []
    for data, (inputs, true) in data_sets(rng).items():
        classes = int(true.max()) + 1
        for kind, rate in (("symmetric", 0.05), ("symmetric", 0.2), ("symmetric", 0.4), ("asymmetric", 0.2)):
            given, flipped = true.copy(), rng.random(len(true)) < rate
            step = rng.integers(1, classes, flipped.sum()) if kind == "symmetric" else 1
            given[flipped] = (given[flipped] + step) % classes
            for name, model in (
                ("logistic regression", LogisticRegression(max_iter=200)),
                ("random forest", RandomForestClassifier(50, random_state=seed)),
            ):
                probs = cross_val_predict(model, inputs, given, cv=5, method="predict_proba")
                about = {"data": data, "noise": f"{kind}:{rate}", "model": name, "seed": seed}
                rows.append(about | score_inputs(probs, given, true))
    return rows


def data_sets(rng: np.random.Generator) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    images, digits = load_digits(return_X_y=True)
    images = images / 16
    some = rng.permutation(len(digits))[:1200]
    order = rng.permutation(10)
    parts = [np.flatnonzero(digits == k)[:count] for k, count in zip(order, RARE, strict=True)]
    rare = rng.permutation(np.concatenate(parts))  # folds are drawn by position
    sets = {"digits": (images[some], digits[some]), "digits, rare classes": (images[rare], digits[rare])}
    for name, spread, tail in (("Gaussian classes", 1.6, False), ("Gaussian, rare classes", 1.4, True)):
        prior = 1 / np.arange(1, 11) if tail else np.ones(10)
        true = rng.choice(10, 1500, p=prior / prior.sum())
        centres = spread * rng.normal(size=(10, 8))
        sets[name] = (centres[true] + rng.normal(size=(1500, 8)), true)
    return sets


def covered(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {"covered": sum(row["covered"] for row in rows), "cases": len(rows)}


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Coverage and mean AUROC by data set and noise, over models and seeds."""
    result = []
    for data, noise in dict.fromkeys((row["data"], row["noise"]) for row in rows):
        same = [row for row in rows if (row["data"], row["noise"]) == (data, noise)]
        auroc = {name: float(np.mean([row["auroc"][name] for row in same])) for name in same[0]["auroc"]}
        result.append({"data": data, "noise": noise, **covered(same), "auroc": auroc})
    return result


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
