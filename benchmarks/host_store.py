"""Measure the store on the host: `python benchmarks/host_store.py --out results/host-store.json`.

Trains a small network on random features for as many epochs as there are anchors, with `Vista(store="host")`, and
measures what the store adds to the loss of a batch, to an epoch and to the end of an epoch; what device memory it
takes; how much memory processes share; and the peak of reading a checkpoint. The size of ImageNet-1k on a GPU:
`python benchmarks/host_store.py --samples 1281167 --device cuda --out results/host-store-h200.json`.
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


def batches(samples: int, batch: int, epoch: int) -> Iterator[Tensor]:
    return iter(torch.randperm(samples, generator=torch.Generator().manual_seed(epoch)).split(batch))


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
        """Seconds of an epoch, without its end."""
        synchronise(self.device)
        began, coming = time.perf_counter(), batches(self.options.samples, self.options.batch, epoch)
        index = next(coming, None)
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
            index = following
        synchronise(self.device)
        return time.perf_counter() - began


def loss_seconds(training: Training, prefetched: bool, plain: bool = False) -> float:
    """Lower quartile of the seconds of ``loss`` of a batch; the network is a pause, in which one can be gathered."""
    vista, times = training.vista, []
    assert vista is not None
    coming = batches(training.options.samples, training.options.batch, 999)
    for number, index in zip(range(TIMED), coming, strict=False):
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


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    labels = torch.arange(options.samples) % options.classes
    val_labels = torch.arange(VALIDATION) % options.classes
    arguments: dict[str, Any] = {
        "num_classes": options.classes, "epochs": options.anchors + 1, "val_labels": val_labels, "store": "host",
        "store_dir": folder / "store",
    }  # fmt: skip
    vista = Vista(labels, device=options.device, **arguments)
    training, plain = Training(options, vista), Training(options, None)
    plain_epoch, epochs, ends = plain.epoch(0), [], []
    for epoch in range(1, options.anchors + 1):
        epochs.append(training.epoch(epoch))
        right = torch.arange(VALIDATION) % options.anchors == epoch - 1  # each epoch gets other samples right
        val_logits = nn.functional.one_hot(torch.where(right, val_labels, (val_labels + 1) % options.classes))
        began = time.perf_counter()
        summary = vista.end_epoch(val_logits.float().to(options.device))
        ends.append(time.perf_counter() - began)
    if training.device.type == "cuda":
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
    given = loss_seconds(training, prefetched=False, plain=True)
    extra = {name: loss_seconds(training, ahead) - given for name, ahead in (("", False), ("_prefetched", True))}
    peak, anchors = resume_peak_over_blobs(folder, vista), len(summary.anchors)
    result = {
        "samples": options.samples,
        "classes": options.classes,
        "batch": options.batch,
        "anchors": anchors,
        "bytes_per_state": options.samples * options.classes * 2,
        "loss_with_given_targets_ms": given * 1e3,
        "extra_per_loss_ms": extra[""] * 1e3,
        "extra_per_prefetched_loss_ms": extra["_prefetched"] * 1e3,
        "epoch_of_cross_entropy_seconds": plain_epoch,
        "epoch_with_all_anchors_seconds": epochs[-1],
        "end_of_epoch_seconds": float(np.median(ends)),
        "resume_peak_over_blobs": peak,
    }
    if training.device.type == "cuda":
        network = sum(p.nbytes for p in training.network.parameters()) * 2 + training.table.nbytes
        result["device_megabytes"] = (before - network) / 1e6
    vista.close()
    del vista, training, summary  # they map the same files
    gc.collect()
    return {**result, "memory_of_4_processes_over_1": shared_over_one(folder / "blobs", options)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=40_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--anchors", type=int, default=12)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--folder", help="where the files are made; a temporary folder by default")
    parser.add_argument("--out", type=Path, help="write a record")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="host-store-") as folder:
        result = measure(options, Path(folder))
    record = {"what": "host-store", "environment": environment(torch.device(options.device)), "result": result}
    text = json.dumps(record, indent=1, sort_keys=True)
    print(text)
    if options.out:
        options.out.write_text(f"{text}{os.linesep}")


if __name__ == "__main__":
    main()
