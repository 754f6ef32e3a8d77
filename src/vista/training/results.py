"""What a run came to: metrics at the last and at the best-validation epoch, and the weights of both."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from vista import coverage, durable, exchange, metrics
from vista.training import run_folder
from vista.training.network import build_network, on_device
from vista.training.record import Record
from vista.training.training import Training

FORMAT = 1


def finish(training: Training) -> dict[str, Any]:
    """Write weights, teacher and metrics of a run that has come to its end; the metrics last, because they say so."""
    path, config = training.folder.path, training.config
    weights = {"best": training.best_weights, "last": training.method.evaluated(training.network).state_dict()}
    epochs = {"best": training.best_epoch, "last": config.epochs}
    fused = training.method.fused_predictions()
    result: dict[str, Any] = {"format": FORMAT}
    network = on_device(build_network(config, training.samples.description), training.device)
    for which, name in run_folder.WEIGHTS.items():
        network.load_state_dict(weights[which])
        logits = {
            "val": training.logits(network, training.samples.val),
            "test": training.logits(network, training.samples.test),
        }
        result[which] = {"epoch": epochs[which], **_reports(training, logits)}
        if exchange.rank() == 0:
            durable.write(path / name, tensors_to_bytes(_plain(weights[which])))
    if fused is not None:
        alone = {which: result[which] for which in run_folder.WEIGHTS}
        reports = _reports(training, {"val": fused[0].log(), "test": fused[1].log()})
        result |= {which: {"epoch": epochs[which], **reports} for which in run_folder.WEIGHTS}
        result["network"] = alone
    result["deviation_gap"] = mean_deviation_gaps(training.record)
    counts = [line["anchors"] for line in training.record.lines if "anchors" in line]
    result["anchors_max"] = max(counts) if counts else None
    if exchange.rank() == 0:
        teacher = training.method.final_teacher()
        if teacher is not None:
            durable.write(path / run_folder.TEACHER, tensors_to_bytes({"teacher": teacher.half().cpu().contiguous()}))
        durable.write_json(path / run_folder.METRICS, result)
    return result


def _reports(training: Training, logits: dict[str, Tensor]) -> dict[str, Any]:
    labels = {"val": training.samples.labels("val", "given"), "test": training.samples.test_labels}
    return {part: metrics.classification_report(logits[part].cpu().numpy(), labels[part]) for part in logits}


def mean_deviation_gaps(record: Record) -> dict[str, float]:
    """Mean over the epochs of the share of samples that were right then and are wrong at the end, by set."""
    gaps = {}
    for name, size in record.sizes.items():
        bits = coverage.pack(record.correct(name))
        gaps[name] = float(np.mean(coverage.deviation_gap(bits, size)))
    return gaps


def _plain(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """On the CPU, each in memory of its own, as the format wants it: a network may use a weight in two places."""
    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in weights.items()
    }
