"""The 1797 handwritten digits that scikit-learn ships: real data on every machine, no download."""

from pathlib import Path

import numpy as np

from vista.data.source import Source
from vista.split import stratified

TEST_SIZE = 450
_TEST_SEED = 1797  # one test set for every seed of a run


def load(root: str | Path | None = None) -> Source:
    """1347 training and 450 test images, uint8 [N, 8, 8, 1]; they come with scikit-learn, so `root` is not needed."""
    # Imported here: it takes a second, and only this source needs it.
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    shipped = load_digits()
    images = np.rint(shipped.images * (255 / 16)).astype(np.uint8)[..., None]
    labels = shipped.target.astype(np.int64)
    part = stratified(labels, TEST_SIZE, _TEST_SEED)
    return Source(
        name="digits",
        train_inputs=images[part.train],
        train_labels=labels[part.train],
        test_inputs=images[part.val],
        test_labels=labels[part.val],
        classes=tuple(str(digit) for digit in range(10)),
        mean=(0.3057,),
        std=(0.3763,),
        flip=False,  # a mirrored 2 is no digit
        padding=1,
    )
