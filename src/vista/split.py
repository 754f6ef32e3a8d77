"""Training and validation parts as saved, hashed artefacts: a pure function of the labels, a size and a seed."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vista.files import array_file, atomic

FORMAT = "vista.split"
VERSION = "1"
_STREAM = 0x73706C69  # keeps the split's draws apart from every other use of the same seed


@dataclass(frozen=True, eq=False)
class Split:
    """Ids of the training and of the validation samples: each ascending, and none in both."""

    train: np.ndarray  # int64 [n]
    val: np.ndarray  # int64 [m]

    @property
    def hash(self) -> str:
        """SHA-256 of both lists of positions."""
        digest = hashlib.sha256(json.dumps([FORMAT, VERSION, len(self.train), len(self.val)]).encode())
        for positions in (self.train, self.val):
            digest.update(positions.astype("<i8").tobytes())
        return digest.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write a safetensors file; it appears under its name only when complete."""
        content = array_file.to_bytes({"train": self.train, "val": self.val}, FORMAT, VERSION, hash=self.hash)
        atomic.write(Path(path), content)

    @classmethod
    def load(cls, path: str | Path) -> "Split":
        """Read what `save` wrote; a damaged file or another format is refused by name."""
        arrays, about = array_file.read(path, FORMAT, VERSION)
        try:
            split = cls(arrays["train"], arrays["val"])
        except KeyError as error:
            raise ValueError(f"{path} is no readable {FORMAT} file: {error} is missing") from error
        if split.hash != about.get("hash"):
            raise ValueError(f"{path} is damaged: its positions hash to {split.hash}, it says {about.get('hash')}")
        return split


def stratified(labels: np.ndarray, fraction: float | int, seed: int) -> Split:
    """Set a share of the labelled samples aside for validation, each class by its share.

    `fraction` in (0, 1) takes m = round(fraction * n) of the n samples that have a label, an int takes m = fraction.
    A class with n_c samples gives floor or ceil of m n_c / n, by largest remainder; those that would be rounded up to
    their last sample come after the others. Label -1 (none) always trains.
    """
    array = np.asarray(labels)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"labels must be integers of shape [N], but they are {array.dtype} of shape {array.shape}")
    wrong = np.flatnonzero(array < -1)
    if len(wrong):
        raise ValueError(f"labels[{wrong[0]}] is {array[wrong[0]]}, but a label is 0 or more, or -1 for none")
    if seed < 0:
        raise ValueError(f"seed is {seed}, but it must be 0 or more")
    classes, counts = np.unique(array[array >= 0], return_counts=True)
    wanted = _size(fraction, int(counts.sum()))
    generator = np.random.default_rng([seed, _STREAM])
    val = [
        generator.permutation(np.flatnonzero(array == label))[:quota]
        for label, quota in zip(classes, _quotas(counts, wanted))
    ]
    held = np.zeros(len(array), dtype=bool)
    held[np.concatenate(val)] = True
    return Split(train=np.flatnonzero(~held).astype(np.int64), val=np.flatnonzero(held).astype(np.int64))


def _size(fraction: float | int, labelled: int) -> int:
    """How many samples are set aside of those that have a label; at least one, and at least one stays."""
    if isinstance(fraction, bool) or not isinstance(fraction, int | float | np.integer | np.floating):
        raise TypeError(f"fraction is {fraction!r}, but it must be a number: a share in (0, 1) or a count of 1 or more")
    counted = isinstance(fraction, int | np.integer)
    if counted and fraction < 1:
        raise ValueError(f"fraction is {fraction}, but as a number of samples it must be 1 or more")
    if not counted and not 0 < fraction < 1:
        raise ValueError(f"fraction is {fraction}, but as a share it must lie between 0 and 1, both excluded")
    wanted = int(fraction) if counted else round(float(fraction) * labelled)
    if wanted == 0:
        raise ValueError(f"fraction {fraction} of {labelled} labelled samples leaves nothing to validate on")
    if wanted >= labelled:
        raise ValueError(f"fraction {fraction} takes {wanted} of {labelled} labelled samples: nothing is left to train")
    return wanted


def _quotas(counts: np.ndarray, wanted: int) -> list[int]:
    """Largest remainder in whole numbers: sums to `wanted`, each within 1 of wanted * n_c / n; ties: lower class.

    A class is rounded up to its last sample only after those that keep one.
    """
    exact = counts.astype(object) * wanted
    total = int(counts.sum())
    quotas = [int(share // total) for share in exact]
    left_over = [int(share % total) for share in exact]
    rounded_up = [c for c in range(len(quotas)) if left_over[c]]
    rounded_up.sort(key=lambda c: (quotas[c] + 1 == counts[c], -left_over[c], c))
    for c in rounded_up[: wanted - sum(quotas)]:
        quotas[c] += 1
    return quotas
