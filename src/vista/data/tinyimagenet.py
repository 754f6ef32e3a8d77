"""Read TinyImageNet in its official layout. Its validation part serves as test set, since its labels are public."""

from pathlib import Path

import numpy as np

from vista.data.decoding import decode_cached
from vista.data.source import Source, data_folder

FOLDER = "tiny-imagenet-200"
_SHAPE = (64, 64, 3)  # greyscale images are converted to RGB


def load(root: str | Path | None) -> Source:
    """Read 100,000 training and 10,000 test images, uint8 [N, 64, 64, 3], decoded once into a cache file."""
    folder = data_folder(root, "tinyimagenet", FOLDER)
    wnids = sorted(_lines(folder / "wnids.txt"))
    train, train_labels = _train_files(folder, wnids)
    test, test_labels = _test_files(folder, wnids)
    pixels = decode_cached(train + test, folder.with_name(f"{FOLDER}.pixels"), _SHAPE, folder)
    return Source(
        name="tinyimagenet",
        inputs=pixels[: len(train)],
        labels=train_labels,
        test_inputs=pixels[len(train) :],
        test_labels=test_labels,
        classes=_class_names(folder, wnids),
        mean=(0.4802, 0.4481, 0.3975),
        std=(0.2770, 0.2691, 0.2821),
    )


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing from the official layout of {FOLDER}")
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _train_files(folder: Path, wnids: list[str]) -> tuple[list[Path], np.ndarray]:
    files: list[Path] = []
    labels: list[int] = []
    for label, wnid in enumerate(wnids):
        images = folder / "train" / wnid / "images"
        found = sorted(images.glob("*.JPEG"))
        if not found:
            raise FileNotFoundError(f"{images} contains no images, but wnids.txt lists the class {wnid}")
        files += found
        labels += [label] * len(found)
    return files, np.array(labels, dtype=np.int64)


def _test_files(folder: Path, wnids: list[str]) -> tuple[list[Path], np.ndarray]:
    """Return the files and labels of val_annotations.txt, whose lines are `file <tab> wnid <tab> box`."""
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    annotations = folder / "val" / "val_annotations.txt"
    files: list[Path] = []
    labels: list[int] = []
    for number, line in enumerate(_lines(annotations), 1):
        name, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0]
        if wnid not in label_of:
            raise ValueError(f"{annotations}, line {number}: class {wnid!r} is not in wnids.txt")
        path = folder / "val" / "images" / name
        if Path(name).name != name or not path.is_file():
            raise ValueError(f"{annotations}, line {number}: image {name!r} is not in val/images")
        files.append(path)
        labels.append(label_of[wnid])
    if not files:
        raise ValueError(f"{annotations} lists no images")
    return files, np.array(labels, dtype=np.int64)


def _class_names(folder: Path, wnids: list[str]) -> tuple[str, ...]:
    """Return the first name that words.txt lists for each class."""
    words = dict(line.split("\t", 1) for line in _lines(folder / "words.txt") if "\t" in line)
    return tuple(words.get(wnid, wnid).split(",")[0].strip() for wnid in wnids)
