"""Measure training speed on a GPU or CPU: `python benchmarks/engine.py --root DATA --out results/engine.json`.

Prints a table and writes a record with machine, versions and commit. Times are medians after a warm-up.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from vista.runs.config import TrainConfig, preset
from vista.runs.environment import environment
from vista.runs.folder import RunFolder
from vista.training import build, fused
from vista.training.events import EpochEnded
from vista.training.loop import train
from vista.training.resolve import resolve
from vista.training.samples import load_samples
from vista.training.scheduler import Job, deterministic, run_jobs
from vista.training.state import Training


def prepared(config: TrainConfig, folder: Path) -> Training:
    training = build.build_training(resolve(config), RunFolder(folder), {})
    with training.context():
        training.begin_epoch()
        training.engine.capture(training.copy_state, training.load)
    return training


def steps_per_second(trainings: list[Training], steps: int, repeats: int = 3) -> float:
    """Total steps per second of concurrent trainings."""
    rates = []
    for _ in range(repeats):
        for training in trainings:
            with training.context():
                training.begin_epoch()
        wait()
        began = time.perf_counter()
        for _ in range(steps // 10):
            for training in trainings:
                with training.context():
                    training.engine.advance(10)
        wait()
        rates.append(len(trainings) * (steps // 10 * 10) / (time.perf_counter() - began))
    return statistics.median(rates)


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def epochs_by_turns(configs: dict[str, TrainConfig], folder: Path) -> dict[str, list[float]]:
    """Time of every epoch but the first, with evaluation and record. The runs alternate in changing order, because the
    speed of a machine drifts."""
    runs = {name: train(config, folder / f"{name}-by-turns") for name, config in configs.items()}
    times: dict[str, list[float]] = {name: [] for name in configs}
    for epoch in range(next(iter(configs.values())).epochs):
        for name in list(runs)[:: 1 if epoch % 2 else -1]:
            timing = next(event for event in runs[name] if isinstance(event, EpochEnded)).timing
            times[name].append(timing["train_seconds"] + timing["evaluate_seconds"])
    return {name: seconds[1:] for name, seconds in times.items()}


def epoch_seconds(config: TrainConfig, folder: Path) -> float:
    """Median time of an epoch but the first, with evaluation and record."""
    shutil.rmtree(folder, ignore_errors=True)
    job = Job(config, folder)
    run_jobs([job], lambda _job, _event: None)
    if job.error:
        raise job.error
    timings = RunFolder(folder).record().timings[1:]
    return statistics.median(t["train_seconds"] + t["evaluate_seconds"] for t in timings)


def measure_torch_kernels(config: TrainConfig, folder: Path, steps: int, at_once: int) -> dict[str, float]:
    """The same runs without kernels of our own."""
    fused.ENABLED = False
    try:
        runs = [prepared(replace(config, seed=seed), folder / str(seed)) for seed in range(at_once)]
        return {
            "ce_images_per_second_torch_kernels": steps_per_second(runs[:1], steps) * config.batch_size,
            f"{at_once}_runs_images_per_second_torch_kernels": steps_per_second(runs, steps // 2) * config.batch_size,
        }
    finally:
        fused.ENABLED = True


def measure(config: TrainConfig, folder: Path, steps: int, epochs: int, at_once: int) -> dict[str, Any]:
    ce, vista = replace(config, method="ce", options={}), replace(config, method="vista", options={})
    result: dict[str, Any] = {}
    if at_once > 1:
        if torch.cuda.is_available() and fused.ENABLED:
            result |= measure_torch_kernels(ce, folder / "torch", steps, at_once)
        first = prepared(ce, folder / "ce")
        result["ce_images_per_second"] = steps_per_second([first], steps) * config.batch_size
        second = prepared(vista, folder / "vista")
        result["vista_images_per_second"] = steps_per_second([second], steps) * config.batch_size
        more = [prepared(replace(vista, seed=s), folder / f"vista{s}") for s in range(1, at_once - 1)]
        together = steps_per_second([first, second, *more], steps // 2)
        result[f"{at_once}_runs_images_per_second"] = together * config.batch_size
        del first, second, more
    never = replace(config, epochs=epochs, checkpoint_seconds=1e9)
    times = epochs_by_turns({m: replace(never, method=m, options={}) for m in ("ce", "vista")}, folder)
    result["ce_epoch_seconds"] = statistics.median(times["ce"])
    result["vista_epoch_seconds"] = statistics.median(times["vista"])
    result["vista_over_ce"] = statistics.median(v / c for c, v in zip(times["ce"], times["vista"], strict=True))
    if at_once == 1:
        return result
    every = replace(never, method="vista", options={}, checkpoint_seconds=result["vista_epoch_seconds"])
    result["checkpoint_every_epoch_over_none"] = epoch_seconds(every, folder / "saved") / result["vista_epoch_seconds"]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", help="folder that holds CIFAR-100")
    parser.add_argument("--data", default="cifar100")
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument(
        "--at-once", type=int, default=5, help="concurrent runs; 1 measures epochs alone, VISTA and cross-entropy"
    )
    parser.add_argument("--out", type=Path, help="file of the record")
    options = parser.parse_args()
    settings = {**preset("noisy"), "epochs": 200}
    config = TrainConfig(
        data=options.data, root=options.root, noise="symmetric:0.4", network=options.network, **settings
    )
    with tempfile.TemporaryDirectory() as folder, deterministic(False):
        samples = load_samples(resolve(config).config, torch.device("cpu")).description.samples
        result = measure(config, Path(folder), options.steps, options.epochs, options.at_once)
    record = {
        "what": "engine",
        "network": options.network,
        "data": options.data.split(":")[0],
        "samples": samples,
        "epochs": options.epochs,
        "batch_size": config.batch_size,
        "precision": config.precision,
        "environment": environment(torch.device(config.device)),
        "result": result,
    }
    for name, value in result.items():
        print(f"{name:40} {value:12,.3f}")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
