"""Measure the store on the host: `python benchmarks/host_store.py --out results/host-store.json`.

Trains a small network on random features until there are as many anchors as wanted, with `Vista(store="host")`, and
measures what the store adds to the loss of a batch, to an epoch and to the end of an epoch; what device memory it
takes; how much memory processes share; and the peak of reading a checkpoint. The record is written after each part.

The size of ImageNet-1k on a GPU, with 36 GB of files in the folder, in less than ten minutes:
`python benchmarks/host_store.py --samples 1281167 --device cuda --out results/host-store-h200.json`.
On a machine without one, `--fill` writes the anchors without training, and `--batches` shortens the timed epochs.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vista import Vista
from vista.core.store import WrittenOnce
from vista.runs.checkpoint import Checkpoints
from vista.runs.environment import environment

FEATURES, VALIDATION, STEP_SECONDS, TIMED = 64, 2000, 0.02, 60
FILLED = 2048  # samples written at a time with --fill
PEAK = """
import sys
from pathlib import Path
from vista.runs.checkpoint import Checkpoints
def peak():
    [line] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024
open("/proc/self/clear_refs", "w").write("5")  # the peak before is that of the process that started this one
before = peak()
for rows in Checkpoints(Path(sys.argv[1])).load_newest()["rows"].values():
    for part in rows.split(4096):
        part.float().sum()
print(peak() - before)
"""
SHARED = """
import sys
from pathlib import Path
from vista.core.host_store import map_rows
import torch
files = sorted(Path(sys.argv[1]).glob("*.safetensors"))
rows = [map_rows(file, (int(sys.argv[2]), int(sys.argv[3])), torch.float16) for file in files]
for state in rows:
    for part in state.split(4096):
        part.view(torch.int16).sum()
print("ready", flush=True)
sys.stdin.readline()
total, mine = 0, False
for line in open("/proc/self/smaps"):
    if "-" in line.split()[0]:
        mine = ".safetensors" in line
    if mine and line.startswith("Pss:"):
        total += int(line.split()[1]) * 1024
print(total, flush=True)
sys.stdin.readline()
"""


def batches(options: argparse.Namespace, epoch: int, most: int | None = None, first: int = 0) -> Iterator[Tensor]:
    order = torch.randperm(options.samples, generator=torch.Generator().manual_seed(epoch))
    return islice(order.split(options.batch), first, None if most is None else first + most)


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Training:
    """A small network on features that are made from the index of a sample."""

    def __init__(self, options: argparse.Namespace, vista: Vista | None) -> None:
        self.options, self.vista, self.device = options, vista, torch.device(options.device)
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, options.classes))
        self.network = network.to(self.device)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1)
        self.table = torch.randn(4096, FEATURES, device=self.device)

    def logits(self, index: Tensor) -> Tensor:
        return self.network(self.table[(index % 4096).to(self.device)])

    def epoch(self, epoch: int) -> float:
        """Seconds of an epoch, without its end; extrapolated if only some batches are timed."""
        synchronise(self.device)
        coming, steps = batches(self.options, epoch, self.options.batches), 0
        index, began = next(coming, None), time.perf_counter()
        while index is not None:
            following = next(coming, None)
            logits = self.logits(index)
            if self.vista is None:
                loss = nn.functional.cross_entropy(logits, (index % self.options.classes).to(self.device))
            else:
                loss = self.vista.loss(logits, index)
                if following is not None:
                    self.vista.prefetch(following)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            index, steps = following, steps + 1
        synchronise(self.device)
        return (time.perf_counter() - began) / steps * -(-self.options.samples // self.options.batch)

    def fill(self) -> None:
        """Store a prediction of every sample without training."""
        assert self.vista is not None
        logits = torch.randn(FILLED, self.options.classes, device=self.device)
        for index in torch.arange(self.options.samples).split(FILLED):
            self.vista.record(logits[: len(index)], index)


def loss_seconds(training: Training, prefetched: bool, plain: bool = False) -> float:
    """Lower quartile of the seconds of ``loss`` of a batch; the network is a pause, in which one can be gathered.

    No batch comes twice in the epoch: rows of samples that were stored before are written one by one.
    """
    vista, times = training.vista, []
    assert vista is not None
    for number, index in enumerate(batches(training.options, 999, TIMED, first=0 if prefetched else TIMED)):
        logits = training.logits(index).detach().requires_grad_()
        targets = torch.softmax(logits.detach(), dim=1) if plain else None
        if prefetched:
            vista.prefetch(index)
        time.sleep(STEP_SECONDS)
        synchronise(training.device)
        began = time.perf_counter()
        vista.loss(logits, index, targets)
        synchronise(training.device)
        if number >= 10:
            times.append(time.perf_counter() - began)
    return float(np.percentile(times, 25))  # the speed of a shared machine drifts


def shared_over_one(folder: Path, options: argparse.Namespace) -> float:
    """Memory of the mapped files in four processes over that in one, by proportional set size."""
    sizes = []
    for count in (1, 4):
        command = [sys.executable, "-c", SHARED, str(folder), str(options.samples), str(options.classes)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        readers = [subprocess.Popen(command, **pipes) for _ in range(count)]
        for reader in readers:
            reader.stdout.readline()
        for reader in readers:
            print(file=reader.stdin, flush=True)
        sizes.append(sum(int(reader.stdout.readline()) for reader in readers))
        for reader in readers:
            reader.communicate("\n")
    return sizes[1] / sizes[0]


def resume_peak_over_blobs(folder: Path, vista: Vista) -> float:
    rows = WrittenOnce({str(epoch): file for epoch, file in vista.files().items()})
    Checkpoints(folder).save("epoch-00001-step-0000000", {"rows": rows}, wait=True)
    said = subprocess.run([sys.executable, "-c", PEAK, str(folder)], capture_output=True, text=True, check=True).stdout
    return int(said) / sum(path.stat().st_size for path in (folder / "blobs").iterdir())


def end_epoch(training: Training, epoch: int) -> tuple[int, float]:
    """End an epoch that is an anchor of its own; return the number of anchors, and the seconds it took.

    Of N anchors, each gets other validation samples right; epoch N + 1 the same as the first.
    """
    vista, options = training.vista, training.options
    assert vista is not None
    labels = torch.arange(VALIDATION) % options.classes
    right = torch.arange(VALIDATION) % options.anchors == (epoch - 1) % options.anchors
    val_logits = nn.functional.one_hot(torch.where(right, labels, (labels + 1) % options.classes))
    began = time.perf_counter()
    summary = vista.end_epoch(val_logits.float().to(options.device))
    return len(summary.anchors), time.perf_counter() - began


def epoch_and_peak(training: Training, epoch: int) -> tuple[float, int]:
    """The seconds of an epoch, and the peak of device memory meanwhile."""
    if training.device.type != "cuda":
        return training.epoch(epoch), 0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(training.device)
    return training.epoch(epoch), torch.cuda.max_memory_allocated(training.device)


def measure(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the results of each part."""
    labels = torch.arange(options.samples) % options.classes
    val_labels = torch.arange(VALIDATION) % options.classes
    plain = Training(options, None)
    plain.epoch(0)  # a warm-up
    plain_epoch, plain_peak = epoch_and_peak(plain, 0)
    del plain
    yield {
        "samples": options.samples,
        "classes": options.classes,
        "batch": options.batch,
        "bytes_per_state": options.samples * options.classes * 2,
        "filled_without_training": options.fill,
        "epoch_of_cross_entropy_seconds": plain_epoch,
    }
    vista = Vista(
        labels, num_classes=options.classes, epochs=options.anchors + 2, val_labels=val_labels, device=options.device,
        store="host", store_dir=folder / "store",
    )  # fmt: skip
    vista.expects_every_sample = False  # where only some batches are timed
    training, epochs, ends = Training(options, vista), list[float](), list[float]()
    for epoch in range(1, options.anchors + 1):
        if options.fill:
            training.fill()
        else:
            epochs.append(training.epoch(epoch))
        anchors, seconds = end_epoch(training, epoch)
        ends.append(seconds)
        print(f"epoch {epoch}: {anchors} anchors, end {seconds:.1f} s", file=sys.stderr, flush=True)
    with_all, peak = epoch_and_peak(training, options.anchors + 1)
    yield {
        "anchors": anchors,
        "epoch_seconds_by_anchors": epochs,
        "epoch_with_all_anchors_seconds": with_all,
        "end_of_epoch_seconds": float(np.median(ends)),
        **({"device_megabytes": (peak - plain_peak) / 1e6} if training.device.type == "cuda" else {}),
    }
    end_epoch(training, options.anchors + 1)
    given = loss_seconds(training, prefetched=False, plain=True)
    extra = {name: loss_seconds(training, ahead) - given for name, ahead in (("", False), ("_prefetched", True))}
    yield {
        "loss_with_given_targets_ms": given * 1e3,
        "extra_per_loss_ms": extra[""] * 1e3,
        "extra_per_prefetched_loss_ms": extra["_prefetched"] * 1e3,
    }
    yield {"resume_peak_over_blobs": resume_peak_over_blobs(folder, vista)}
    vista.close()
    del vista, training  # they map the same files
    gc.collect()
    yield {"memory_of_4_processes_over_1": shared_over_one(folder / "blobs", options)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=40_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--anchors", type=int, default=12)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batches", type=int, help="of each timed epoch; all by default")
    parser.add_argument("--fill", action="store_true", help="write the anchors without training")
    parser.add_argument("--folder", help="where the files are made; a temporary folder by default")
    parser.add_argument("--out", type=Path, help="write a record")
    options = parser.parse_args()
    record: dict[str, Any] = {"what": "host-store", "environment": environment(torch.device(options.device))}
    record["result"] = {}
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="host-store-") as folder:
        for part in measure(options, Path(folder)):
            record["result"] |= part
            print(json.dumps(part, indent=1), flush=True)
            if options.out:
                options.out.write_text(f"{json.dumps(record, indent=1, sort_keys=True)}{os.linesep}")


if __name__ == "__main__":
    main()
