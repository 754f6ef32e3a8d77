"""The data of a run: noisy labels, the split, and inputs on the device."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vista import models, noise, split
from vista.data import source
from vista.data.loader import Inputs
from vista.data.source import Source
from vista.files.reader import DamagedFile
from vista.noise import NoisyLabels
from vista.runs.config import TrainConfig
from vista.runs.description import HASHES, DataDescription
from vista.runs.folder import DATA, LABELS, SPLIT, RunFolder
from vista.split import Split
from vista.training import own_labels
from vista.training.network import network_name

OPTIONS = ("image_size", "skip_damaged")  # of reading images
COLUMNS = ("label_column", "image_column", "text_column", "tokenizer", "max_length")  # of reading tables


@dataclass(frozen=True)
class Samples:
    """The data of a run: inputs on the device, given and true labels on the host."""

    train: Inputs
    val: Inputs
    test: Inputs
    given: NoisyLabels
    split: Split
    test_labels: np.ndarray
    description: DataDescription
    content: tuple[str, ...] | None = None  # SHA-256 of each sample, for data in files

    def labels(self, part: str, kind: str) -> np.ndarray:
        """Labels of ``train`` or ``val``, ``given`` or ``true``."""
        return np.asarray(getattr(self.given, kind)[getattr(self.split, part)])


def load_samples(config: TrainConfig, device: torch.device) -> Samples:
    """Load the data set once, add label noise, split it, and move the inputs to the device."""
    data = load_source(config, config.root)
    _check_classes(config, data)
    given, parts = labels_and_split(config, data, config.root)
    _report_missing(config, given, data.train_ids)
    if data.kept_labels:
        warnings.warn(
            f"{data.kept_labels:,} of {len(data.labels):,} samples keep their own label: {config.labels} does not "
            "name them",
            stacklevel=2,
        )
    dtype = torch.float64 if config.precision == "fp64" else torch.float32
    backbone = models.read_backbone(config.network) if models.is_backbone(config.network) else None
    if backbone is not None and data.tokenizer is not None:  # the attention mask leaves out what the tokenizer pads
        backbone = backbone.with_padding(data.tokenizer["pad_id"])
    mean, std = data.mean, data.std
    if backbone is not None and config.pretrained:
        mean, std = backbone.statistics(len(mean)) or (mean, std)

    def on_device(values: np.ndarray, rows: np.ndarray | None = None) -> Inputs:
        return Inputs(values, mean, std, device, dtype, rows, data.image_size)

    train, val = on_device(data.inputs, parts.train), on_device(data.inputs, parts.val)
    test = on_device(data.test_inputs, data.test_ids)
    description = DataDescription(
        name=data.name,
        classes=data.classes,
        sample_shape=train.sample_shape,
        network=network_name(config, train.sample_shape),
        samples={"train": len(parts.train), "val": len(parts.val), "test": len(data.test_labels)},
        **_hashes(data, given, parts),
        noise_rate=given.rate(data.train_ids),
        mean=mean,
        std=std,
        flip=data.flip,
        padding=data.padding,
        files=data.files,
        image_size=data.image_size,
        backbone=None if backbone is None else backbone.to_json(),
        encoding=data.encoding,
        tokenizer=data.tokenizer,
    )
    if data.validation is not None and config.split_from is None and config.validation != TrainConfig.validation:
        warnings.warn(
            f"validation is {config.validation:g}, but {config.data} has its own validation samples, which are used; "
            "--no-own-validation draws new ones",
            stacklevel=2,
        )
    content = None if data.files is None else data.sample_hashes
    return Samples(train, val, test, given, parts, data.test_labels, description, content)


def load_source(config: TrainConfig, root: str | Path | None) -> Source:
    """The data set of a run, without label noise, with the labels and the split that its configuration names.

    Args:
        config: The run.
        root: Folder that holds the data sets.

    Returns:
        The data set, decoded as the run needs it.
    """
    given = {name: getattr(config, name) for name in OPTIONS if getattr(config, name) != getattr(TrainConfig, name)}
    if config.text_column is not None and models.is_backbone(config.network):
        models.read_backbone(config.network)  # a missing network is reported before its missing tokenizer
    data = source.load(config.data, root, config.own_validation, **{**given, **columns_of(config)})
    if config.labels is not None:
        data = own_labels.replace_labels(data, config.labels)
    if config.fold is not None:
        data = own_labels.hold_out_fold(data, config.fold, config.data_seeds()[1])
    if config.split_from is not None:
        data = own_labels.keep_split(data, RunFolder.open(config.split_from))
    return source.validate_on_test(data, config.data_seeds()[1]) if config.clean_validation else data


def columns_of(config: TrainConfig) -> dict[str, Any]:
    """Which columns of a table a run reads, and how it tokenises text; only what is set."""
    given = {name: getattr(config, name) for name in COLUMNS if getattr(config, name) != getattr(TrainConfig, name)}
    return given if config.text_column is None else {**given, "network": config.network}


def _check_classes(config: TrainConfig, data: Source) -> None:
    """A class with a single labelled sample has nothing to train, validate and test on."""
    kind = config.data.partition(":")[0]
    if kind not in ("folder", "csv", "parquet", "hf"):
        return
    known = data.labels if data.validation is None else np.delete(data.labels, data.validation)
    alone = np.flatnonzero(np.bincount(known[known >= 0], minlength=data.num_classes) == 1)
    if len(alone):
        what, remedy = ("image", "folder") if kind == "folder" else ("row", "row")
        raise ValueError(
            f"class {data.classes[alone[0]]!r} of {config.data} has one {what}, but at least 2 are needed: "
            f"add {what}s, or remove its {remedy}"
        )


def _report_missing(config: TrainConfig, given: NoisyLabels, ids: np.ndarray) -> None:
    """Samples whose label the data lack are trained on without one."""
    missing = int((given.given[ids] < 0).sum())
    if missing and noise.parse(config.noise).kind != "file":
        warnings.warn(
            f"{missing:,} of {len(ids):,} training samples of {config.data} have no label: a method with a "
            "teacher trains on its predictions for them, others leave them out",
            stacklevel=3,
        )


def labels_and_split(config: TrainConfig, data: Source, root: str | None) -> tuple[NoisyLabels, Split]:
    """The given labels of a run and its split into training and validation samples: functions of its seeds."""
    noise_seed, split_seed = config.data_seeds()
    ids, classes = data.train_ids, data.num_classes
    given = noise.make(
        config.noise, data.labels, classes, noise_seed,
        groups=data.groups, root=root, among=ids, names=data.classes, files=data.files,
    )  # fmt: skip
    if data.validation is not None:
        return given, _own_split(config, data, given)
    held_out = int(config.validation) if config.validation >= 1 else config.validation
    try:
        parts = split.stratified(given.given[ids], held_out, split_seed)
    except ValueError as error:
        raise ValueError(f"validation={config.validation:g} cannot be held out: {error}") from error
    return given, Split(ids[parts.train], ids[parts.val])


def _own_split(config: TrainConfig, data: Source, given: NoisyLabels) -> Split:
    """The split of the data set itself, without validation samples that a label file leaves unlabelled."""
    assert data.validation is not None
    val = data.validation[given.given[data.validation] >= 0]
    if not len(val):
        raise ValueError(
            f"none of the {len(data.validation)} validation samples of {config.data} has a label: "
            "use --no-own-validation to draw validation samples from the training samples"
        )
    return Split(data.train_ids, val)


# ---------------------------------------------------------------- a run and its data


def check_data_unchanged(folder: RunFolder, config: TrainConfig, given: NoisyLabels, found: DataDescription) -> None:
    """A run resumes, or counts as finished, only with the data it started with; hashes it lacks are not compared."""
    kept = folder.data()
    for file, stored, recorded in (
        (LABELS, folder.labels().hash, kept.labels_hash),
        (SPLIT, folder.split().hash, kept.split_hash),
    ):
        if recorded not in (None, stored):
            raise DamagedFile(folder.path / file, f"its hash is {stored}, but {DATA} has {recorded}")
    pairs = {name: (getattr(kept, name), getattr(found, name)) for name in HASHES}
    changed = [name for name, (old, new) in pairs.items() if old is not None and old != new]
    if not changed:
        return
    by_data = changed[0] in ("inputs_hash", "test_hash") or not np.array_equal(folder.labels().true, given.true)
    what = {
        "inputs_hash": "trained on other inputs",
        "labels_hash": "trained on other labels",
        "split_hash": "trained on another split",
        "test_hash": "tested on other samples",
    }[changed[0]]
    option = f"--data {config.data}" if by_data else f"--noise {config.noise}"
    if changed[0] != "inputs_hash" and config.labels is not None:
        option, by_data = f"--labels {config.labels}", False
    raise ValueError(
        f"{folder.path} was {what} than {option} provides now: "
        f"restore the old {'data' if by_data else 'labels'}, or start anew with --fresh"
    )


def check_files_unchanged(folder: RunFolder, config: TrainConfig) -> None:
    """The same check for a finished run, only for data in files that may have been rewritten since.

    If the files are gone there is nothing to compare, and the run stays valid.
    """
    is_named = noise.parse(config.noise).kind not in ("file", "human") and config.labels is None
    if is_named and source.path_of(config.data) is None:
        return
    try:
        data = load_source(config, config.root)
        given, parts = labels_and_split(config, data, config.root)
    except FileNotFoundError:
        return
    found = DataDescription(data.name, data.classes, (), **_hashes(data, given, parts))
    check_data_unchanged(folder, config, given, found)


def _hashes(data: Source, given: NoisyLabels, parts: Split) -> dict[str, Any]:
    return dict(zip(HASHES, (data.inputs_hash, given.hash, parts.hash, data.test_hash), strict=True))
