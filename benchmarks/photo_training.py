"""Speed of training a ResNet-50 on 10,000 photos, from JPEG files to epochs.

    python benchmarks/photo_training.py --out results/photo-training.json
    python benchmarks/photo_training.py --count 80 --image-size 32 --network small-cnn --batch-size 16    # tries it out

Generates the photos, decodes them into the pixel file, starts again from it, and trains as `vista train --data
folder:photos` does: all photos in device memory, then with batches that threads read ahead from the pixel file.
The record is written after each step, so that an interrupted call leaves what was measured before.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import decoding
import torch
import tyro

from vista.data import folder, loader
from vista.runs.config import TrainConfig
from vista.runs.environment import environment
from vista.runs.folder import RunFolder
from vista.training.resolve import device_name, resolve
from vista.training.scheduler import Job, run_jobs


@dataclass(frozen=True)
class Arguments:
    count: int = 10_000
    """Photos in the folder."""
    image_size: int = 224
    """Working resolution."""
    network: str = "resnet50"
    """The network."""
    batch_size: int = 256
    """Photos per step."""
    epochs: int = 4
    """Epochs of each run; the first, which captures the step, is not timed."""
    methods: tuple[str, ...] = ("ce", "vista-light")
    """What is trained with all photos in device memory; the last is then trained from the pixel file."""
    device: str = "auto"
    """cpu, cuda ..."""
    out: str | None = None
    """File of the record."""


def train(config: TrainConfig, out: Path, streams: bool) -> dict[str, Any]:
    """Median speed of an epoch after the first, augmentation and recording included, with and without evaluation."""
    limits = loader.MAX_MEMORY_SHARE, folder._IN_MEMORY
    if streams:  # as if the photos fitted neither into GPU memory nor into that of the host
        loader.MAX_MEMORY_SHARE, folder._IN_MEMORY = 0.0, 0
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    try:
        job = Job(config, out)
        run_jobs([job], lambda _job, _event: None)
    finally:
        loader.MAX_MEMORY_SHARE, folder._IN_MEMORY = limits
    if job.error is not None:
        raise job.error
    run = RunFolder(out)
    samples, timings = run.data().samples["train"], run.record().timings[1:]
    seconds = statistics.median(timing["train_seconds"] for timing in timings)
    return {
        "method": config.method,
        "photos_in": "pixel file" if streams else "device memory",
        "train_samples": samples,
        "images_per_second": samples / seconds,
        "train_seconds": seconds,
        "evaluate_seconds": statistics.median(timing["evaluate_seconds"] for timing in timings),
        "peak_gpu_bytes": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None,
    }


def main(args: Arguments) -> None:
    device = torch.device(device_name(args.device))
    record: dict[str, Any] = {
        "what": f"{args.network} at {args.image_size} px on {args.count:,} photos, JPEG of 500 x 375 pixels",
        "environment": environment(device),
    }

    def keep(name: str, value: Any) -> None:
        record[name] = value
        print(json.dumps({name: value}), flush=True)
        if args.out is not None:
            Path(args.out).parent.mkdir(parents=True, exist_ok=True)
            Path(args.out).write_text(json.dumps(record, indent=1) + "\n")

    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        decoding.write_photos(root, args.count)
        keep("decoding", decoding.measure(root, args.count, args.image_size))
        config = TrainConfig(
            data=f"folder:{root / 'photos'}", network=args.network, image_size=args.image_size, epochs=args.epochs,
            batch_size=args.batch_size, device=args.device, validation=0.1,
        )  # fmt: skip
        rows: list[dict[str, Any]] = []
        for number, method in enumerate((*args.methods, args.methods[-1])):
            wanted = replace(config, method=method)
            rows.append(train(wanted, root / "runs" / str(number), streams=number == len(args.methods)))
            rows[-1]["precision"] = resolve(wanted).config.precision
            keep("rows", rows)


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
