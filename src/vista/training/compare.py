"""Several methods over several seeds: which runs that means, and what they came to together."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vista.methods import Chosen, available, choose
from vista.metrics import mean_and_error
from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.training.scheduler import Job

ALL = "all"


@dataclass(frozen=True)
class Entry:
    """A method of a comparison, and its runs, one per seed."""

    method: str  # as it was asked for, options included
    chosen: Chosen
    jobs: list[Job]


def plan(
    base: TrainConfig, methods: Sequence[str], seeds: int, out: Path, name: Callable[[Chosen], str]
) -> list[Entry]:
    """Every method with the seeds ``0 .. seeds - 1``, each run in ``out/<name>-seed<k>``; a method counts once."""
    if seeds < 1:
        raise ValueError(f"seeds is {seeds}, but at least 1 is needed (3 means the seeds 0, 1 and 2)")
    if not methods:
        raise ValueError("methods is empty, but at least one is needed, as in ce,vista")
    entries: dict[tuple[str, str], Entry] = {}  # by what is trained: vista-light is vista:tau=0.01
    for method in _expanded(methods):
        chosen = choose(method)
        config = dataclasses.replace(base, method=chosen.name, options=chosen.options)
        jobs = [Job(dataclasses.replace(config, seed=k), out / f"{name(chosen)}-seed{k}") for k in range(seeds)]
        same = (chosen.method.name, json.dumps(chosen.options, sort_keys=True))
        entries.setdefault(same, Entry(method, chosen, jobs))
    return list(entries.values())


def _expanded(methods: Sequence[str]) -> list[str]:
    """The methods with ``all`` written out; a word that is nearest to it is told so."""
    found: list[str] = []
    for method in methods:
        name, given, _ = method.partition(":")
        nearest = difflib.get_close_matches(name, [*available(), ALL], n=1, cutoff=0.0)[0]
        if name == ALL and given:
            raise ValueError(f"methods has {method!r}, but {ALL} takes no options")
        if nearest == ALL and name != ALL:
            raise ValueError(f"method {name!r} is unknown; nearest is {ALL!r} (`vista methods` lists all)")
        found += available() if name == ALL else [method]
    return found


def summary(entry: Entry) -> dict[str, Any]:
    """A method's row: accuracies and gap in percent, means over the seeds that finished, SE = sd / sqrt(n)."""
    runs = [run_summary(job) for job in entry.jobs]
    done = [run for run in runs if run["error"] is None]
    anchors = [run["anchors_max"] for run in done if run["anchors_max"] is not None]
    return {
        "method": entry.method,
        "seeds": len(done),
        "best": over_seeds([run["best"] for run in done]),
        "last": over_seeds([run["last"] for run in done]),
        "deviation_gap": over_seeds([run["deviation_gap"] for run in done])["mean"],
        "anchors_max": max(anchors) if anchors else None,
        "seconds": over_seeds([run["seconds"] for run in done])["mean"],
        "reconstruction": entry.chosen.method.reconstruction,
        "runs": runs,
    }


def run_summary(job: Job) -> dict[str, Any]:
    """What one run adds to its method's row."""
    values: dict[str, Any] = {"seed": job.config.seed, "run": str(job.out)}
    if job.metrics is None:
        nothing = dict.fromkeys(("best", "last", "best_epoch", "deviation_gap", "anchors_max", "seconds"))
        return {**values, **nothing, "error": str(job.error) if job.error is not None else "stopped"}
    return {
        **values,
        "best": 100 * job.metrics["best"]["test"]["top1"],
        "last": 100 * job.metrics["last"]["test"]["top1"],
        "best_epoch": job.metrics["best"]["epoch"],
        "deviation_gap": 100 * job.metrics["deviation_gap"]["val_given"],
        "anchors_max": job.metrics["anchors_max"],
        "seconds": RunFolder(job.out).seconds(),
        "error": None,
    }


def over_seeds(values: Sequence[float]) -> dict[str, float | None]:
    """Mean and standard error; None where there are too few values for it."""
    mean, error = mean_and_error(values) if values else (None, None)
    return {"mean": mean, "se": error}
