"""Measure the method's core on one CPU core: `python benchmarks/core.py --out results/core.json`.

Times the sweep, the loss compared with `F.cross_entropy` on the same logits, and the teacher compared with a plain copy
of the same bytes. Both of a pair are timed alternately, because the speed of a shared machine drifts; the lower
quartile is reported.

On a GPU it measures the teacher alone: `python benchmarks/core.py --device cuda --out results/core-h200.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from vista import Vista, functional
from vista.core import coverage
from vista.core.teacher import teacher
from vista.runs.environment import environment

STATE = (45_000, 100)  # samples and classes


def alternating(repeats: int, **functions: Callable[[], Any]) -> dict[str, float]:
    """Time functions alternately; return the lower quartile of each one's seconds."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            began = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - began)
    return {name: float(np.percentile(values, 25)) for name, values in times.items()}


def sweeps() -> dict[str, float]:
    rng, result = np.random.default_rng(0), {}
    for states, samples in ((200, 5_000), (300, 50_000)):
        correct = rng.random((states, samples)) < 0.6
        bits = coverage.pack(correct)
        times = alternating(
            50, sweep=lambda b=bits: coverage.sweep(b), call=lambda c=correct: functional.marginal_coverage(c)
        )
        result[f"sweep_{states}x{samples}_ms"] = times["sweep"] * 1e3
        result[f"marginal_coverage_{states}x{samples}_ms"] = times["call"] * 1e3
    return result


def losses() -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    samples, classes, batch = 45_000, 100, 512
    labels = torch.randint(0, classes, (samples,), generator=generator)
    vista = Vista(labels, num_classes=classes, epochs=200, val_labels=labels[:100], tau=0.01)
    logits = torch.randn(batch, classes, generator=generator).requires_grad_()
    index = torch.randperm(samples, generator=generator)[:batch]
    hard = labels[index]
    times = alternating(
        1000, ce=lambda: F.cross_entropy(logits, hard).backward(), vista=lambda: vista.loss(logits, index).backward()
    )
    return {
        "cross_entropy_us": times["ce"] * 1e6,
        "loss_us": times["vista"] * 1e6,
        "loss_over_ce": times["vista"] / times["ce"],
    }


def teachers(anchors: int) -> dict[str, float]:
    """Time the teacher on the CPU by the bytes of predictions read, compared with a plain copy of each state."""
    predictions = {s: torch.rand(*STATE).half() for s in range(1, anchors + 1)}
    weights = dict.fromkeys(predictions, 1.0 / anchors)
    out, sink = torch.empty(STATE), torch.empty(STATE, dtype=torch.float16)

    def read_everything() -> None:
        for state in predictions.values():
            sink.copy_(state)

    times = alternating(5, teacher=lambda: teacher(predictions, weights, out), copy=read_everything)
    size = anchors * sink.nbytes
    return {
        f"teacher_of_{anchors}_seconds": times["teacher"],
        f"teacher_of_{anchors}_gb_per_second": size / times["teacher"] / 1e9,
        "copy_gb_per_second": size / times["copy"] / 1e9,
    }


def teachers_on_gpu(anchors: int) -> dict[str, float]:
    """Time the teacher by GPU events, compared with one reduction over a tensor of as many bytes."""
    whole = torch.rand(anchors, *STATE, device="cuda").half()
    predictions = {s: rows.clone() for s, rows in enumerate(whole, start=1)}
    weights = dict.fromkeys(predictions, 1.0 / anchors)
    out = torch.empty(STATE, device="cuda")
    seconds = {
        "teacher": seconds_on_gpu(lambda: teacher(predictions, weights, out)),
        "read": seconds_on_gpu(lambda: whole.view(torch.int64).amax()),
    }
    began = time.perf_counter()
    teacher(predictions, weights, out)
    host = time.perf_counter() - began
    return {
        f"teacher_of_{anchors}_seconds": seconds["teacher"],
        f"teacher_of_{anchors}_gb_per_second": whole.nbytes / seconds["teacher"] / 1e9,
        f"teacher_of_{anchors}_host_seconds": host,
        "read_gb_per_second": whole.nbytes / seconds["read"] / 1e9,
    }


def seconds_on_gpu(function: Callable[[], Any], calls: int = 50) -> float:
    """Seconds per call, averaged over many queued calls."""
    for _ in range(3):
        function()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(calls):
        function()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / calls / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="file of the record")
    parser.add_argument("--anchors", type=int, default=176)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"), help="cpu (the default) or cuda")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.device.type == "cuda":
        result = teachers_on_gpu(options.anchors)
    else:
        result = sweeps() | losses() | teachers(options.anchors)
    for name, value in result.items():
        print(f"{name:40} {value:10.3f}")
    if options.out:
        record = {"what": "core", "environment": environment(options.device), "result": result}
        options.out.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
