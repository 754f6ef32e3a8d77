"""What a data set is, and where each known one is read."""

import dataclasses
import difflib
import hashlib
import importlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from vista.files import shell
from vista.split import stratified

# Name -> module and function. Modules are imported only when asked for; a new source is one file and one line here.
_NAMED = {
    "digits": "vista.data.digits:load",
    "cifar10": "vista.data.cifar:load_cifar10",
    "cifar100": "vista.data.cifar:load_cifar100",
    "tinyimagenet": "vista.data.tinyimagenet:load",
}
_BY_PATH = {"folder": "vista.data.folder:load", "npz": "vista.data.arrays:load"}
_HELD_OUT = 0.2
_HELD_OUT_SEED = 2024
_ROWS_AT_A_TIME = 4096  # of inputs that may be mapped from disk


@dataclass(frozen=True, eq=False)
class Source:
    """A data set in memory or mapped from disk, with its labels as shipped. A sample's id is its place in `inputs`."""

    name: str
    inputs: np.ndarray  # uint8 [N, H, W, C] images (maybe np.memmap), or float32 [N, ...] features
    labels: np.ndarray  # int64 [N]
    test_inputs: np.ndarray  # of their own, or `inputs` itself where some of these were set aside
    test_labels: np.ndarray  # int64 [T]
    classes: tuple[str, ...]  # names, text only
    mean: tuple[float, ...]  # per channel of pixel / 255; () for features
    std: tuple[float, ...]
    groups: tuple[int, ...] | None = None  # superclass of each class
    flip: bool = True  # whether a mirrored picture is still of its class
    padding: int = 4  # pixels a picture may be shifted by
    set_aside: np.ndarray | None = None  # ids [T] of the test samples, ascending; None: `test_inputs` are of their own
    files: tuple[str, ...] | None = None  # where each sample lies in a folder, text only
    test_files: tuple[str, ...] | None = None
    validation: np.ndarray | None = None  # ids of the samples that the data themselves hold out for it, ascending

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def is_image(self) -> bool:
        return self.inputs.dtype == np.uint8

    @cached_property
    def for_training(self) -> np.ndarray:
        """Ids of the samples that may be trained on, ascending: all but those held out for test or validation."""
        free = np.ones(len(self.labels), dtype=bool)
        for held_out in (self.set_aside, self.validation):
            if held_out is not None:
                free[held_out] = False
        return np.flatnonzero(free)

    def test_samples(self) -> np.ndarray:
        """The test inputs [T, ...], in memory where they were set aside."""
        return self.test_inputs if self.set_aside is None else np.asarray(self.test_inputs[self.set_aside])

    @cached_property
    def inputs_hash(self) -> str:
        """SHA-256 of type, shape and bytes of the inputs; CIFAR-100 takes a fraction of a second, once."""
        return _hash(self.inputs)

    @cached_property
    def test_hash(self) -> str:
        """The same of test inputs and labels together; of samples set aside, whose inputs have one, their ids count."""
        return _hash(self.test_inputs if self.set_aside is None else self.set_aside, self.test_labels)


def _hash(*arrays: np.ndarray) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(json.dumps([array.dtype.str, array.shape]).encode())
        for start in range(0, len(array), _ROWS_AT_A_TIME):
            digest.update(np.ascontiguousarray(array[start : start + _ROWS_AT_A_TIME]).data.cast("B"))
    return digest.hexdigest()


def names() -> tuple[str, ...]:
    """What `load` takes; PATH stands for a path of the user's."""
    return (*_NAMED, *(f"{kind}:PATH" for kind in _BY_PATH))


def load(name: str, root: str | Path | None = None, own_validation: bool = True) -> Source:
    """Read the data set called `name` below `root` (default: VISTA_DATA), or from the path the name holds.

    Such a path may lie below `root` too, if it is not found from here. What is there for validation is read unless
    `own_validation` is false.
    """
    if name in _NAMED:
        return _reader(_NAMED[name])(root)
    kind, _, path = name.partition(":")
    if kind in _BY_PATH:
        if not path:
            raise ValueError(f"data {name!r} names no path; write it as '{kind}:PATH'")
        return dataclasses.replace(_reader(_BY_PATH[kind])(_found(path, root), own_validation), name=name)
    nearest = difflib.get_close_matches(kind, [*_NAMED, *_BY_PATH], n=1, cutoff=0.0)[0]
    nearest += ":PATH" if nearest in _BY_PATH else ""
    raise ValueError(f"data {name!r} is unknown; the nearest known is {nearest!r} (known: {', '.join(names())})")


def path_of(name: str, root: str | Path | None = None) -> tuple[str, Path] | None:
    """Of data that are the user's own, the kind and where they lie; None if `name` is one of ours."""
    kind, _, path = name.partition(":")
    return (kind, _found(path, root)) if kind in _BY_PATH and path else None


def _found(path: str, root: str | Path | None) -> Path:
    """Where a path of the user's leads: from here, or else from `root`."""
    place = Path(path).expanduser()
    below = Path(root).expanduser() / place if root is not None else place
    return below if below.exists() and not place.exists() else place


def below_root(root: str | Path | None, name: str, folder: str) -> Path:
    """The place of `folder` below `root` (default: VISTA_DATA), or an error that says how to get it there."""
    place = root if root is not None else os.environ.get("VISTA_DATA")
    advice = f"`{shell.command('vista', 'data', 'get', name, '--root', 'DIR')}` downloads it"
    if not place:
        raise FileNotFoundError(f"data {name!r}: say where it lies with --root or VISTA_DATA; {advice}")
    found = Path(place).expanduser() / folder
    if not found.is_dir():
        raise FileNotFoundError(f"data {name!r} is not at {found}; {advice}")
    return found


def held_out(labels: np.ndarray, path: Path) -> np.ndarray:
    """Ids of test samples for data that ships without: a stratified fifth, the same for every seed of a run."""
    try:
        return stratified(labels, _HELD_OUT, _HELD_OUT_SEED).val
    except ValueError as error:
        raise ValueError(f"{path} has no test samples, and a fifth cannot be set aside for them: {error}") from error


def usual_padding(images: np.ndarray) -> int:
    """An eighth of the shorter side, at most 4: what a picture of unknown content may be shifted by."""
    return min(4, int(min(images.shape[1:3])) // 8)


def channel_statistics(
    images: np.ndarray, set_aside: np.ndarray | None = None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of pixel / 255, uint8 [N, H, W, C]; std 1 where it is constant.

    Those that were set aside for the test do not count.
    """
    counted = np.ones(len(images), dtype=bool)
    if set_aside is not None:
        counted[set_aside] = False
    # Counting the 256 values per channel is exact and needs no float copy of the images.
    values = np.arange(256) / 255
    mean, std = [], []
    for channel in range(images.shape[-1]):
        counts = np.zeros(256, dtype=np.int64)
        for start in range(0, len(images), 4096):
            rows = counted[start : start + 4096]
            counts += np.bincount(images[start : start + 4096, ..., channel][rows].ravel(), minlength=256)
        average = float(counts @ values / counts.sum())
        spread = float(np.sqrt(counts @ (values - average) ** 2 / counts.sum()))
        mean.append(average)
        std.append(spread if np.count_nonzero(counts) > 1 else 1.0)  # of one value rounding may leave a spread
    return tuple(mean), tuple(std)


def _reader(place: str) -> Callable[..., Source]:
    module, _, function = place.partition(":")
    reader: Callable[..., Source] = getattr(importlib.import_module(module), function)
    return reader
