"""The saved weights of a run at work again: on its own validation and test samples, or on new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vista import metrics
from vista.data import source
from vista.data.loader import Inputs
from vista.training.config import existing_device
from vista.training.network import in_words, load_model, on_device
from vista.training.run_folder import INPUTS_HASH, TEST_HASH, RunFolder, Which
from vista.training.training import EVALUATION_BATCH


def evaluate(
    folder: RunFolder,
    which: Which,
    root: str | Path | None = None,
    device: str = "auto",
    network: str | None = None,
) -> dict[str, Any]:
    """Metrics of the weights on validation samples (given labels) and test samples, as the run itself reported them."""
    config = folder.config()
    data = source.load(config.data, root if root is not None else config.root, config.own_validation)
    given, split = folder.labels(), folder.split()
    if not np.array_equal(given.true, data.labels):
        raise ValueError(f"{config.data} is not what {folder.path} was trained on: its labels differ")
    if folder.data().get(INPUTS_HASH, data.inputs_hash) != data.inputs_hash:  # a run made before has none
        raise ValueError(f"{config.data} is not what {folder.path} was trained on: its inputs differ")
    if folder.data().get(TEST_HASH, data.test_hash) != data.test_hash:
        raise ValueError(f"{config.data} is not what {folder.path} was tested on: its test samples or labels differ")
    parts = {
        "val": (data.inputs[split.val], given.given[split.val]),
        "test": (data.test_samples(), data.test_labels),
    }
    return {
        part: metrics.classification_report(logits(folder, which, values, device, network), labels)
        for part, (values, labels) in parts.items()
    }


@torch.no_grad()
def logits(
    folder: RunFolder, which: Which, values: NDArray[Any], device: str = "auto", network: str | None = None
) -> NDArray[Any]:
    """Logits ``[n, K]`` of samples as they are stored: pictures uint8 ``[n, H, W, C]`` or features float32.

    ``network`` names the run's network where it is from outside, as for :func:`load_model`.
    """
    config, data = folder.config(), folder.data()
    mean, std = folder.normalisation()
    place = existing_device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    wide = config.precision == "fp64"
    dtype = torch.float64 if wide else torch.float32
    inputs = Inputs(values, tuple(mean), tuple(std), place, dtype)
    expected = tuple(data["sample_shape"])
    if inputs.sample_shape != expected or inputs.is_image != bool(mean):
        raise ValueError(
            f"the samples are {_kind(inputs.is_image)} of shape {in_words(inputs.sample_shape)}, but {folder.path} "
            f"was trained on {_kind(bool(mean))} of shape {in_words(expected)}"
        )
    trained = on_device(load_model(folder.path, which, network), place)
    rounded = config.precision == "bf16" and config.device.partition(":")[0] == place.type  # as the run itself did
    parts = []
    for index in torch.arange(len(inputs), device=place).split(EVALUATION_BATCH):
        with torch.autocast(place.type, torch.bfloat16, enabled=rounded):
            part = trained(inputs.clean(index))
        parts.append((part if wide else part.float()).cpu().numpy())
    return np.concatenate(parts)


def _kind(is_image: bool) -> str:
    return "pictures" if is_image else "features"
