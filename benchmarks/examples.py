"""The examples on text and on tabular data, VISTA against plain cross-entropy, as records.

    python benchmarks/examples.py

Writes results/examples/text.json and tabular.json. Both methods share every setting; none was tuned for either.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import tyro

from vista.runs.environment import environment
from vista.training.compare import over_seeds

ROOT = Path(__file__).parents[1]
METHODS = "ce", "vista"
DATA = {"text": "load_corpus", "tabular": "load_table"}  # example and the function in it that reads its data
PACKAGES = {"text": "scipy", "tabular": "scikit-learn"}  # that the data come inside of


@dataclass(frozen=True)
class Arguments:
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of noise, split, weights and order."""
    epochs: int = 40
    """Epochs of every training."""
    out: str = "results/examples"
    """Folder of the records."""


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(name: str, args: Arguments) -> dict[str, Any]:
    module = example(name)
    inputs, labels = getattr(module, DATA[name])()
    runs = {m: [module.train(m, seed, args.epochs, inputs, labels) for seed in args.seeds] for m in METHODS}
    rows = []
    for method, found in runs.items():
        cells = {which: over_seeds([run[which] for run in found]) for which in ("best", "last")}
        rows.append({"method": method, **cells, "runs": found})
    settings = {
        "noise": f"symmetric:{module.NOISE}",
        "epochs": args.epochs,
        "batch_size": module.BATCH,
        "lr": module.LR,
    }
    size = {"samples": len(labels), "classes": len(set(labels.tolist())), "test_share": 0.2, "validation_share": 0.15}
    about = {**environment(torch.device("cpu")), PACKAGES[name]: version(PACKAGES[name])}
    return {"example": f"examples/{name}.py", "config": {**settings, **size}, "seeds": list(args.seeds),
            "environment": about, "unit": "test accuracy in percent", "rows": rows}  # fmt: skip


def main(args: Arguments) -> None:
    torch.set_num_threads(1)
    for name in DATA:
        record = measure(name, args)
        out = Path(args.out) / f"{name}.json"
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
        for row in record["rows"]:
            cells = (f"{which} {row[which]['mean']:.1f} ± {row[which]['se']:.1f}" for which in ("best", "last"))
            print(f"{name:8} {row['method']:6}", *cells)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
