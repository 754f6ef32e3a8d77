"""What a review of the most suspect labels gains: train, correct the top suspects, train again.

    python benchmarks/review_loop.py --root DATA --network small-cnn --epochs 10 --runs runs/review_loop

A simulated reviewer looks at the suspects of `vista labels` from the top and gives each its true class, as a careful
person would. The retraining differs in these labels alone: same split, same seed, same initial weights.
By default the labels are the human labels of CIFAR-100N, whose true classes are known. Runs are kept in --runs and
reused; the record states how many of the suspects are wrong and both test accuracies.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro

import vista
from vista.analysis import suspects
from vista.analysis.suspect_files import write_label_file
from vista.runs.environment import environment
from vista.runs.folder import RunFolder

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
    rows = [row for seed in args.seeds for row in loop(args, seed)]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    settings = {name: getattr(args, name) for name in SETTINGS}
    record = {"settings": settings, "seeds": list(args.seeds), "environment": environment(device), "rows": rows}
    Path(args.out).write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    for row in rows:
        print(row)
    print(f"Wrote {args.out}")


def loop(args: Arguments, seed: int) -> list[dict[str, Any]]:
    """Train once, then once more for each number of reviewed suspects."""
    before = train(args, seed, args.noise, None, "before")
    folder = RunFolder(before.folder)
    found, labels = suspects.of_run(folder), folder.labels()
    rows = []
    for count in args.reviewed:
        ids = found.ids[:count]  # the highest score first
        corrected = labels.given.copy()
        corrected[ids] = labels.true[ids]
        file = before.folder.parent / f"seed{seed}-reviewed{count}.csv"
        write_label_file(file, corrected)
        # The split is drawn by the labels: without split_from, other labels would be held out.
        after = train(args, seed, f"file:{file}", str(before.folder), f"reviewed{count}")
        low, high = found.interval
        rows.append(
            {
                "seed": seed,
                "reviewed": count,
                "wrong": int((labels.given[ids] != labels.true[ids]).sum()),
                "suggestion_right": int((found.suggested[:count] == labels.true[ids]).sum()),
                "labels": len(labels.given),
                "wrong_labels": int((labels.given != labels.true).sum()),
                "estimated": found.estimated,
                "interval": [low, high],
                "auroc": found.quality()["auroc"],
                "before": accuracies(before),
                "after": accuracies(after),
            }
        )
    return rows


def train(args: Arguments, seed: int, noise: str, split_from: str | None, name: str) -> vista.Result:
    return vista.train(
        out=Path(args.runs) / f"seed{seed}-{name}",
        preset="noisy",
        on_event=lambda event: print(name, event, flush=True) if hasattr(event, "line") else None,
        data=args.data,
        root=args.root,
        noise=noise,
        split_from=split_from,
        method=args.method,
        network=args.network,
        epochs=args.epochs,
        batch_size=args.batch_size,
        lr=args.lr,
        lr_schedule="cosine",
        precision=args.precision,
        seed=seed,
    )


def accuracies(result: vista.Result) -> dict[str, float]:
    """Test accuracy in percent on the true labels."""
    return {which: 100 * result.metrics[which]["test"]["top1"] for which in ("best", "last")}


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
