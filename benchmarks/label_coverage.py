"""Compare the estimates of `vista labels` with the truth, for finished runs whose wrong labels are known.

    python benchmarks/label_coverage.py --runs runs/coverage                    # every run below these folders
    python benchmarks/label_coverage.py --json gpu/*.json                       # outputs of `vista labels RUN --json`
    python benchmarks/label_coverage.py --misfiled 0 1 2 --root DATA            # builds folders and trains first
    python benchmarks/label_coverage.py --cifar100 human symmetric:0.4 --root DATA    # trains first

The truth is known for label noise that vista added, for CIFAR-100N, and for folders of benchmarks/misfiled_folder.py,
where misfiled.csv beside train/ names the wrong files. Cases are added to the record; one that it has is replaced.
The table of docs/label-issues.md is written anew from the record.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import misfiled_folder
import numpy as np
import torch
import tyro
from label_issues import score_inputs

import vista
from vista.analysis import suspect_files, suspects
from vista.analysis.run_predictions import OUT_OF_FOLD
from vista.data.source import path_of
from vista.runs.environment import environment
from vista.runs.folder import RunFolder, find_runs
from vista.training.api import data_name, execute_jobs, make_config, new_job
from vista.training.folds import fold_jobs
from vista.training.scheduler import Job

KEY = ("data", "noise", "network", "method", "epochs", "seed", "folds")
ROOT = Path(__file__).parents[1]
PAGE, BEGIN, END = ROOT / "docs" / "label-issues.md", "<!-- coverage -->\n", "<!-- /coverage -->"
COLUMNS = ("data", "noise", "network, method, epochs", "judged by", "seeds", "wrong", "estimated", "covered", "AUROC")
METHODS = {"vista-light": "VISTA Light", "vista": "VISTA", "ce": "cross-entropy", "label-smoothing": "label smoothing"}


@dataclass(frozen=True)
class Arguments:
    runs: tuple[str, ...] = ()
    """Folders with finished runs."""
    json: tuple[str, ...] = ()
    """Outputs of `vista labels RUN --json`, one per run."""
    misfiled: tuple[int, ...] = ()
    """Seeds of folders with misfiled images to build, train and judge; each also by a cross-validation."""
    methods: tuple[str, ...] = ("label-smoothing", "vista-light")
    """Methods that train on the misfiled folders; what `vista train` chooses for them comes first."""
    epochs: int = 40
    """Epochs of these trainings."""
    folds: int = 5
    """Parts of the cross-validation of the first method."""
    cifar100: tuple[str, ...] = ()
    """Noise of CIFAR-100 with which a network is trained and judged, with VISTA Light and one cosine."""
    network: str = "resnet18"
    """Network of these trainings."""
    batch_size: int = 64
    """Batch size of these trainings."""
    precision: str = "auto"
    """Precision of these trainings."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of these trainings."""
    cifar100_epochs: int = 30
    """Epochs of these trainings."""
    root: str | None = None
    """Folder of the data sets."""
    work: str = "runs/label_coverage"
    """Folder of the trainings."""
    out: str = "results/label_coverage.json"
    """File of the record."""


def main(args: Arguments) -> None:
    torch.set_num_threads(1)
    jobs = cifar100_jobs(args)
    if jobs:
        execute_jobs(jobs, lambda job, event: None)
    found = [judge(RunFolder(job.out)) for job in jobs]
    found += [judge(run) for place in args.runs for run in find_runs(place) if run.is_finished()]
    found += [from_json(json.loads(Path(name).read_text())) for name in args.json]
    found += [case for seed in args.misfiled for case in misfiled(args, seed)]
    out = Path(args.out)
    known = json.loads(out.read_text())["cases"] if out.exists() else []
    cases = {tuple(case[name] for name in KEY): case for case in [*known, *found]}
    record = {"cases": [cases[key] for key in sorted(cases, key=str)]}
    out.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    page = PAGE.read_text()
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(before + BEGIN + table(record) + END + after)
    print(table(record), f"Wrote {out} and {PAGE}", sep="\n")


def cifar100_jobs(args: Arguments) -> list[Job]:
    """A training for each noise and seed; finished ones are not repeated."""
    settings: dict[str, Any] = {
        "data": "cifar100", "root": args.root, "network": args.network, "method": "vista-light",
        "epochs": args.cifar100_epochs, "lr_schedule": "cosine", "batch_size": args.batch_size,
        "precision": args.precision,
    }  # fmt: skip
    cases = [(noise, seed) for seed in args.seeds for noise in args.cifar100]
    configs = [make_config(None, "noisy", {**settings, "noise": noise, "seed": seed}) for noise, seed in cases]
    return [new_job(config, Path(args.work) / f"{data_name(config)}-seed{config.seed}") for config in configs]


def judge(folder: RunFolder) -> dict[str, Any]:
    """The estimate for a finished run, and the truth."""
    config, found = folder.config(), suspects.of_run(folder)
    true = found.true if found.true is not None else truth_of_folder(folder)[found.ids]
    quality = suspects.ranking_quality(found.score, found.given != true)
    about = {name: getattr(config, name) for name in ("data", "noise", "network", "method", "epochs", "seed")}
    about["data"] = about["data"] if config.noise != "none" else "misfiled folder"
    case = make_case(about, suspect_files.report(found, 0) | {"quality": quality}, folder.environment())
    case["folds"] = len(folder.folds())
    if not case["folds"]:
        case["training_samples"] = by_evidence(folder, true[np.argsort(found.ids)])
    return case


def from_json(values: dict[str, Any]) -> dict[str, Any]:
    """The same from the printed JSON of a run with known truth."""
    case = make_case(values["config"], values, values["environment"])
    return case | {"folds": values["config"]["folds"]}


def make_case(about: dict[str, Any], values: dict[str, Any], trained_on: dict[str, Any]) -> dict[str, Any]:
    (low, high), quality = values["interval"], values["quality"]
    return {name: about[name] for name in KEY if name in about} | {
        "samples": values["samples"],
        "unjudged": sum(values["unjudged"].values()),
        "wrong": quality["wrong"],
        "estimated": values["estimated"],
        "interval": [low, high],
        "covered": low <= quality["wrong"] <= high,
        "auroc": quality["auroc"],
        "precision_at": quality["precision_at"],
        "caution": values["caution"],
        "trained_on": trained_on,
        "judged_by": environment(torch.device("cpu")),
    }


def truth_of_folder(folder: RunFolder) -> np.ndarray:
    """True labels of a folder of benchmarks/misfiled_folder.py, by sample id."""
    _, place = path_of(folder.config().data, folder.config().root)
    data, true = folder.data(), folder.labels().given.copy()
    number = {name: k for k, name in enumerate(data.files)}
    with (place / "misfiled.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            true[number[row["file"]]] = data.classes.index(row["true"])
    return true


def by_evidence(folder: RunFolder, true: np.ndarray) -> dict[str, Any]:
    """Ranking and estimate of the training samples by each kind of prediction, and cleanlab's ranking."""
    given, train = folder.labels().given, folder.split().train
    kept = folder.predictions().mean.astype(np.float64)
    probs = {"training predictions": kept} if kept.shape[1] else {}
    if (folder.path / "teacher.safetensors").exists():
        probs["teacher"] = folder.teacher().double().numpy()
    rows = np.flatnonzero(given[train] >= 0)
    return {name: score_inputs(each[rows], given[train[rows]], true[train[rows]]) for name, each in probs.items()}


def misfiled(args: Arguments, seed: int) -> list[dict[str, Any]]:
    """A folder with misfiled images: trained with each method, and with the first cross-validated."""
    work = Path(args.work)
    if not (work / f"misfiled{seed}").exists():
        work.mkdir(parents=True, exist_ok=True)
        misfiled_folder.build(work / f"misfiled{seed}", args.root, seed=seed)
    cases = []
    for method in args.methods:
        result = vista.train(
            data=f"folder:{work}/misfiled{seed}", method=method, network="small-cnn", epochs=args.epochs, seed=seed,
            device="cpu", out=work / f"{method}-seed{seed}",
        )  # fmt: skip
        folder = RunFolder(result.folder)
        if not folder.folds():
            cases.append(judge(folder))
        if method == args.methods[0]:
            jobs = fold_jobs(folder, args.folds)
            if jobs:
                execute_jobs(jobs, lambda job, event: None)
            cases.append(judge(folder))
    return cases


def table(record: dict[str, Any]) -> str:
    """A row per setting, over its seeds."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    settings = dict.fromkeys(tuple(case[name] for name in KEY if name != "seed") for case in record["cases"])
    for setting in settings:
        same = [case for case in record["cases"] if tuple(case[name] for name in KEY if name != "seed") == setting]
        data, noise, network, method, epochs, folds = setting
        judged_by = OUT_OF_FOLD if folds else "one training"
        wrong = list(dict.fromkeys(f"{case['wrong']:,}" for case in same))
        numbers = ("{:,} ({:,} to {:,})".format(case["estimated"], *case["interval"]) for case in same)
        auroc = np.mean([case["auroc"] for case in same])
        cells = [
            data,
            "15 % misfiled" if noise == "none" else noise,
            f"{network}, {METHODS.get(method, method)}, {epochs}",
        ]
        cells += [judged_by, ", ".join(str(case["seed"]) for case in same), ", ".join(wrong), "; ".join(numbers)]
        cells += [f"{sum(case['covered'] for case in same)} of {len(same)}", f"{auroc:.4f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
