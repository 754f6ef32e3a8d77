"""Noisy labels as saved, hashed artefacts: a pure function of the true labels, a specification and a seed."""

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
from vista.noise.label_files import checked_labels, read_human_labels, read_label_file

FORMAT = "vista.noise"
VERSION = "1"
_STREAM = 0x6E6F6973  # keeps the noise draws apart from every other use of the same seed
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
    """A parsed specification: what kind of noise, at which rate, or from which file."""

    kind: str
    rate: Decimal | None = None
    path: str | None = None

    @property
    def spec(self) -> str:
        """The specification in one canonical spelling: `symmetric:0.40` is `symmetric:0.4`."""
        if self.rate is not None:
            return f"{self.kind}:{self.rate.normalize():f}"
        return self.kind if self.path is None else f"{self.kind}:{self.path}"


def parse(spec: str) -> Noise:
    """Read `none`, `symmetric:RATE`, `asymmetric:RATE`, `pairflip:RATE`, `human` or `file:PATH`."""
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
    """Change exactly floor(rate * N) labels to y' = (y + r) mod K with r uniform in 1..K-1; int64 [N].

    At one seed a higher rate changes the same samples in the same way, and more.
    """
    given = checked_labels(labels, num_classes)
    chosen, generator = _chosen(len(given), num_classes, rate, seed)
    shift = generator.integers(1, num_classes, size=len(given))[: len(chosen)]
    given[chosen] = (given[chosen] + shift) % num_classes
    return given


def asymmetric(
    labels: np.ndarray, num_classes: int, rate: float | Decimal, seed: int, mapping: Sequence[int] | np.ndarray
) -> np.ndarray:
    """Change exactly floor(rate * N) labels to y' = mapping[y]; int64 [N]. `mapping` moves every class."""
    given = checked_labels(labels, num_classes)
    moved = np.asarray(mapping)
    if moved.shape != (num_classes,) or not np.array_equal(np.sort(moved), np.arange(num_classes)):
        raise ValueError(f"mapping must hold each class 0..{num_classes - 1} once, but it is {moved.tolist()}")
    fixed = np.flatnonzero(moved == np.arange(num_classes))
    if len(fixed):
        raise ValueError(f"mapping[{fixed[0]}] is {fixed[0]}: every class must go to another one")
    chosen, _ = _chosen(len(given), num_classes, rate, seed)
    given[chosen] = moved[given[chosen]]
    return given


def cycle_mapping(num_classes: int, groups: Sequence[int] | None = None) -> np.ndarray:
    """Send each class to the next of its group, the last to the first; one group (i -> i+1 mod K) without `groups`."""
    if num_classes < 2:
        raise ValueError(f"num_classes is {num_classes}, but a class can only be taken for another one among 2 or more")
    group_of = np.zeros(num_classes, dtype=np.int64) if groups is None else np.asarray(groups)
    if group_of.shape != (num_classes,):
        raise ValueError(f"groups has {group_of.size} entries, but num_classes is {num_classes}")
    mapping = np.empty(num_classes, dtype=np.int64)
    for group in np.unique(group_of):
        members = np.flatnonzero(group_of == group)
        if len(members) == 1:
            raise ValueError(f"group {group} holds class {members[0]} alone, which leaves it no class to be taken for")
        mapping[members] = np.roll(members, -1)
    return mapping


@dataclass(frozen=True, eq=False)
class NoisyLabels:
    """The labels a run is given beside those the data came with."""

    given: np.ndarray  # int64 [N], -1 where there is none
    true: np.ndarray  # int64 [N]
    spec: str
    seed: int

    @property
    def hash(self) -> str:
        """SHA-256 of given, true and specification; of a label file only its labels count, not where it lies."""
        spec = "file" if self.spec.startswith("file:") else self.spec
        head = json.dumps([FORMAT, VERSION, spec, len(self.given)])
        digest = hashlib.sha256(head.encode())
        for labels in (self.given, self.true):
            digest.update(labels.astype("<i8").tobytes())
        return digest.hexdigest()

    def rate(self, among: np.ndarray) -> float:
        """Of these samples' labels, the share that differ from the true ones; one that is missing is no label."""
        labelled = among[self.given[among] >= 0]
        return float(np.mean(self.given[labelled] != self.true[labelled])) if len(labelled) else 0.0

    def save(self, path: str | Path) -> None:
        """Write a safetensors file; it appears under its name only when complete."""
        content = array_file.to_bytes(
            {"given": self.given, "true": self.true}, FORMAT, VERSION, spec=self.spec, seed=self.seed, hash=self.hash
        )
        atomic.write(Path(path), content)

    @classmethod
    def load(cls, path: str | Path) -> "NoisyLabels":
        """Read what `save` wrote; a damaged file or another format is refused by name."""
        arrays, about = array_file.read(path, FORMAT, VERSION)
        try:
            labels = cls(arrays["given"], arrays["true"], about["spec"], int(about["seed"]))
        except KeyError as error:
            raise ValueError(f"{path} is no readable {FORMAT} file: {error} is missing") from error
        if labels.hash != about.get("hash"):
            raise ValueError(f"{path} is damaged: its labels hash to {labels.hash}, it says {about.get('hash')}")
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
    """The labels that `spec` makes of `source_labels`; `groups` shapes asymmetric noise, `root` holds human labels.

    Asymmetric noise moves a label to the next class of its group, pairflip to the next class whatever the groups.
    Drawn noise changes labels of the samples `among` alone, if these are named. `names` are those of the classes,
    `files` where the samples lie.
    """
    noise = parse(spec)
    true = checked_labels(source_labels, num_classes)
    given, changed = true.copy(), slice(None) if among is None else among
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
    return NoisyLabels(given, true, noise.spec, seed)


def _rate(value: Any) -> Decimal:
    # The text of a rate is what the user meant: 0.29 * 100 is 28.99... in binary, and 29 in decimal.
    try:
        rate = Decimal(str(value))
    except InvalidOperation:
        raise ValueError(f"the noise rate is {value!r}, which is no number; it must lie between 0 and 1") from None
    if not (rate.is_finite() and 0 <= rate <= 1):
        raise ValueError(f"the noise rate is {value}, but it must lie between 0 and 1")
    return rate


def _chosen(count: int, num_classes: int, rate: float | Decimal, seed: int) -> tuple[np.ndarray, np.random.Generator]:
    """The floor(rate * count) positions to change, and the generator to go on with."""
    if num_classes < 2:
        raise ValueError(f"num_classes is {num_classes}, but a label can only be changed among 2 or more")
    if seed < 0:
        raise ValueError(f"seed is {seed}, but it must be 0 or more")
    generator = np.random.default_rng([seed, _STREAM])
    return generator.permutation(count)[: int(_rate(rate) * count)], generator
