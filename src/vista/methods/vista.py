"""VISTA: Basic, Light and the ablations are named variants of one method."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from typing import Any

from torch import Tensor, nn

from vista.core.options import Options
from vista.core.store import bytes_needed, bytes_per_state, readable
from vista.core.vista import Vista
from vista.methods.base import Batch, EpochEnd, Method, Task, WrittenOnce

NEUTRAL: dict[str, Any] = {"schedule": "fixed", "value": 0.0}


class VistaMethod(Method):
    """Adapter of :class:`vista.Vista`: targets blend the label with the coverage-weighted mean of past predictions."""

    name = "vista"
    family = "ours"
    summary = "The teacher averages past epochs, weighted by the validation samples that only they get right"
    cost = "1 forward, 1 backward"
    keeps = "N x K float16 per anchor"
    source = "Corn and Weinshall, VISTA"
    variants = {  # noqa: RUF012
        "vista-light": {"tau": 0.01},
        "vista-accuracy": {"weights": "accuracy"},
        "vista-chronological": {"order": "newest"},
        "vista-smoothing": {"smoothing": 3},
        "vista-uniform": {"weights": "uniform"},
    }

    class Config(Options):
        """The options of :class:`vista.Vista`."""

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        options = asdict(config)
        if task.cutmix and config.record == "train":
            warnings.warn(
                "CutMix is on, so record becomes 'eval': predictions for mixed images belong to no single sample",
                stacklevel=2,
            )
            options["record"] = "eval"
        self.clean_pass = options["record"] == "eval"
        self.vista = Vista(
            task.labels,
            num_classes=task.num_classes,
            epochs=task.epochs,
            val_labels=task.val_labels,
            device=task.device,
            checks=False,  # the engine's batches contain each sample once, and it checks every loss
            **options,
        )
        self.vista.expects_every_sample = task.sees_every_sample

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        logits, targets = self.observe(batch, network(batch.x)), None
        weights = self.target_weights()
        if batch.partner is not None:
            targets = self.mix_targets(batch, self.vista.targets)
        if self.whole_batch is None or not self.task.has_missing_labels:
            return self.vista.loss(logits, batch.index, targets, **weights)
        rows = self.count_rows(logits)
        assert rows is not None
        return self.vista.loss(logits, batch.index, targets, reduction="sum", **weights) / rows

    def has_target(self, index: Tensor) -> Tensor:
        return self.vista.targets(index).sum(dim=1) > 0

    def end_epoch(self, end: EpochEnd) -> dict[str, Any]:
        if self.clean_pass:
            for logits, index in end.train_logits():
                self.vista.record(logits, index)
        summary = self.vista.end_epoch(end.val_correct)
        line = {
            "beta": summary.beta,
            "anchors": len(summary.anchors),
            "anchor_weights": {str(state): weight for state, weight in summary.anchors.items()},
            "unrecorded": summary.unrecorded,
        }
        return {**line, "event": summary.event} if summary.event else line

    def final_teacher(self) -> Tensor:
        return self.vista.teacher()

    def share_state(self, seen: Tensor) -> None:
        """Do nothing: :meth:`vista.Vista.end_epoch` synchronises the processes."""

    def bytes_changing(self) -> int:
        """Return the size of the current epoch's predictions and of the mask of recorded samples."""
        samples = self.task.num_samples
        return bytes_per_state(samples, self.task.num_classes, self.config.topk) + samples

    def bytes_written_once(self) -> int:
        return bytes_needed(
            self.task.num_samples, self.task.num_classes, self.task.epochs, self.config.tau, self.config.topk
        )

    def advice_for_less_disk_space(self) -> str:
        lighter = bytes_needed(self.task.num_samples, self.task.num_classes, self.task.epochs, 0.01, self.config.topk)
        return f"; set tau=0.01, which needs at most {readable(lighter)}, or use --out on a larger disk"

    def get_extra_state(self) -> dict[str, Any]:
        state = self.vista.state_dict()
        return {**state, "predictions": WrittenOnce(state["predictions"])}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.vista.load_state_dict(state)
