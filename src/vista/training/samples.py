"""The data of a run: labels made noisy, split, and inputs brought to the device."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vista import noise, split
from vista.data import source
from vista.data.loader import Inputs
from vista.data.source import Source
from vista.noise import NoisyLabels
from vista.split import Split
from vista.training.config import TrainConfig
from vista.training.network import network_name
from vista.training.run_folder import HASHES, INPUTS_HASH, LABELS_HASH, SPLIT_HASH, TEST_HASH, RunFolder

OF_DATA = (INPUTS_HASH, TEST_HASH)


@dataclass(frozen=True)
class Samples:
    """The data of a run: inputs on the device, given and true labels on the host."""

    train: Inputs
    val: Inputs
    test: Inputs
    given: NoisyLabels
    split: Split
    test_labels: np.ndarray
    description: dict[str, Any]

    def labels(self, part: str, kind: str) -> np.ndarray:
        """Labels of ``train`` or ``val``, ``given`` or ``true``."""
        return np.asarray(getattr(self.given, kind)[getattr(self.split, part)])


def load_samples(config: TrainConfig, device: torch.device) -> Samples:
    """Labels made noisy, then split; inputs brought to the device."""
    data = source.load(config.data, config.root, config.own_validation)
    given, parts = labels_and_split(config, data, config.root)
    dtype = torch.float64 if config.precision == "fp64" else torch.float32

    def placed(values: np.ndarray, rows: np.ndarray | None = None) -> Inputs:
        return Inputs(values, data.mean, data.std, device, dtype, rows)

    train, val = placed(data.inputs, parts.train), placed(data.inputs, parts.val)
    test = placed(data.test_inputs, data.set_aside)
    description = {
        "format": 1,
        "name": data.name,
        "classes": list(data.classes),
        "sample_shape": list(train.sample_shape),
        "network": network_name(config, train.sample_shape),
        "samples": {"train": len(parts.train), "val": len(parts.val), "test": len(data.test_labels)},
        **_hashes(data, given, parts),
        "noise_rate": given.rate(data.for_training),
        "mean": list(data.mean),
        "std": list(data.std),
        "flip": data.flip,
        "padding": data.padding,
    }
    if data.validation is not None and config.validation != TrainConfig.validation:
        own = f"{config.data} has samples of its own for validation, which are used (--no-own-validation draws some)"
        warnings.warn(f"validation is {config.validation:g}, but {own}", stacklevel=2)
    if data.files is not None:
        description["files"] = list(data.files)
    return Samples(train, val, test, given, parts, data.test_labels, description)


def labels_and_split(config: TrainConfig, data: Source, root: str | None) -> tuple[NoisyLabels, Split]:
    """The labels that a run is given, and which of them it trains on: functions of its seeds."""
    noise_seed, split_seed = config.data_seeds()
    ids, classes = data.for_training, data.num_classes
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
        raise ValueError(f"validation is {config.validation:g}, but that cannot be held out: {error}") from error
    return given, Split(ids[parts.train], ids[parts.val])


def _own_split(config: TrainConfig, data: Source, given: NoisyLabels) -> Split:
    """The split that the data come with, without samples for validation that a label file leaves no label."""
    assert data.validation is not None
    val = data.validation[given.given[data.validation] >= 0]
    if not len(val):
        raise ValueError(
            f"none of the {len(data.validation)} samples that {config.data} has for validation is labelled: "
            "--no-own-validation draws some from those for training"
        )
    return Split(data.for_training, val)


# ---------------------------------------------------------------- a run and its data


def refuse_changed(folder: RunFolder, config: TrainConfig, given: NoisyLabels, found: dict[str, Any]) -> None:
    """A run goes on, or counts as done, only with what it began with; ``found`` holds the hashes of what is there now.

    A run made before inputs or test samples had a hash is believed.
    """
    kept = folder.data()
    changed = [name for name in HASHES if kept.get(name, found[name]) != found[name]]
    if not changed:
        return
    by_data = changed[0] in OF_DATA or not np.array_equal(folder.labels().true, given.true)
    what = {
        INPUTS_HASH: "trained on other inputs",
        LABELS_HASH: "trained on other labels",
        SPLIT_HASH: "trained on another split",
        TEST_HASH: "tested on other samples",
    }[changed[0]]
    place = f"--data {config.data}" if by_data else f"--noise {config.noise}"
    raise ValueError(
        f"{folder.path} was {what} than {place} gives now: "
        f"put the old {'data' if by_data else 'labels'} back, or start anew with --fresh"
    )


def refuse_changed_files(folder: RunFolder, config: TrainConfig) -> None:
    """The same for a finished run, whose data need not be read: only where they lie in files that may be rewritten.

    Where they are gone there is nothing to compare, and the run is as good as it was.
    """
    if noise.parse(config.noise).kind not in ("file", "human") and not config.data.startswith(("npz:", "folder:")):
        return
    try:
        data = source.load(config.data, config.root, config.own_validation)
        given, parts = labels_and_split(config, data, config.root)
    except FileNotFoundError:
        return
    refuse_changed(folder, config, given, _hashes(data, given, parts))


def _hashes(data: Source, given: NoisyLabels, parts: Split) -> dict[str, str]:
    found = (data.inputs_hash, given.hash, parts.hash, data.test_hash)
    return dict(zip(HASHES, found, strict=True))
