"""The data set class, and reading a data set by name."""

import dataclasses
import hashlib
import importlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vista.core.validation import suggest
from vista.files import shell
from vista.split import stratified

# Name -> module and function, imported on use. A new source needs one file and one line here.
_NAMED = {
    "digits": "vista.data.digits:load",
    "cifar10": "vista.data.cifar:load_cifar10",
    "cifar100": "vista.data.cifar:load_cifar100",
    "cifar100-small": "vista.data.cifar:load_small_cifar100",
    "tinyimagenet": "vista.data.tinyimagenet:load",
}
_BY_PATH = {
    "folder": "vista.data.folder:load",
    "npz": "vista.data.npz:load",
    "csv": "vista.data.table:load_csv",
    "parquet": "vista.data.table:load_parquet",
    "hf": "vista.data.hf_dataset:load",
}
KINDS = tuple(_BY_PATH)  # of custom data, as in KIND:PATH
TABLES = ("csv", "parquet", "hf")
TEST_FRACTION = 0.2
_TEST_SEED = 2024
_CHUNK = 4096  # rows read at a time from inputs that may be mapped from disk


@dataclass(frozen=True, eq=False)
class Source:
    """A data set in memory or mapped from disk, with its original labels. A sample's id is its index in `inputs`."""

    name: str
    inputs: np.ndarray  # uint8 [N, H, W, C] images (maybe np.memmap), float32 [N, ...] features, int32 [N, L] tokens
    labels: np.ndarray  # int64 [N]; -1 where a label is missing
    test_inputs: np.ndarray  # separate inputs, or `inputs` itself if `test_ids` selects the test samples
    test_labels: np.ndarray  # int64 [T]
    classes: tuple[str, ...]  # names, text only
    mean: tuple[float, ...]  # per channel of pixel / 255; () for features
    std: tuple[float, ...]
    groups: tuple[int, ...] | None = None  # superclass of each class
    flip: bool = True  # whether a mirrored image keeps its class
    padding: int = 4  # pixels by which images may be shifted
    test_ids: np.ndarray | None = None  # ids [T] of the test samples, ascending; None if `test_inputs` are separate
    files: tuple[str, ...] | None = None  # path of each sample in its folder, text only
    test_files: tuple[str, ...] | None = None
    validation: np.ndarray | None = None  # ids of the data's own validation samples, ascending
    image_size: int | None = None  # working resolution of photos, whose stored squares are larger: see folder.py
    image_hashes: tuple[str, ...] | None = None  # SHA-256 of each image of `inputs`, then of separate `test_inputs`

    encoding: dict[str, dict[str, Any]] | None = None  # how table columns became features: see features.py
    tokenizer: dict[str, Any] | None = None  # name, max_length and pad_id of the tokenizer of text
    kept_labels: int = 0  # samples of `inputs` that a label file leaves with their own label

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def is_image(self) -> bool:
        return self.inputs.dtype == np.uint8

    @cached_property
    def train_ids(self) -> np.ndarray:
        """Ids of the training samples, ascending: all except test and validation samples."""
        free = np.ones(len(self.labels), dtype=bool)
        for held_out in (self.test_ids, self.validation):
            if held_out is not None:
                free[held_out] = False
        return np.flatnonzero(free)

    def test_samples(self) -> np.ndarray:
        """Return the test inputs [T, ...]; copied into memory if `test_ids` selects them."""
        return self.test_inputs if self.test_ids is None else np.asarray(self.test_inputs[self.test_ids])

    @cached_property
    def sample_hashes(self) -> tuple[str, ...]:
        """SHA-256 of each sample of `inputs`: the same wherever the sample is stored."""
        if self.image_hashes is not None:
            return self.image_hashes[: len(self.inputs)]
        return tuple(self.hash_of(sample) for sample in range(len(self.inputs)))

    def hash_of(self, sample: int) -> str:
        """SHA-256 of one sample of `inputs`."""
        if self.image_hashes is not None:
            return self.image_hashes[sample]
        return hashlib.sha256(np.ascontiguousarray(self.inputs[sample]).tobytes()).hexdigest()

    @cached_property
    def inputs_hash(self) -> str:
        """SHA-256 of type, shape and bytes of the inputs; cached, a fraction of a second for CIFAR-100."""
        return _hash(self._content(0, len(self.inputs)))

    @cached_property
    def test_hash(self) -> str:
        """SHA-256 of the test inputs, or of `test_ids` (`inputs_hash` covers those inputs), and of the test labels."""
        test = self._content(len(self.inputs), None) if self.test_ids is None else self.test_ids
        return _hash(test, self.test_labels)

    def _content(self, start: int, stop: int | None) -> np.ndarray:
        """Return the recorded hashes of some images, or else the inputs themselves."""
        if self.image_hashes is None:
            return self.inputs if start == 0 else self.test_inputs
        return np.frombuffer("".join(self.image_hashes[start:stop]).encode(), dtype=np.uint8)


def _hash(*arrays: np.ndarray) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(json.dumps([array.dtype.str, array.shape]).encode())
        for start in range(0, len(array), _CHUNK):
            digest.update(np.ascontiguousarray(array[start : start + _CHUNK]).data.cast("B"))
    return digest.hexdigest()


def names() -> tuple[str, ...]:
    """Return the names that `load` accepts; PATH stands for a path."""
    return (*_NAMED, *(f"{kind}:PATH" for kind in _BY_PATH))


def load(
    name: str,
    root: str | Path | None = None,
    own_validation: bool = True,
    *,
    image_size: int | None = None,
    skip_damaged: bool = False,
    **columns: Any,
) -> Source:
    """Read a data set.

    Args:
        name: A name such as `digits`, or `folder:PATH`, `npz:PATH`, `csv:PATH`, `parquet:PATH` or `hf:PATH`; a relative
            PATH is looked up in the working directory, then below `root`.
        root: The folder that contains the data sets; the environment variable VISTA_DATA by default.
        own_validation: Whether to read the data's own validation samples.
        image_size: Working resolution for a folder or table of images; see :func:`vista.data.folder.load`.
        skip_damaged: Whether to leave out damaged image files.
        **columns: For a table: `label_column`, `image_column`, `text_column`, `network` (whose tokenizer is used),
            `tokenizer` and `max_length`, as in :class:`vista.runs.config.TrainConfig`.

    Returns:
        The data set.

    >>> load("digits").inputs.shape
    (1797, 8, 8, 1)
    """
    kind, _, path = name.partition(":")
    if image_size is not None and kind not in ("folder", *TABLES):
        raise ValueError(f"image_size is {image_size}, but {name} is no folder of images: leave out --image-size")
    given = next((option for option, value in columns.items() if value is not None and option.endswith("column")), None)
    if given is not None and kind not in TABLES:
        option = "--" + given.replace("_", "-")
        raise ValueError(f"{given} is {columns[given]!r}, but {name} is no table: leave out {option}")
    if name in _NAMED:
        return _reader(_NAMED[name])(root)
    if kind in _BY_PATH:
        if not path:
            raise ValueError(f"data {name!r} must have a path: '{kind}:PATH'")
        options: dict[str, Any] = {} if kind == "npz" else {"image_size": image_size, "skip_damaged": skip_damaged}
        if kind in TABLES:
            options["columns"] = {option: value for option, value in columns.items() if value is not None}
        found = _reader(_BY_PATH[kind])(_resolve(path, root), own_validation, **options)
        return dataclasses.replace(found, name=name)
    raise ValueError(f"data {name!r} is unknown; {_suggestion(name, kind)}")


def validate_on_test(data: Source, seed: int) -> Source:
    """Make half of the test samples the validation samples, stratified by class; the other half remains the test set.

    Args:
        data: A data set without validation samples of its own.
        seed: Decides which half.

    Returns:
        The data set with `validation`. Separate test inputs are appended to `inputs`, so their ids follow the others.

    >>> halved = validate_on_test(load("digits"), seed=0)
    >>> len(halved.validation), len(halved.test_labels)
    (225, 225)
    """
    if data.validation is not None:
        raise ValueError(f"clean_validation needs a test set to halve, but {data.name} has its own validation samples")
    halves = stratified(data.test_labels, 0.5, seed)
    val, test = halves.val, halves.train
    left = {"test_labels": data.test_labels[test]}
    if data.test_ids is not None:
        return dataclasses.replace(data, validation=data.test_ids[val], test_ids=data.test_ids[test], **left)
    count = len(data.inputs)
    order = np.concatenate([np.arange(count), count + val, count + test])
    hashes = data.image_hashes and tuple(data.image_hashes[i] for i in order)
    files, test_files = data.files, data.test_files
    if files is not None and test_files is not None:
        files, test_files = (*files, *(test_files[i] for i in val)), tuple(test_files[i] for i in test)
    return dataclasses.replace(
        data,
        inputs=np.concatenate([data.inputs, data.test_inputs[val]]),
        labels=np.concatenate([data.labels, data.test_labels[val]]),
        test_inputs=data.test_inputs[test],
        validation=count + np.arange(len(val)),
        image_hashes=hashes,
        files=files,
        test_files=test_files,
        **left,
    )


def _suggestion(name: str, kind: str) -> str:
    """Suggest `folder:`, `npz:` or a kind of table for a path, or else a known name."""
    ending = os.path.splitext(name)[1].removeprefix(".").lower()
    is_folder = os.path.isdir(os.path.expanduser(name))
    if is_folder or (kind == name and ending in ("npz", "csv", "parquet")):
        return f"did you mean '{'folder' if is_folder else ending}:{name}'?"
    return suggest(kind, {each.partition(":")[0]: each for each in names()})


def path_of(name: str, root: str | Path | None = None) -> tuple[str, Path] | None:
    """Return kind and path of custom data (`folder:PATH`, `csv:PATH` ...); None if `name` is a known data set."""
    kind, _, path = name.partition(":")
    return (kind, _resolve(path, root)) if kind in _BY_PATH and path else None


def _resolve(path: str, root: str | Path | None) -> Path:
    """Resolve a path against the working directory, or else against `root`."""
    here = Path(path).expanduser()
    below = Path(root).expanduser() / here if root is not None else here
    return below if below.exists() and not here.exists() else here


def data_folder(root: str | Path | None, name: str, folder: str) -> Path:
    """Return `folder` below `root` (default: VISTA_DATA); the error for a missing one names the command to get it."""
    base = root if root is not None else os.environ.get("VISTA_DATA")
    advice = f"`{shell.command('vista', 'data', 'get', name, '--root', 'DIR')}` downloads it"
    if not base:
        raise FileNotFoundError(f"data {name!r}: set its folder with --root or VISTA_DATA; {advice}")
    found = Path(base).expanduser() / folder
    if not found.is_dir():
        raise FileNotFoundError(f"data {name!r} is not at {found}; {advice}")
    return found


def draw_test_ids(labels: np.ndarray, path: Path) -> np.ndarray:
    """Draw ids of test samples for data without a test set: a stratified fifth, the same for every seed."""
    try:
        return stratified(labels, TEST_FRACTION, _TEST_SEED).val
    except ValueError as error:
        raise ValueError(f"{path} has no test samples, and a fifth cannot be held out: {error}") from error


def default_padding(images: np.ndarray) -> int:
    """Return the largest shift for images of unknown content: an eighth of the shorter side, at most 4."""
    return min(4, int(min(images.shape[1:3])) // 8)


def channel_statistics(
    images: np.ndarray, test_ids: np.ndarray | None = None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation per channel of pixel / 255 for uint8 [N, H, W, C]; std 1 if constant.

    Images in `test_ids` are not counted.
    """
    counted = np.ones(len(images), dtype=bool)
    if test_ids is not None:
        counted[test_ids] = False
    # Counting the 256 values per channel is exact and needs no float copy of the images.
    values = np.arange(256) / 255
    mean, std = [], []
    for channel in range(images.shape[-1]):
        counts = np.zeros(256, dtype=np.int64)
        for start in range(0, len(images), _CHUNK):
            rows = counted[start : start + _CHUNK]
            counts += np.bincount(images[start : start + _CHUNK, ..., channel][rows].ravel(), minlength=256)
        average = float(counts @ values / counts.sum())
        spread = float(np.sqrt(counts @ (values - average) ** 2 / counts.sum()))
        mean.append(average)
        std.append(spread if np.count_nonzero(counts) > 1 else 1.0)  # rounding may leave a spread of a constant channel
    return tuple(mean), tuple(std)


def _reader(path: str) -> Callable[..., Source]:
    module, _, function = path.partition(":")
    reader: Callable[..., Source] = getattr(importlib.import_module(module), function)
    return reader
