"""Build a folder of images in which some are filed under the wrong class, from fixed CIFAR-100 images.

    python benchmarks/misfiled_folder.py --root DATA --out misfiled
    python benchmarks/misfiled_folder.py --root DATA --out misfiled-photos --sizes 40 600
    vista train --data folder:misfiled

`train/` has 1,000 images, 100 of each of 10 classes, of which 15 % are in the folder of another class; `test/` has
1,000 other images, all correctly filed. Classes, images and misfilings depend on the seed alone. `misfiled.csv` in the
output folder lists the wrong ones: file and true class. With --sizes, each image is saved again at a random size, as
PNG, JPEG (colour, greyscale, CMYK or with an EXIF rotation) or WebP, like photos from many sources.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from PIL import ExifTags, Image

from vista.data import load

CLASSES, PER_CLASS, TEST_PER_CLASS = 10, 100, 100
MISFILED = 0.15
SEED = 22
KINDS = ("png", "jpg", "jpg grey", "jpg cmyk", "jpg rotated", "webp")


@dataclass(frozen=True)
class Arguments:
    out: str
    """Folder to create."""
    root: str | None = None
    """Folder of the data sets, with cifar-100-python in it."""
    sizes: tuple[int, int] | None = None
    """Save images again with sides between these numbers of pixels, in several formats and modes."""
    seed: int = SEED
    """Decides classes, images, misfilings, sizes and formats."""


def build(out: Path, root: str | None = None, sizes: tuple[int, int] | None = None, seed: int = SEED) -> int:
    """Write the folder; returns the number of misfiled images.

    Args:
        out: Folder to create.
        root: Folder of the data sets.
        sizes: Smallest and largest side; None saves the images unchanged, as PNG.
        seed: Decides everything that is random.
    """
    if out.exists():
        raise FileExistsError(f"{out} already exists; choose another --out")
    data, draws = load("cifar100", root), np.random.default_rng(seed)
    chosen = np.sort(draws.choice(data.num_classes, CLASSES, replace=False))
    names = [data.classes[label] for label in chosen]
    ids = np.concatenate([draws.choice(np.flatnonzero(data.labels == c), PER_CLASS, replace=False) for c in chosen])
    true = np.repeat(np.arange(CLASSES), PER_CLASS)
    wrong = draws.choice(len(ids), int(MISFILED * len(ids)), replace=False)
    filed = true.copy()
    filed[wrong] = (true[wrong] + draws.integers(1, CLASSES, len(wrong))) % CLASSES
    rows = []
    for sample, label, place in zip(ids, true, filed, strict=True):
        file = save(data.inputs[sample], out / "train" / names[place] / f"{sample:05d}", sizes, draws)
        if label != place:
            rows.append((file.relative_to(out).as_posix(), names[label]))
    for label, name in zip(chosen, names, strict=True):
        for sample in np.flatnonzero(data.test_labels == label)[:TEST_PER_CLASS]:
            save(data.test_inputs[sample], out / "test" / name / f"{sample:05d}", sizes, draws)
    with (out / "misfiled.csv").open("w", newline="", encoding="utf-8") as table:
        csv.writer(table).writerows([("file", "true"), *sorted(rows)])
    return len(rows)


def save(pixels: np.ndarray, stem: Path, sizes: tuple[int, int] | None, draws: np.random.Generator) -> Path:
    """Save an image; its suffix depends on the format drawn."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels)
    if sizes is None:
        image.save(path := stem.with_suffix(".png"))
        return path
    width, height = (int(side) for side in draws.integers(sizes[0], sizes[1] + 1, 2))
    image = image.resize((width, height), Image.Resampling.BICUBIC)
    suffix, _, variant = KINDS[draws.integers(len(KINDS))].partition(" ")
    exif = Image.Exif()
    if variant == "rotated":
        exif[ExifTags.Base.Orientation] = 6  # viewers rotate by 90 degrees clockwise
        image = image.transpose(Image.Transpose.ROTATE_90)
    elif variant:
        image = image.convert({"grey": "L", "cmyk": "CMYK"}[variant])
    image.save(path := stem.with_suffix(f".{suffix}"), exif=exif)
    return path


def main() -> None:
    args = tyro.cli(Arguments, description=__doc__)
    count = build(Path(args.out).expanduser(), args.root, args.sizes, args.seed)
    print(f"{args.out}: {CLASSES * PER_CLASS:,} training images, {count} of them misfiled")


if __name__ == "__main__":
    main()
