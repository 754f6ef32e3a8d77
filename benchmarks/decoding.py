"""Speed of decoding photos, and of starting with photos that are decoded already.

    python benchmarks/decoding.py      # writes results/decoding.json

The photos are generated: JPEG of 500 x 375 pixels, quality 90. Decoding includes the resize, hashes and statistics.
Rates are per second of processor time, which other work on the machine hardly changes; the wall clock is recorded too.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from PIL import Image

from vista.data import folder, load, pixel_file
from vista.runs.environment import environment

WIDTH, HEIGHT, QUALITY = 500, 375, 90
DISTINCT = 200  # different photos; the others are links to them
CLASSES = 10


@dataclass(frozen=True)
class Arguments:
    count: int = 10_000
    """Photos in the folder."""
    sizes: tuple[int, ...] = (64, 224)
    """Working resolutions."""
    out: str = "results/decoding.json"
    """File of the record."""


def write_photos(root: Path, count: int) -> None:
    """Smooth shapes with a little noise, about as large on disk as photos of that size."""
    draws, originals = np.random.default_rng(0), root / "originals"
    originals.mkdir(parents=True)
    for number in range(DISTINCT):
        coarse = Image.fromarray(draws.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)).astype(np.int16)
        pixels = (smooth + draws.normal(0, 8, smooth.shape)).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(originals / f"{number}.jpg", quality=QUALITY)
    for number in range(count):
        file = root / "photos" / f"class{number % CLASSES}" / f"{number:05d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.hardlink_to(originals / f"{number % DISTINCT}.jpg")


def timed(what: Callable[[], Any]) -> dict[str, float]:
    """Seconds of processor time and of the wall clock."""
    wall, processor = time.perf_counter(), time.process_time()
    what()
    return {"processor_seconds": time.process_time() - processor, "seconds": time.perf_counter() - wall}


def measure(root: Path, count: int, size: int) -> dict[str, Any]:
    """Decode the folder, then load it as a new process would."""

    def read() -> None:
        folder._read.cache_clear()
        load(f"folder:{root / 'photos'}", image_size=size)

    decoding = timed(read)
    starting = min((timed(read) for _ in range(3)), key=lambda each: each["seconds"])
    return {
        "image_size": size,
        "stored_size": pixel_file.stored_size(size),
        "images_per_core_and_second": count / decoding["processor_seconds"],
        "decoding": decoding,
        "starting": starting,
        "pixel_file_bytes": (root / f"photos.{size}px.pixels").stat().st_size,
    }


def main(args: Arguments) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_photos(root, args.count)
        mean_bytes = float(np.mean([file.stat().st_size for file in (root / "originals").iterdir()]))
        rows = [measure(root, args.count, size) for size in args.sizes]
    record = {
        "what": f"decoding {args.count:,} JPEG of {WIDTH} x {HEIGHT} pixels, and starting when they are decoded",
        "photos": args.count,
        "mean_bytes": mean_bytes,
        "environment": environment(torch.device("cpu")),
        "rows": rows,
    }
    Path(args.out).write_text(json.dumps(record, indent=1) + "\n")
    for row in rows:
        print(
            f"{row['image_size']} px: {row['images_per_core_and_second']:.0f} images per core and second, "
            f"start in {row['starting']['seconds']:.1f} s"
        )


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
