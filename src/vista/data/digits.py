"""Read the 1797 handwritten digits that scikit-learn ships; no download needed."""

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vista.data.source import Source
from vista.split import stratified

TEST_SIZE = 450
_TEST_SEED = 1797  # the test set is the same for every seed


def load(root: str | Path | None = None) -> Source:
    """Read 1797 images, uint8 [N, 8, 8, 1], 450 of them for testing; `root` is not used."""
    pixels, labels = _read()
    images = np.rint(pixels.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)[..., None]
    test_ids = stratified(labels, TEST_SIZE, _TEST_SEED).val
    return Source(
        name="digits",
        inputs=images,
        labels=labels,
        test_inputs=images,
        test_labels=labels[test_ids],
        classes=tuple(str(digit) for digit in range(10)),
        mean=(0.3057,),
        std=(0.3763,),
        flip=False,  # a mirrored 2 is not a digit
        padding=1,
        test_ids=test_ids,
    )


def _read() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Read pixels from 0 to 16 [N, 64] and labels from scikit-learn's file, since importing it takes two seconds."""
    spec = find_spec("sklearn")
    file = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz" if spec and spec.origin else None
    if file is not None and file.exists():
        with gzip.open(file, "rt") as lines:
            table = np.loadtxt(lines, delimiter=",")
    else:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]

        shipped = load_digits()
        table = np.column_stack([shipped.data, shipped.target])
    return table[:, :-1], table[:, -1].astype(np.int64)
