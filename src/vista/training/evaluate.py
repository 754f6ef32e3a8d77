"""Predict with the saved weights of a run: on its own validation and test samples, or on new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vista import metrics
from vista.data.loader import Inputs
from vista.runs.folder import RunFolder, Which
from vista.training.network import in_words, load_model, on_device
from vista.training.resolve import device_name, existing_device
from vista.training.samples import load_source
from vista.training.state import evaluation_batch


def evaluate(
    folder: RunFolder,
    which: Which,
    root: str | Path | None = None,
    device: str = "auto",
    network: str | None = None,
) -> dict[str, Any]:
    """Metrics of the weights on validation samples (given labels) and test samples, as the run itself reported them.

    ``calibrated`` holds those of the calibrated logits on the test samples; ``None`` for a run without calibration.
    """
    config = folder.config()
    data = load_source(config, root if root is not None else config.root)
    given, split = folder.labels(), folder.split()
    if not np.array_equal(np.where(data.labels < 0, -1, given.true), data.labels):
        raise ValueError(f"{config.data} is not what {folder.path} was trained on: its labels differ")
    if folder.data().inputs_hash not in (None, data.inputs_hash):
        raise ValueError(f"{config.data} is not what {folder.path} was trained on: its inputs differ")
    if folder.data().test_hash not in (None, data.test_hash):
        raise ValueError(f"{config.data} is not what {folder.path} was tested on: its test samples or labels differ")
    parts = {
        "val": (data.inputs[split.val], given.given[split.val]),
        "test": (data.test_samples(), data.test_labels),
    }
    scores = {part: logits(folder, which, values, device, network) for part, (values, _) in parts.items()}
    reports: dict[str, Any] = {
        part: metrics.classification_report(scores[part], labels) for part, (_, labels) in parts.items()
    }
    temperature = folder.temperature(which)
    calibrated = None
    if temperature is not None:
        scaled = scores["test"].astype(np.float64) / temperature
        calibrated = {"test": metrics.classification_report(scaled, data.test_labels)}
    return {**reports, "calibrated": calibrated}


@torch.no_grad()
def logits(
    folder: RunFolder, which: Which, values: NDArray[Any], device: str = "auto", network: str | None = None
) -> NDArray[Any]:
    """Logits ``[n, K]`` of samples as they are stored: images uint8 ``[n, H, W, C]`` or features float32.

    ``network`` names a custom network, as in :func:`load_model`.
    """
    config, data = folder.config(), folder.data()
    target = existing_device(device_name(device))
    double = config.precision == "fp64"
    dtype = torch.float64 if double else torch.float32
    inputs = Inputs(values, data.mean, data.std, target, dtype, image_size=data.image_size)
    expected = data.sample_shape
    if inputs.sample_shape != expected or inputs.is_image != data.is_image:
        raise ValueError(
            f"the samples are {_kind(inputs.is_image)} of shape {in_words(inputs.sample_shape)}, but {folder.path} "
            f"was trained on {_kind(data.is_image)} of shape {in_words(expected)}"
        )
    trained = on_device(load_model(folder.path, which, network), target)
    rounded = config.precision == "bf16" and config.device.partition(":")[0] == target.type  # as the run itself did
    parts = []
    batches = torch.arange(len(inputs), device=target).split(evaluation_batch(inputs.sample_shape))
    for _, samples in inputs.in_batches(batches):
        with torch.autocast(target.type, torch.bfloat16, enabled=rounded):
            part = trained(samples)
        parts.append((part if double else part.float()).cpu().numpy())
    return np.concatenate(parts)


def _kind(is_image: bool) -> str:
    return "images" if is_image else "features"
