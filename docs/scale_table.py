"""Write the tables of docs/scale.md: ``python docs/scale_table.py``."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

from vista.core.store import readable
from vista.reproduce.results_page import Mean, format_gain
from vista.training.capacity import Workload, needs

PAGE = Path(__file__).parent / "scale.md"
RESULTS = PAGE.parents[1] / "results"
TABLE = re.compile(r"(<!-- (scale|measured|topk) -->\n).*?(<!-- end -->)", re.DOTALL)
RESNET50 = 102_228_128  # bytes of float32 weights and buffers with 1000 classes
RATE = 1600.0  # images per second and GPU: 2e13 operations per second, 4.1e9 for an image forward, times 3
IMAGENET = Workload(
    samples=1_281_167, validation=50_000, classes=1000, epochs=100, batch_size=1024, sample_bytes=256 * 256 * 3,
    weights=RESNET50, rate=RATE,
)  # fmt: skip
WORKLOADS = {
    "ImageNet-1k (1.28 M x 1000)": IMAGENET,
    "ImageNet-1k, topk=20": dataclasses.replace(IMAGENET, kept=20),
    "ImageNet-21k (13.5 M x 21,841)": dataclasses.replace(
        IMAGENET, samples=13_500_000, validation=100_000, classes=21_841, weights=RESNET50 + 4 * 2049 * 20_841
    ),
    "ImageNet-21k, topk=20": dataclasses.replace(
        IMAGENET, samples=13_500_000, validation=100_000, classes=21_841, weights=RESNET50 + 4 * 2049 * 20_841, kept=20
    ),
}


def table() -> str:
    """One row per workload and number of GPUs."""
    names = (
        "data",
        "GPUs",
        "one state",
        "predictions and targets",
        "disk",
        "gradients sent per epoch",
        "hours of 100 epochs",
    )
    lines = [f"| {' | '.join(names)} |", "|---|" + "--:|" * (len(names) - 1)]
    for name, work in WORKLOADS.items():
        for devices in (1, 8, 64):
            found = needs(work, devices)
            assert found.run is not None
            cells = [str(devices), *map(readable, (found.state, found.predictions, found.disk, found.gradients)),
                     f"{found.run / 3600:,.1f}"]  # fmt: skip
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


STORE = "{samples:,} x {classes}, {anchors} anchors, batch {batch}"
H200 = f"one H200: {STORE}"
MEASURED = (  # record, of what, what, value
    ("host-store", STORE, "extra time of `loss`, rows prefetched", "{extra_per_prefetched_loss_ms:.1f} ms"),
    ("host-store", STORE, "extra time of `loss`, not prefetched", "{extra_per_loss_ms:.1f} ms"),
    ("host-store", STORE, "memory of the files, 4 processes over 1", "{memory_of_4_processes_over_1:.2f}"),
    ("host-store", STORE, "peak of resuming over the files", "{resume_peak_over_blobs:.2f}"),
    ("host-store-imagenet", STORE, "memory of the files, 4 processes over 1", "{memory_of_4_processes_over_1:.2f}"),
    ("host-store-imagenet", STORE, "peak of resuming over the files", "{resume_peak_over_blobs:.2f}"),
    ("host-store-imagenet", STORE, "end of an epoch, one state written", "{end_of_epoch_seconds:.0f} s"),
    ("host-store-h200", H200, "epoch of cross-entropy, without its end", "{epoch_of_cross_entropy_seconds:.1f} s"),
    ("host-store-h200", H200, "the same of VISTA, all anchors, prefetched", "{epoch_with_all_anchors_seconds:.1f} s"),
    ("host-store-h200", H200, "end of an epoch, one state written", "{end_of_epoch_seconds:.1f} s"),
    ("host-store-h200", H200, "device memory beyond plain training", "{device_megabytes:.0f} MB"),
    ("host-store-h200", H200, "extra time of `loss`, rows prefetched", "{extra_per_prefetched_loss_ms:.1f} ms"),
    ("host-store-h200", H200, "extra time of `loss`, not prefetched", "{extra_per_loss_ms:.1f} ms"),
    ("host-store-h200", H200, "memory of the files, 4 processes over 1", "{memory_of_4_processes_over_1:.2f}"),
    ("host-store-h200", H200, "peak of resuming over the files", "{resume_peak_over_blobs:.2f}"),
    ("large-folder", "{images:,} photos, 200 GB decoded", "start to first step", "{first_start_seconds:.0f} s"),
    ("large-folder", "the same", "again", "{second_start_seconds:.0f} s"),
    ("lost-node", "Ray, two nodes on one machine, one killed", "noticed", "{noticed_seconds:.0f} s"),
    ("lost-node", "the same", "its run trains again on the other", "{training_again_seconds:.0f} s"),
)


def measured() -> str:
    """One row per measurement, with its record."""
    lines = ["| of | what | measured | record |", "|---|---|--:|---|"]
    for name, *cells in MEASURED:
        result = json.loads((RESULTS / f"{name}.json").read_text())["result"]
        lines.append(f"| {' | '.join(cell.format(**result) for cell in cells)} | `{name}.json` |")
    return "\n".join(lines)


def topk() -> str:
    """One row per number of kept probabilities: accuracy and ECE of the last epoch, and the differences."""
    names = ("probabilities kept", "test accuracy, last epoch", "difference", "ECE", "difference", "bytes per sample")
    lines = [f"| {' | '.join(names)} |", "|---|" + "--:|" * (len(names) - 1)]
    for row in json.loads((RESULTS / "topk.json").read_text())["rows"]:
        kept, seeds = row["kept"], len(row["runs"])
        cells = ["all 100" if kept is None else f"{kept}"]
        for name in ("last", "ece_last"):
            gain = f"{name}_minus_all"
            cells += [str(Mean(*row[name], seeds)), format_gain(Mean(*row[gain], seeds) if gain in row else None)]
        lines.append(f"| {' | '.join([*cells, str(200 if kept is None else 4 * kept)])} |")
    return "\n".join(lines)


def page() -> str:
    """The page with the tables as they are now."""
    tables = {"scale": table, "measured": measured, "topk": topk}
    return TABLE.sub(lambda found: f"{found[1]}\n{tables[found[2]]()}\n\n{found[3]}", PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(page())
