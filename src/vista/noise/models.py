"""Noise models: noisy labels from the true labels, a specification and a seed; saved in a file with a hash."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np

from vista.core.validation import suggest
from vista.files import array_file, atomic
from vista.noise.label_files import check_labels, read_human_labels, read_label_file

FORMAT = "vista.noise"
VERSION = "1"
_STREAM = 0x6E6F6973  # makes the draws of the noise independent of other uses of the seed
_EXAMPLES = {
    "none": "none",
    "symmetric": "symmetric:0.4",
    "asymmetric": "asymmetric:0.2",
    "pairflip": "pairflip:0.2",
    "human": "human",
    "file": "file:labels.csv",
}


@dataclass(frozen=True)
class Noise:
    """A parsed specification of label noise.

    Attributes:
        kind: ``none``, ``symmetric``, ``asymmetric``, ``pairflip``, ``human`` or ``file``.
        rate: Share of labels to change, for drawn noise.
        path: The label file of ``file``.

    >>> Noise("symmetric", rate=Decimal("0.40")).spec
    'symmetric:0.4'
    """

    kind: str
    rate: Decimal | None = None
    path: str | None = None

    @property
    def spec(self) -> str:
        """The specification in canonical form: `symmetric:0.40` becomes `symmetric:0.4`."""
        if self.rate is not None:
            return f"{self.kind}:{self.rate.normalize():f}"
        return self.kind if self.path is None else f"{self.kind}:{self.path}"


def parse(spec: str) -> Noise:
    """Parse the specification of label noise, as in ``--noise``.

    Args:
        spec: `none`, `symmetric:RATE`, `asymmetric:RATE`, `pairflip:RATE`, `human` or `file:PATH`.

    Returns:
        Its kind, and its rate or path.

    >>> parse("symmetric:0.40").spec
    'symmetric:0.4'
    """
    kind, colon, value = spec.strip().partition(":")
    if kind not in _EXAMPLES:
        raise ValueError(f"noise {spec!r} is unknown; {suggest(kind, _EXAMPLES)}")
    if kind == "file":
        if not value:
            raise ValueError(f"noise {spec!r} names no file; write it as {_EXAMPLES['file']!r}")
        return Noise(kind, path=value)
    if kind in ("symmetric", "asymmetric", "pairflip"):
        if not value:
            raise ValueError(f"noise {spec!r} has no rate; write it as {_EXAMPLES[kind]!r}")
        return Noise(kind, rate=_rate(value))
    if colon:
        raise ValueError(f"noise {spec!r}: {kind!r} takes no value")
    return Noise(kind)


def symmetric(labels: np.ndarray, num_classes: int, rate: float | Decimal, seed: int) -> np.ndarray:
    """Change exactly floor(rate * N) labels to y' = (y + r) mod K with r uniform in 1..K-1.

    With the same seed, a higher rate changes the same samples in the same way, and more of them.

    Args:
        labels: True labels, [N].
        num_classes: Number of classes K.
        rate: Share of labels to change.
        seed: Seed of the draw, at least 0.

    Returns:
        Labels, int64 [N].

    >>> int((symmetric(np.zeros(10, int), 3, 0.4, seed=0) != 0).sum())
    4
    """
    given = check_labels(labels, num_classes)
    chosen, generator = _choose(len(given), num_classes, rate, seed)
    shift = generator.integers(1, num_classes, size=len(given))[: len(chosen)]
    given[chosen] = (given[chosen] + shift) % num_classes
    return given


def asymmetric(
    labels: np.ndarray, num_classes: int, rate: float | Decimal, seed: int, mapping: Sequence[int] | np.ndarray
) -> np.ndarray:
    """Change exactly floor(rate * N) labels to y' = mapping[y].

    Args:
        labels: True labels, [N].
        num_classes: Number of classes K.
        rate: Share of labels to change.
        seed: Seed of the draw, at least 0.
        mapping: A permutation of the classes that maps none to itself, see :func:`cycle_mapping`.

    Returns:
        Labels, int64 [N].

    >>> asymmetric(np.array([0, 1, 2]), 3, 1.0, seed=0, mapping=cycle_mapping(3))
    array([1, 2, 0])
    """
    given = check_labels(labels, num_classes)
    moved = np.asarray(mapping)
    if moved.shape != (num_classes,) or not np.array_equal(np.sort(moved), np.arange(num_classes)):
        raise ValueError(f"mapping must hold each class 0 to {num_classes - 1} once, got {moved.tolist()}")
    fixed = np.flatnonzero(moved == np.arange(num_classes))
    if len(fixed):
        raise ValueError(f"mapping[{fixed[0]}] must be another class, got {fixed[0]}")
    chosen, _ = _choose(len(given), num_classes, rate, seed)
    given[chosen] = moved[given[chosen]]
    return given


def cycle_mapping(num_classes: int, groups: Sequence[int] | None = None) -> np.ndarray:
    """Map each class to the next of its group, and the last to the first.

    Args:
        num_classes: Number of classes K.
        groups: Group of each class, [K]; by default all classes are one group, so that i is mapped to i + 1 mod K.

    Returns:
        Class that each class is mapped to, int64 [K].

    >>> cycle_mapping(4, groups=[0, 0, 1, 1])
    array([1, 0, 3, 2])
    """
    if num_classes < 2:
        raise ValueError(f"num_classes must be at least 2, got {num_classes}")
    group_of = np.zeros(num_classes, dtype=np.int64) if groups is None else np.asarray(groups)
    if group_of.shape != (num_classes,):
        raise ValueError(f"groups must have {num_classes} entries, one per class, got {group_of.size}")
    mapping = np.empty(num_classes, dtype=np.int64)
    for group in np.unique(group_of):
        members = np.flatnonzero(group_of == group)
        if len(members) == 1:
            raise ValueError(f"group {group} must have at least 2 classes, got class {members[0]} alone")
        mapping[members] = np.roll(members, -1)
    return mapping


@dataclass(frozen=True, eq=False)
class NoisyLabels:
    """Labels given to a run, and the labels of the data.

    Attributes:
        given: The labels to train on, int64 [N]; -1 where there is none.
        true: The labels of the data, int64 [N]; -1 where neither the data nor a file has one.
        spec: The specification of the noise.
        seed: Seed of the draw.

    >>> labels = NoisyLabels(np.array([0, 1]), np.array([0, 0]), "file:labels.csv", 0)
    >>> labels.rate(np.arange(2))
    0.5
    """

    given: np.ndarray
    true: np.ndarray
    spec: str
    seed: int

    @property
    def hash(self) -> str:
        """SHA-256 of given labels, true labels and specification, without the path of a label file."""
        spec = "file" if self.spec.startswith("file:") else self.spec
        head = json.dumps([FORMAT, VERSION, spec, len(self.given)])
        digest = hashlib.sha256(head.encode())
        for labels in (self.given, self.true):
            digest.update(labels.astype("<i8").tobytes())
        return digest.hexdigest()

    def rate(self, among: np.ndarray) -> float:
        """Compute the share of wrong labels.

        Args:
            among: Indices of the samples to count; those without a label are left out.

        Returns:
            The share, from 0 to 1.

        >>> make("symmetric:0.4", np.zeros(10, int), 3, seed=0).rate(np.arange(10))
        0.4
        """
        labelled = among[self.given[among] >= 0]
        return float(np.mean(self.given[labelled] != self.true[labelled])) if len(labelled) else 0.0

    def save(self, path: str | Path) -> None:
        """Write a safetensors file, atomically.

        Args:
            path: The file to write.

        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "labels.safetensors"
        >>> make("symmetric:0.4", np.zeros(10, int), 3, seed=0).save(path)
        >>> NoisyLabels.load(path).spec
        'symmetric:0.4'
        """
        content = array_file.to_bytes(
            {"given": self.given, "true": self.true}, FORMAT, VERSION, spec=self.spec, seed=self.seed, hash=self.hash
        )
        atomic.write(Path(path), content)

    @classmethod
    def load(cls, path: str | Path) -> "NoisyLabels":
        """Read a file of :meth:`save`; see there for an example.

        Args:
            path: The file to read.

        Returns:
            The labels. A damaged file or another format raises a ``ValueError`` that names the file.
        """
        arrays, about = array_file.read(path, FORMAT, VERSION)
        try:
            labels = cls(arrays["given"], arrays["true"], about["spec"], about["seed"])
        except KeyError as error:
            raise ValueError(f"{path} is damaged: {error} is missing") from error
        if not isinstance(labels.spec, str) or not isinstance(labels.seed, int):
            raise ValueError(f"{path} is damaged: spec must be text and seed a number")
        if labels.hash != about.get("hash"):
            raise ValueError(
                f"{path} is damaged: the hash of its labels must be {about.get('hash')}, got {labels.hash}"
            )
        return labels


def make(
    spec: str,
    source_labels: np.ndarray,
    num_classes: int,
    seed: int,
    groups: Sequence[int] | None = None,
    root: str | Path | None = None,
    among: np.ndarray | None = None,
    names: Sequence[str] = (),
    files: Sequence[str] | None = None,
) -> NoisyLabels:
    """Make the noisy labels of a specification.

    Args:
        spec: Specification, see :func:`parse`.
        source_labels: Labels of the data, [N]; -1 where a label is missing, which drawn noise leaves missing.
        num_classes: Number of classes.
        seed: Seed of the draw.
        groups: Group of each class; asymmetric noise maps a class to the next of its group, pairflip ignores groups.
        root: Folder of the human labels.
        among: Samples whose labels drawn noise may change; all by default.
        names: Names of the classes, for messages about label files.
        files: File of each sample, to check the lines of a label file.

    Returns:
        The given and the true labels. Where the data have no label, a label from a file counts as the true one.

    >>> make("pairflip:0.5", np.array([0, 0, 1, 1]), 2, seed=0).rate(np.arange(4))
    0.5
    """
    noise = parse(spec)
    true = check_labels(source_labels, num_classes, missing=True)
    given, changed = true.copy(), np.arange(len(true)) if among is None else among
    changed = changed[true[changed] >= 0]
    if noise.kind == "symmetric":
        assert noise.rate is not None
        given[changed] = symmetric(true[changed], num_classes, noise.rate, seed)
    elif noise.kind in ("asymmetric", "pairflip"):
        assert noise.rate is not None
        mapping = cycle_mapping(num_classes, groups if noise.kind == "asymmetric" else None)
        given[changed] = asymmetric(true[changed], num_classes, noise.rate, seed, mapping)
    elif noise.kind == "file":
        assert noise.path is not None
        given = read_label_file(noise.path, true, num_classes, names, files)
    elif noise.kind == "human":
        given = read_human_labels(true, num_classes, root)
    return NoisyLabels(given, np.where(true < 0, given, true), noise.spec, seed)


def _rate(value: Any) -> Decimal:
    # The rate is taken as written: 0.29 * 100 is 28.99... in binary and 29 in decimal.
    try:
        rate = Decimal(str(value))
    except InvalidOperation:
        raise ValueError(f"noise rate must be a number between 0 and 1, got {value!r}") from None
    if not (rate.is_finite() and 0 <= rate <= 1):
        raise ValueError(f"noise rate must be between 0 and 1, got {value}")
    return rate


def _choose(count: int, num_classes: int, rate: float | Decimal, seed: int) -> tuple[np.ndarray, np.random.Generator]:
    """Draw the floor(rate * count) positions to change; return them and the generator for further draws."""
    if num_classes < 2:
        raise ValueError(f"num_classes must be at least 2, got {num_classes}")
    if seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}")
    generator = np.random.default_rng([seed, _STREAM])
    return generator.permutation(count)[: int(_rate(rate) * count)], generator
