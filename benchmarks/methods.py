"""Measure step times relative to cross-entropy: `python benchmarks/methods.py --out results/methods-MACHINE.json`.

ResNet-18, 32 x 32 pixels, 100 classes, batch 64: on CUDA compiled and captured as in every training, on the CPU eager
with two threads. Cross-entropy and the method alternate, because the speed of a machine drifts, and the ratio is that
of their fastest turns, which other processes disturbed least. Data are random: the time of a step does not depend on
them. With `--methods` the other rows of an existing record are kept. `--table` prints the records in `results/` as
the table of `docs/methods/README.md`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vista.methods import available
from vista.runs.config import TrainConfig
from vista.runs.description import DataDescription
from vista.runs.environment import environment
from vista.runs.folder import RunFolder
from vista.training import build
from vista.training.network import build_network
from vista.training.resolve import resolve
from vista.training.scheduler import deterministic
from vista.training.state import Training

RESULTS = Path(__file__).parents[1] / "results"
BASE = "ce"
CLASSES, PIXELS, BATCH, THREADS = 100, 32, 64, 2
SAMPLES = {"cpu": 5_000, "cuda": 50_000}
STEPS = {"cpu": 1, "cuda": 200}  # a turn
TURNS = 5
LOSSES = 51
NO_RECORD = "No record of step times is in `results/` yet."


def random_images(path: Path, samples: int) -> None:
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    for part, count in (("train", samples), ("test", CLASSES)):
        arrays[f"x_{part}"] = rng.integers(0, 256, (count, PIXELS, PIXELS, 3), dtype=np.uint8)
        arrays[f"y_{part}"] = np.arange(count) % CLASSES
    np.savez(path, **arrays)


def prepared(config: TrainConfig, folder: Path) -> Training:
    """Prepare a training; networks that it would have to train first are untrained here."""
    run = resolve(config)
    chosen = run.chosen
    sizes = DataDescription("random", tuple(map(str, range(CLASSES))), (3, PIXELS, PIXELS))
    earlier = {need.role: build_network(run.config, sizes).eval() for need in chosen.method.earlier_runs(chosen.config)}
    training = build.build_training(run, RunFolder(folder), earlier)
    with training.context():
        training.begin_epoch()
        training.engine.capture(training.copy_state, training.load)
    return training


def seconds_per_step(training: Training, steps: int) -> float:
    with training.context():
        training.begin_epoch()
        wait()
        began = time.perf_counter()
        training.engine.advance(steps)
        wait()
    return (time.perf_counter() - began) / steps


def loss_milliseconds(training: Training) -> float | None:
    """Time loss and gradient on given logits without a network; ``None`` for methods that need more of the network.

    On a CPU the time of a step varies by more than such a loss takes, so the ratio alone cannot show it. On a GPU the
    loss is part of the captured step.
    """
    with training.context():
        training.begin_epoch()
        batch = training.loader.batch(training.engine.counter, BATCH)
        logits = torch.randn(BATCH, CLASSES, device=training.device).requires_grad_()
        times = []
        for _ in range(LOSSES):
            wait()
            began = time.perf_counter()
            try:
                training.method.loss(ConstantNetwork(logits), batch).backward()
            except (AttributeError, TypeError, ValueError, RuntimeError):
                return None
            wait()
            times.append(time.perf_counter() - began)
    return 1000 * statistics.median(times)


class ConstantNetwork(nn.Module):
    """A network that returns given logits."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, x: Tensor) -> Tensor:
        return self.logits


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def compare(base: Training, other: Training, steps: int, turns: int) -> dict[str, float]:
    """Time both alternately, after a warm-up turn."""
    pairs = [(seconds_per_step(base, steps), seconds_per_step(other, steps)) for _ in range(turns + 1)][1:]
    plain, ours = min(first for first, _ in pairs), min(second for _, second in pairs)
    ratios = [second / first for first, second in pairs]
    return {
        "milliseconds": 1000 * ours,
        "base_milliseconds": 1000 * plain,
        "ratio": ours / plain,
        "lowest": min(ratios),
        "highest": max(ratios),
        "turns": turns,
    }


def measure(methods: list[str], device: str, steps: int, turns: int, out: Path | None) -> None:
    """Measure methods one by one; the record is written after each."""
    if device == "cpu":
        torch.set_num_threads(THREADS)
    with tempfile.TemporaryDirectory() as folder, deterministic(False):
        data = Path(folder) / "images.npz"
        random_images(data, SAMPLES[device])
        config = TrainConfig(data=f"npz:{data}", network="resnet18", batch_size=BATCH, device=device, method=BASE)
        base = prepared(config, Path(folder) / "base")
        result: dict[str, Any] = json.loads(out.read_text())["result"] if out and out.exists() else {}
        record = {
            "what": "methods", "base": BASE, "network": "resnet18", "pixels": PIXELS, "classes": CLASSES,
            "samples": SAMPLES[device], "batch_size": BATCH, "precision": base.config.precision, "steps": steps,
            "statistic": "fastest turns", "kind": device,
            "environment": environment(base.device), "result": result,
        }  # fmt: skip
        for name in methods:
            try:
                other = prepared(TrainConfig(**{**vars(config), "method": name}), Path(folder) / name)
                result[name] = compare(base, other, min(steps, base.loader.full_steps), turns)
                if device == "cpu":
                    result[name]["loss_milliseconds"] = loss_milliseconds(other)
                del other
            except Exception as error:  # measure the others; the table has no row for this one
                print(f"{name:22} failed: {error!r}", flush=True)
                continue
            print(f"{name:22} {result[name]['milliseconds']:10.3f} ms {result[name]['ratio']:8.3f}", flush=True)
            if out:
                out.parent.mkdir(parents=True, exist_ok=True)
                out.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


# ---------------------------------------------------------------- the table


def table(results: Path = RESULTS) -> str:
    """A Markdown table with a row per method and a column per record."""
    records = [json.loads(path.read_text()) for path in sorted(results.glob("methods-*.json"))]
    if not records:
        return NO_RECORD
    lines = ["| method | " + " | ".join(map(title, records)) + " |", "|---" * (len(records) + 1) + "|"]
    for name in available():
        if any(name in record["result"] for record in records):
            cells = [cell(record["result"].get(name), record["kind"]) for record in records]
            lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cell(row: dict[str, Any] | None, kind: str) -> str:
    """The ratio, and on a CPU the time of the loss alone if known."""
    if row is None:
        return ""
    alone = row.get("loss_milliseconds") if kind == "cpu" else None
    return f"{row['ratio']:.2f}" + (f" ({alone:.1f} ms)" if alone is not None else "")


def title(record: dict[str, Any]) -> str:
    """The machine, and the step time that 1.00 stands for."""
    machine, threads = record["environment"]["device"], record["environment"]["threads"]
    step = statistics.median(row["base_milliseconds"] for row in record["result"].values())
    where = f"{machine}, {threads} threads" if record["kind"] == "cpu" else machine
    return f"{where}, {record['precision']} ({record['base']}: {step:,.2f} ms)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--methods", default="all", help="method names, separated by commas")
    parser.add_argument("--steps", type=int, help="steps in a turn")
    parser.add_argument("--turns", type=int, default=TURNS, help="turns of each method")
    parser.add_argument("--out", type=Path, help="file of the record")
    parser.add_argument("--table", action="store_true", help="print the table of the records without measuring")
    options = parser.parse_args()
    if options.table:
        print(table())
        return
    methods = list(available()) if options.methods == "all" else options.methods.split(",")
    measure(methods, options.device, options.steps or STEPS[options.device], options.turns, options.out)


if __name__ == "__main__":
    main()
