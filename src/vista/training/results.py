"""The result of a run: metrics and weights of the last and of the best-validation epoch."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from vista import metrics
from vista.core import collectives, coverage
from vista.core.calibration import CalibrationError, calibrate
from vista.files import atomic
from vista.runs.folder import METRICS, TEACHER, WEIGHTS
from vista.runs.predictions import Predictions
from vista.runs.record import Record
from vista.training.network import build_network, on_device
from vista.training.state import Training

FORMAT = 1


def finish(training: Training) -> dict[str, Any]:
    """Write all results; metrics.json last, because it marks the run as finished."""
    path, config = training.folder.path, training.config
    weights = {"best": training.best_weights, "last": training.evaluated().state_dict()}
    epochs = {"best": training.best_epoch, "last": config.epochs}
    fused = training.method.fused_predictions()
    result: dict[str, Any] = {"format": FORMAT, "calibration": {}}
    final_logits: dict[str, Tensor] = {}
    network = on_device(build_network(config, training.samples.description), training.device)
    for which, name in WEIGHTS.items():
        network.load_state_dict(weights[which])
        logits = {
            "val": training.logits(network, training.samples.val),
            "test": training.logits(network, training.samples.test),
        }
        final_logits |= {f"{which}.{part}": values for part, values in logits.items()}
        found = result["calibration"][which] = _calibration(training, logits["val"])
        result[which] = {"epoch": epochs[which], **_reports(training, logits, found)}
        if collectives.rank() == 0:
            atomic.write(path / name, tensors_to_bytes(_plain(weights[which])))
    if fused is not None:
        alone = {which: result[which] for which in WEIGHTS}
        fused_logits = {"val": fused[0].log(), "test": fused[1].log()}
        final_logits |= {f"fused.{part}": values for part, values in fused_logits.items()}
        found = result["calibration"]["fused"] = _calibration(training, fused_logits["val"])
        reports = _reports(training, fused_logits, found)
        result |= {which: {"epoch": epochs[which], **reports} for which in WEIGHTS}
        result["network"] = alone
    if training.config.ema:
        result["plain"] = _plain_weights(training.record)
    result["deviation_gap"] = mean_deviation_gaps(training.record)
    counts = [line["anchors"] for line in training.record.lines if "anchors" in line]
    result["anchors_max"] = max(counts) if counts else None
    mean = training.evidence.mean()  # sums over all processes
    if collectives.rank() == 0:
        kept = {name: values.float().cpu().numpy() for name, values in final_logits.items()}
        Predictions(training.evidence.classes(), mean, kept).save(path)
        teacher = training.method.final_teacher()
        if teacher is not None:
            atomic.write(path / TEACHER, tensors_to_bytes({"teacher": teacher.half().cpu().contiguous()}))
        content = atomic.json_bytes(result)
        training.folder.write_manifest(content)
        atomic.write(path / METRICS, content)
    return result


def _plain_weights(record: Record) -> dict[str, Any]:
    """Accuracies of the plain weights, in a run that saves their average: last epoch, and best by their own."""
    best = max(record.lines, key=lambda line: line["plain_val_accuracy"])  # the first on ties
    names = ("val_accuracy", "val_true_accuracy", "test_accuracy")
    return {
        which: {"epoch": line["epoch"], **{name: line[f"plain_{name}"] for name in names}}
        for which, line in (("best", best), ("last", record.lines[-1]))
    }


def _calibration(training: Training, val_logits: Tensor) -> dict[str, Any] | None:
    """Temperature and noise rate fitted on the given validation labels; ``None`` where they do not allow a fit."""
    try:
        found = calibrate(val_logits, training.samples.labels("val", "given"))
    except CalibrationError:
        return None
    values = dataclasses.asdict(found)
    del values["matrix"]  # K x K numbers, which can be fitted again from the validation logits in the run
    return values


def _reports(training: Training, logits: dict[str, Tensor], calibration: dict[str, Any] | None) -> dict[str, Any]:
    """Metrics against the given validation and the test labels, and those of the calibrated logits on the test set."""
    labels = {"val": training.samples.labels("val", "given"), "test": training.samples.test_labels}
    scores = {part: values.cpu().numpy().astype(np.float64) for part, values in logits.items()}
    reports: dict[str, Any] = {part: metrics.classification_report(scores[part], labels[part]) for part in scores}
    calibrated = None
    if calibration is not None:
        scaled = scores["test"] / calibration["temperature"]
        calibrated = {"test": metrics.classification_report(scaled, labels["test"])}
    return {**reports, "calibrated": calibrated}


def mean_deviation_gaps(record: Record) -> dict[str, float]:
    """Mean over the epochs of the share of samples that were right then and are wrong at the end, by set."""
    gaps = {}
    for name, size in record.sizes.items():
        bits = coverage.as_words(record.packed(name))
        gaps[name] = float(np.mean(coverage.deviation_gap(bits, size)))
    return gaps


def _plain(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous copies on the CPU: safetensors does not accept tensors that share memory."""
    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in weights.items()
    }
