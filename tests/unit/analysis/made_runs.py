"""Synthetic runs: a trajectory small enough to verify by hand, and complete run folders without training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from vista.analysis.runs import Run
from vista.data import source
from vista.noise import NoisyLabels, parse, symmetric
from vista.runs.config import TrainConfig
from vista.runs.record import TEST, VAL_GIVEN, VAL_TRUE, Record
from vista.split import Split, stratified
from vista.training.results import mean_deviation_gaps

# 4 epochs x 6 samples. At the end samples 1, 2, 3 and 4 are right; sample 0 was right and is lost.
HAND = np.array(
    [
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [0, 1, 1, 0, 1, 0],
        [0, 1, 1, 1, 1, 0],
    ],
    dtype=bool,
)
BASIC = {"tau": 0.0, "order": "accuracy", "weights": "coverage", "smoothing": 1}


def record_of(**sets: np.ndarray) -> Record:
    """A record from bool matrices ``val_given``, ``val_true``, ``test``."""
    record = Record({name: matrix.shape[1] for name, matrix in sets.items()})
    for row in range(len(next(iter(sets.values())))):
        line = {"epoch": row + 1, "val_accuracy": float(sets["val_given"][row].mean())}
        record.append(
            line,
            {"epoch": row + 1, "train_seconds": 24.0, "evaluate_seconds": 6.0},
            {n: m[row] for n, m in sets.items()},
        )
    return record


def hand_run(name: str = "hand", correct: np.ndarray = HAND, anchors: bool = True, **fields: Any) -> Run:
    """A run in memory, of a method with or without anchors; ``fields`` are those of :class:`Run`."""
    run = Run(name, Path(name), record_of(val_given=correct), **fields)
    for line in run.record.lines if anchors else ():
        line["anchors"] = 1  # without their weights, so that these are replayed
    return run


def write_run(
    path: Path,
    *,
    method: str = "ce",
    seed: int = 0,
    epochs: int = 4,
    noise: str = "symmetric:0.4",
    data: str = "npz:nowhere.npz",
    classes: Sequence[str] = ("cat", "dog", "cow"),
    samples: int = 60,
    validation: int = 15,
    options: dict[str, Any] | None = None,
    finished: bool = True,
    teacher: bool = False,
    correct: np.ndarray | None = None,
) -> Path:
    """Write a run folder as training leaves it, without weights; labels, split and bits are functions of the seed."""
    path.mkdir(parents=True)
    config = TrainConfig(data=data, noise=noise, method=method, options=options or {}, epochs=max(epochs, 2), seed=seed,
                         validation=validation, device="cpu", precision="fp32")  # fmt: skip
    labels = noisy_labels(samples, len(classes), noise, seed)
    split = stratified(labels.given, validation, seed)
    _write_json(path / "config.json", config.to_json())
    hashes = {"labels_hash": labels.hash, "split_hash": split.hash}
    if data.startswith("npz:") and Path(data.removeprefix("npz:")).exists():
        hashes["inputs_hash"] = source.load(data).inputs_hash
    described = {"format": 1, "classes": list(classes), "name": data, "sample_shape": [1, 8, 8], "mean": [], "std": []}
    _write_json(path / "data.json", {**described, **hashes})
    _write_json(path / "environment.json", {"torch": "2.6", "device": "a <b>machine</b>", "commit": None})
    labels.save(path / "labels.safetensors")
    split.save(path / "split.safetensors")
    record = _record(epochs, validation, 20, seed, correct)
    if method.startswith("vista"):
        for number, line in enumerate(record.lines):
            line["anchors"] = number + 1
    record.write(path)
    if finished:
        _write_json(path / "metrics.json", _metrics(record, epochs))
    if teacher:
        save_file({"teacher": _teacher(labels, split, len(classes), seed)}, path / "teacher.safetensors")
    return path


def noisy_labels(samples: int, num_classes: int, noise: str, seed: int) -> NoisyLabels:
    true = np.arange(samples, dtype=np.int64) % num_classes
    given = symmetric(true, num_classes, 0.4, seed) if parse(noise).kind == "symmetric" else true.copy()
    return NoisyLabels(given, true, noise, seed)


def write_images(path: Path, samples: int = 60, num_classes: int = 3, side: int = 8) -> str:
    """Write images for :func:`write_run`; returns ``npz:PATH``."""
    generator = np.random.default_rng(3)
    images = generator.integers(0, 256, (samples, side, side, 3), dtype=np.uint8)
    labels = np.arange(samples) % num_classes
    np.savez(path, x_train=images, y_train=labels, x_test=images[:num_classes], y_test=labels[:num_classes])
    return f"npz:{path}"


def _record(epochs: int, validation: int, test: int, seed: int, correct: np.ndarray | None) -> Record:
    if epochs == 0:
        return Record({VAL_GIVEN: validation, VAL_TRUE: validation, TEST: test})
    generator = np.random.default_rng([seed, epochs])
    rising = np.linspace(0.3, 0.8, epochs)[:, None]
    given = generator.random((epochs, validation)) < rising if correct is None else correct
    return record_of(val_given=given, val_true=given, test=generator.random((epochs, test)) < rising)


def _metrics(record: Record, epochs: int) -> dict[str, Any]:
    def report(row: int) -> dict[str, float]:
        return {"top1": float(record.correct(TEST)[row].mean()), "top5": 1.0, "nll": 1.0, "ece": 0.1, "aurc": 0.2}

    best = int(record.correct(VAL_GIVEN).sum(axis=1).argmax())
    return {
        "format": 1,
        "best": {"epoch": best + 1, "test": report(best)},
        "last": {"epoch": epochs, "test": report(-1)},
        "deviation_gap": mean_deviation_gaps(record),
    }


def _teacher(labels: NoisyLabels, split: Split, num_classes: int, seed: int) -> np.ndarray:
    """Predicts the true labels with probabilities a little below 1."""
    noise = np.random.default_rng([seed, 9]).random((len(split.train), num_classes)) * 0.2
    probs = np.eye(num_classes)[labels.true[split.train]] + noise
    return (probs / probs.sum(axis=1, keepdims=True)).astype(np.float16)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))
