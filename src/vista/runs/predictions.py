"""The predictions that a finished run keeps: of its training samples during training, and its final logits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vista.files import array_file, atomic
from vista.files.reader import DamagedFile

FILE = "predictions.safetensors"
FORMAT, VERSION = "vista.predictions", "1"
CLASSES, MEAN = "classes", "mean"


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions of a run, in the order of its split.

    Attributes:
        classes: Class predicted for each training sample in each epoch, ``[epochs, N]``, -1 where there is none.
        mean: Mean predicted probabilities of the training pass ``[N, K]``, float16; ``[N, 0]`` for very large data.
        logits: Final logits float32 by name: ``best.val``, ``best.test``, ``last.val``, ``last.test``, and for a
            method that fuses predictions ``fused.val`` and ``fused.test`` (log-probabilities).
    """

    classes: NDArray[Any]
    mean: NDArray[np.float16]
    logits: dict[str, NDArray[np.float32]]

    def save(self, folder: Path) -> None:
        """Write the file into a run folder, atomically."""
        arrays = {CLASSES: self.classes, MEAN: self.mean, **{f"logits.{name}": v for name, v in self.logits.items()}}
        atomic.write(folder / FILE, array_file.to_bytes(arrays, FORMAT, VERSION))

    @classmethod
    def load(cls, folder: Path) -> Predictions:
        """Read the file of a run folder; a run made before predictions were kept has none."""
        path = folder / FILE
        if not path.exists():
            raise FileNotFoundError(
                f"{folder} has no {FILE}: the run has not finished, or was made before predictions were kept"
            )
        arrays, _ = array_file.read(path, FORMAT, VERSION)
        if CLASSES not in arrays or MEAN not in arrays:
            raise DamagedFile(path, f"it lacks {CLASSES!r} or {MEAN!r}")
        logits = {name.removeprefix("logits."): v for name, v in arrays.items() if name.startswith("logits.")}
        return cls(arrays[CLASSES], arrays[MEAN], logits)
