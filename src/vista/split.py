"""Training and validation split, drawn from labels, a size and a seed; saved in a file with a hash."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vista.files import array_file, atomic

FORMAT = "vista.split"
VERSION = "1"
_STREAM = 0x73706C69  # makes the draws of the split independent of other uses of the seed


@dataclass(frozen=True, eq=False)
class Split:
    """Ids of the training and the validation samples, each ascending, disjoint."""

    train: np.ndarray  # int64 [n]
    val: np.ndarray  # int64 [m]

    @property
    def hash(self) -> str:
        """SHA-256 of both lists of ids."""
        digest = hashlib.sha256(json.dumps([FORMAT, VERSION, len(self.train), len(self.val)]).encode())
        for ids in (self.train, self.val):
            digest.update(ids.astype("<i8").tobytes())
        return digest.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write a safetensors file, atomically."""
        content = array_file.to_bytes({"train": self.train, "val": self.val}, FORMAT, VERSION, hash=self.hash)
        atomic.write(Path(path), content)

    @classmethod
    def load(cls, path: str | Path) -> "Split":
        """Read a file of :meth:`save`; a damaged file or another format raises a ValueError that names it."""
        arrays, about = array_file.read(path, FORMAT, VERSION)
        try:
            split = cls(arrays["train"], arrays["val"])
        except KeyError as error:
            raise ValueError(f"{path} is damaged: {error} is missing") from error
        if split.hash != about.get("hash"):
            raise ValueError(f"{path} is damaged: the hash of its ids must be {about.get('hash')}, got {split.hash}")
        return split


def stratified(labels: np.ndarray, fraction: float | int, seed: int) -> Split:
    """Draw validation samples from every class in proportion to its size.

    A class with n_c of n labelled samples gives floor or ceil of m n_c / n of the m validation samples, by largest
    remainder; classes that would give their last sample are rounded up after the others.

    Args:
        labels: Given labels, ``[N]``; samples with the label -1 (none) are always training samples.
        fraction: Share of the labelled samples in (0, 1), or their number as an int.
        seed: Seed of the draw, at least 0.

    Returns:
        The split.

    >>> stratified(np.array([0, 0, 1, 1]), 0.5, seed=0).val
    array([0, 3])
    """
    array = np.asarray(labels)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"labels must be integers of shape [N], got {array.dtype} of shape {array.shape}")
    wrong = np.flatnonzero(array < -1)
    if len(wrong):
        raise ValueError(f"labels[{wrong[0]}] must be at least 0, or -1 for no label, got {array[wrong[0]]}")
    if seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}")
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
    """Compute the number of validation samples: at least one, and fewer than all."""
    if isinstance(fraction, bool) or not isinstance(fraction, int | float | np.integer | np.floating):
        raise TypeError(f"fraction must be a share in (0, 1) or a number of samples, got {fraction!r}")
    counted = isinstance(fraction, int | np.integer)
    if counted and fraction < 1:
        raise ValueError(f"fraction must be at least 1 as a number of samples, got {fraction}")
    if not counted and not 0 < fraction < 1:
        raise ValueError(f"fraction must be between 0 and 1 (exclusive) as a share, got {fraction}")
    wanted = int(fraction) if counted else round(float(fraction) * labelled)
    if wanted == 0:
        raise ValueError(f"fraction must leave a validation sample, got {fraction} of {labelled} labelled samples")
    if wanted >= labelled:
        raise ValueError(
            f"fraction must leave a training sample, got {fraction}: {wanted} of {labelled} labelled samples"
        )
    return wanted


def _quotas(counts: np.ndarray, wanted: int) -> list[int]:
    """Distribute `wanted` over the classes by largest remainder in exact integers; ties go to the lower class.

    Each quota is within 1 of wanted * n_c / n. A class gives its last sample only if no other can be rounded up.
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
