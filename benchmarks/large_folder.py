"""Measure the start on 200 GB of decoded photos: `python benchmarks/large_folder.py --out results/large-folder.json`.

Makes a folder of empty image files with a pixel file of their size, sparse, so that it takes no disk space. Times a
training from the start of its process to the end of its first step: listing and checking the folder, mapping the
pixels, splitting, hashing, building the network.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from vista.data import pixel_file
from vista.runs.environment import environment

IMAGE_SIZE, SUMS = 224, [10**7] * 3
START = """
import resource, sys, time
from vista.runs.config import TrainConfig
from vista.training.events import Stepped
from vista.training.loop import train
config = TrainConfig(
    data=sys.argv[1], image_size=224, network="small-cnn", method="ce", epochs=2, batch_size=32, device="cpu"
)
events = train(config, sys.argv[2])
next(event for event in events if isinstance(event, Stepped))
print(time.time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, flush=True)
import os
os._exit(0)
"""


def make_folder(folder: Path, images: int, classes: int) -> Path:
    """Empty image files, and their pixel file by its own writer, with zeros for the decoded images."""
    for label in range(classes):
        (folder / f"class-{label:04d}").mkdir(parents=True)
    files = [folder / f"class-{i % classes:04d}" / f"{i // classes:05d}.jpg" for i in range(images)]
    files.sort()
    for file in files:
        file.touch()
    size = pixel_file.stored_size(IMAGE_SIZE)

    def decode_nothing(*given: Any) -> list[pixel_file.Entry]:
        given[-1].args[0].seek(images * size * size * 3)
        hashes = (hashlib.sha256(b"%d" % i).hexdigest() for i in range(images))
        return [{"hash": each, "sum": SUMS, "squares": [s * 200 for s in SUMS]} for each in hashes]

    original, pixel_file._decode = pixel_file._decode, decode_nothing
    try:
        path = folder.with_name(f"{folder.name}.{IMAGE_SIZE}px.pixels")
        pixel_file._write(path, files, folder, size, pixel_file.Headers(None, False), False, True)
    finally:
        pixel_file._decode = original
    return path


def measure(folder: Path, images: int, classes: int) -> dict[str, Any]:
    path = make_folder(folder / "photos", images, classes)
    result = {"images": images, "classes": classes, "pixel_file_bytes": path.stat().st_size}
    for name in ("first", "second"):
        began = time.time()
        command = [sys.executable, "-c", START, f"folder:{folder / 'photos'}", str(folder / name)]
        ended, peak = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
        result |= {f"{name}_start_seconds": float(ended) - began, f"{name}_start_peak_bytes": int(peak)}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1_020_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--folder", help="where the files are made; a temporary folder by default")
    parser.add_argument("--out", type=Path, help="file of the record")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="large-folder-") as folder:
        result = measure(Path(folder), options.images, options.classes)
    record = {"what": "large-folder", "environment": environment(torch.device("cpu")), "result": result}
    text = json.dumps(record, indent=1, sort_keys=True)
    print(text)
    if options.out:
        options.out.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
