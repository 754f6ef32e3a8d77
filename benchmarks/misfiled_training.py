"""The default `vista train` against cross-entropy on the folder with misfiled images.

    python benchmarks/misfiled_training.py --root DATA

Builds the folder with benchmarks/misfiled_folder.py where it does not exist, trains with 40 and 120 epochs, and writes
results/misfiled_folder.json. Everything but method, epochs and seed is what `auto` chooses. Finished runs are not
repeated.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import misfiled_folder
import torch
import tyro

import vista
from vista.runs.folder import RunFolder
from vista.training.compare import over_seeds

DEFAULT, PLAIN = "default", "ce"
MEASURES = ("last", "best", "ece_last", "ece_calibrated_last")


@dataclass(frozen=True)
class Arguments:
    root: str | None = None
    """Folder of the data sets, with cifar-100-python in it."""
    folder: str = "runs/misfiled"
    """The folder of images."""
    runs: str = "runs/misfiled_training"
    """Folder of the runs."""
    epochs: tuple[int, ...] = (40, 120)
    """Numbers of epochs."""
    methods: tuple[str, ...] = ()
    """Further methods to train, which the record shows as well."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of split, weights and order."""
    out: str = "results/misfiled_folder.json"
    """File of the record."""


def train(args: Arguments, method: str, epochs: int, seed: int) -> vista.Result:
    """One run; the method is `auto`'s choice for `default`."""
    chosen: dict[str, Any] = {} if method == DEFAULT else {"method": method}
    out = Path(args.runs) / f"{method}-{epochs}-seed{seed}"
    result = vista.train(
        data=f"folder:{args.folder}", device="cpu", epochs=epochs, seed=seed, out=out, preset="auto", **chosen
    )
    print(f"{out.name}: {100 * result.metrics['last']['test']['top1']:.2f} at the last epoch", flush=True)
    return result


def summarise_run(result: vista.Result) -> dict[str, Any]:
    """Test accuracy and ECE in percent."""
    last, best = result.metrics["last"], result.metrics["best"]
    calibrated = last.get("calibrated")
    return {
        "seed": result.config.seed,
        "last": 100 * last["test"]["top1"],
        "best": 100 * best["test"]["top1"],
        "ece_last": 100 * last["test"]["ece"],
        "ece_calibrated_last": None if calibrated is None else 100 * calibrated["test"]["ece"],
    }


def summarise(method: str, epochs: int, results: list[vista.Result], plain: list[vista.Result]) -> dict[str, Any]:
    """Mean and standard error over the seeds, and of the difference from cross-entropy with the same seed."""
    runs, others = [summarise_run(result) for result in results], [summarise_run(result) for result in plain]
    return {
        "method": method,
        "trained": results[0].config.method,
        "epochs": epochs,
        **{name: over_seeds([run[name] for run in runs if run[name] is not None]) for name in MEASURES},
        "last_minus_ce": over_seeds([run["last"] - other["last"] for run, other in zip(runs, others, strict=True)]),
        "runs": runs,
    }


def main(args: Arguments) -> None:
    torch.set_num_threads(1)
    if not Path(args.folder).exists():
        misfiled_folder.build(Path(args.folder), args.root)
    rows, methods = [], (DEFAULT, PLAIN, *args.methods)
    for epochs in args.epochs:
        results = {method: [train(args, method, epochs, seed) for seed in args.seeds] for method in methods}
        rows += [summarise(method, epochs, results[method], results[PLAIN]) for method in methods]
    first = results[DEFAULT][0]
    shown = ("network", "batch_size", "lr", "lr_schedule", "validation")
    record = {
        "what": "the default of vista train against cross-entropy, 1,000 images of 10 classes, 15 % misfiled",
        "config": {name: getattr(first.config, name) for name in shown},
        "choice": RunFolder.open(first.folder).config().choice,
        "seeds": list(args.seeds),
        "environment": RunFolder.open(first.folder).environment(),
        "rows": rows,
    }
    out = Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    print(f"Wrote {out}")


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
