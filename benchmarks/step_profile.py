"""Profile a training step on a GPU: `python benchmarks/step_profile.py --out results/step-profile-MACHINE.json`.

Plain training of a ResNet-18 on 32 x 32 pixels, batch 64, compiled and captured as in every training. The kernels of a
few replayed steps are grouped by name and by purpose; their times add up to the step time unless kernels overlap.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from methods import BASE, BATCH, SAMPLES, prepared, random_images, seconds_per_step, wait
from torch.profiler import ProfilerActivity, profile

from vista.runs.config import TrainConfig
from vista.runs.environment import environment
from vista.training import fused
from vista.training.scheduler import deterministic

TIMED, PROFILED = 200, 20  # steps
NAME = 120  # characters kept of a kernel's name; template arguments can be very long
KINDS = {  # the first matching pattern determines the kind; the names of our kernels stand for themselves
    "convolution, forward and gradient of inputs": "^convolve$",
    "convolution, gradient of weights": "^(weight_gradient|add_splits)$",
    "batch normalisation, sums": "^normalise_(ready|back_sums|back_ready)$",
    "batch normalisation, ReLU and sums of branches": "^normalise(_back)?$",
    "optimiser": "^update_weights$",
    "batch": "^(_shift|columns)$",
}
TORCH_KINDS = {
    "convolution, gradient of weights": "wgrad",
    "convolution, gradient of inputs": "dgrad",
    "convolution, forward": "fprop|convolve|ImplicitGemm",
    "optimiser": "multi_tensor",
    "casts": "triton_poi_fused__to_copy",
    "batch normalisation, sums": "triton_(red|per)_.*batch_norm",
    "batch normalisation, ReLU and sums of branches": "triton_poi_.*(batch_norm|relu|threshold|add)",
}
OTHER = "other: batch, loss, classifier"


def kind_of(kernel: str) -> str:
    patterns = [*KINDS.items(), *TORCH_KINDS.items()]
    return next((kind for kind, pattern in patterns if re.search(pattern, kernel)), OTHER)


def by_kernel(
    events: Iterable[torch.autograd.profiler_util.FunctionEvent], steps: int
) -> dict[str, tuple[float, float]]:
    """Calls and microseconds per step, by kernel."""
    found: dict[str, list[float]] = defaultdict(list)
    for event in events:
        found[event.name[:NAME]].append(event.device_time_total)
    return {name: (len(times) / steps, sum(times) / steps) for name, times in found.items()}


def measure(torch_kernels: bool) -> dict[str, Any]:
    fused.ENABLED = not torch_kernels
    with tempfile.TemporaryDirectory() as folder, deterministic(False):
        data = Path(folder) / "images.npz"
        random_images(data, SAMPLES["cuda"])
        config = TrainConfig(data=f"npz:{data}", network="resnet18", batch_size=BATCH, device="cuda", method=BASE)
        training = prepared(config, Path(folder) / "run")
        seconds_per_step(training, TIMED)
        step = seconds_per_step(training, TIMED)
        with training.context():
            training.begin_epoch()
            wait()
            with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as watched:
                training.engine.advance(PROFILED)
                wait()
        where = environment(training.device)
    kernels_of = "torch" if training.engine.fused is None else "vista"
    kernels = by_kernel(watched.events(), PROFILED)
    kinds: dict[str, float] = defaultdict(float)
    for name, (_, microseconds) in kernels.items():
        kinds[kind_of(name)] += microseconds
    return {
        "what": "step profile", "kernels_of": kernels_of, "network": "resnet18", "batch_size": BATCH,
        "environment": where,
        "step_microseconds": 1e6 * step,
        "kinds": dict(sorted(kinds.items(), key=lambda kind: -kind[1])),
        "kernels": [
            {"name": name, "times": times, "microseconds": microseconds}
            for name, (times, microseconds) in sorted(kernels.items(), key=lambda kernel: -kernel[1][1])
        ],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FILE", help="file of the record")
    parser.add_argument("--torch-kernels", action="store_true", help="profile the step with torch's kernels")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("step_profile needs a CUDA device: steps on the CPU are not captured")
    record = measure(options.torch_kernels)
    print(f"One step takes {record['step_microseconds']:.0f} microseconds. Kernels, in microseconds:")
    for kind, microseconds in record["kinds"].items():
        print(f"{microseconds:8.1f}  {kind}")
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
