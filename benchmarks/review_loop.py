"""What a review of the most suspect labels gains: train, correct the top suspects, train again.

    python benchmarks/review_loop.py --root DATA --network small-cnn --epochs 10 --runs runs/review_loop

A simulated reviewer looks at the suspects of `vista labels` from the top and gives each its true class, as a careful
person would. The retraining differs in these labels alone: same split, same seed, same initial weights.
By default the labels are the human labels of CIFAR-100N, whose true classes are known. Runs are kept in --runs and
reused; the record states how many of the suspects are wrong and both test accuracies. The table of
docs/label-issues.md is written anew from the record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from vista.analysis import suspects
from vista.analysis.suspect_files import write_label_file
from vista.metrics import mean_and_error
from vista.runs.folder import RunFolder
from vista.training.api import execute_jobs, make_config, new_job
from vista.training.events import EpochEnded, Event
from vista.training.scheduler import Job

ROOT = Path(__file__).parents[1]
PAGE, BEGIN, END = ROOT / "docs" / "label-issues.md", "<!-- review -->\n", "<!-- /review -->"
COLUMNS = ("reviewed", "seed", "wrong", "suggestion right", "best, before", "after", "last, before", "after")
SETTINGS = ("data", "noise", "method", "network", "epochs", "batch_size", "lr", "precision")


@dataclass(frozen=True)
class Arguments:
    root: str
    """Folder that holds the data set."""
    data: str = "cifar100"
    """Data set with known true labels."""
    noise: str = "human"
    """Its labels."""
    method: str = "vista-light"
    """How both networks are trained."""
    network: str = "resnet18"
    """Network."""
    epochs: int = 50
    """Epochs of each training."""
    batch_size: int = 64
    """Batch size."""
    lr: float = 0.1
    """Largest learning rate, lowered along one cosine."""
    precision: str = "auto"
    """Precision of the trainings."""
    reviewed: tuple[int, ...] = (1000,)
    """How many suspects the reviewer looks at; one retraining each."""
    seeds: tuple[int, ...] = (0,)
    """Seeds."""
    runs: str = "runs/review_loop"
    """Folder of the runs."""
    out: str = "results/review_loop_cifar100n.json"
    """File of the record."""


def main(args: Arguments) -> None:
    before = {seed: make_job(args, seed) for seed in args.seeds}
    train(before.values())
    after = {(seed, count): corrected(args, before[seed], count) for seed in args.seeds for count in args.reviewed}
    train(after.values())
    rows = [compare(before[seed], job, count) for (seed, count), job in after.items()]
    settings = {name: getattr(args, name) for name in SETTINGS}
    record = {"settings": settings, "seeds": list(args.seeds), "rows": rows}
    Path(args.out).write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    page = PAGE.read_text()
    PAGE.write_text(page.split(BEGIN)[0] + BEGIN + table(record) + END + page.split(END)[1])
    print(table(record), f"Wrote {args.out} and {PAGE}", sep="\n")


def make_job(args: Arguments, seed: int, name: str = "before", **changes: Any) -> Job:
    """The training of a seed, with the labels of the data set unless changed."""
    settings = {field: getattr(args, field) for field in (*SETTINGS, "root")}
    fields = {**settings, "lr_schedule": "cosine", "seed": seed, **changes}
    return new_job(make_config(None, "noisy", fields), Path(args.runs) / f"seed{seed}-{name}")


def corrected(args: Arguments, before: Job, count: int) -> Job:
    """The same training after a review of the labels that it suspects most."""
    folder = RunFolder(before.out)
    ids, labels = suspects.of_run(folder).ids[:count], folder.labels()  # the highest score first
    fixed = labels.given.copy()
    fixed[ids] = labels.true[ids]
    file = before.out.parent / f"seed{before.config.seed}-reviewed{count}.csv"
    write_label_file(file, fixed)
    # The split is drawn by the labels: without split_from, other labels would be held out.
    name, noise = f"reviewed{count}", f"file:{file}"
    return make_job(args, before.config.seed, name, noise=noise, split_from=str(before.out))


def train(jobs: Iterable[Job]) -> None:
    """Train what has not been trained, concurrently where possible."""
    started = list(jobs)
    execute_jobs(started, show)
    for job in started:
        if job.error is not None:
            raise job.error


def show(job: Job, event: Event) -> None:
    if isinstance(event, EpochEnded):
        print(job.out.name, event.line["epoch"], flush=True)


def compare(before: Job, after: Job, count: int) -> dict[str, Any]:
    """What the review found, and test accuracies before and after it."""
    folder = RunFolder(before.out)
    found, labels = suspects.of_run(folder), folder.labels()
    ids, quality = found.ids[:count], found.quality()
    assert quality is not None
    return {
        "seed": before.config.seed,
        "reviewed": count,
        "wrong": int((labels.given[ids] != labels.true[ids]).sum()),
        "suggestion_right": int((found.suggested[:count] == labels.true[ids]).sum()),
        "labels": len(labels.given),
        "wrong_labels": int((labels.given != labels.true).sum()),
        "estimated": found.estimated,
        "interval": list(found.interval),
        "auroc": quality["auroc"],
        "before": accuracies(before),
        "after": accuracies(after),
        "trained_on": folder.environment(),
    }


def accuracies(job: Job) -> dict[str, float]:
    """Test accuracy in percent on the true labels."""
    assert job.metrics is not None
    return {which: 100 * job.metrics[which]["test"]["top1"] for which in ("best", "last")}


def table(record: dict[str, Any]) -> str:
    """A row per seed, and the mean gain with its standard error over the seeds."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for count in dict.fromkeys(row["reviewed"] for row in record["rows"]):
        same = [row for row in record["rows"] if row["reviewed"] == count]
        for row in same:
            cells = [f"{count:,}", str(row["seed"]), f"{row['wrong']:,}", f"{row['suggestion_right']:,}"]
            cells += [f"{row[when][which]:.2f}" for which in ("best", "last") for when in ("before", "after")]
            lines.append(f"| {' | '.join(cells)} |")
        means = [f"{sum(row[name] for row in same) / len(same):,.0f}" for name in ("wrong", "suggestion_right")]
        gains = []
        for which in ("best", "last"):
            mean, error = mean_and_error([row["after"][which] - row["before"][which] for row in same])
            gains += ["gain", f"{mean:+.2f}" if error is None else f"{mean:+.2f} ± {error:.2f}"]
        lines.append(f"| {count:,} | mean | {' | '.join([*means, *gains])} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
