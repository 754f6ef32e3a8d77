"""VISTA, Basic and Light, and its ablations: options of one class, each of which has a name of its own."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from typing import Any

from torch import Tensor, nn

from vista.distiller import Vista
from vista.methods.base import Batch, EpochEnd, Method, Task, WrittenOnce
from vista.options import Options
from vista.store import BYTES_PER_VALUE, bytes_needed, readable

NEUTRAL: dict[str, Any] = {"schedule": "fixed", "value": 0.0}


class VistaMethod(Method):
    """Targets blended from the label and the coverage-weighted mean of past predictions."""

    name = "vista"
    family = "ours"
    summary = "Past states weighted by the validation samples only they get right become the teacher"
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
        """What :class:`vista.Vista` takes."""

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        options = asdict(config)
        if task.cutmix and config.record == "train":
            warnings.warn(
                "CutMix is on, so record becomes 'eval': a mixed picture's prediction is no sample's", stacklevel=2
            )
            options["record"] = "eval"
        self.clean_pass = options["record"] == "eval"
        self.vista = Vista(
            task.labels,
            num_classes=task.num_classes,
            epochs=task.epochs,
            val_labels=task.val_labels,
            device=task.device,
            checks=False,  # the engine's batches hold each sample once, and it looks at every loss itself
            **options,
        )

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        logits, targets = network(batch.x), None
        if batch.partner is not None:
            targets = self.mix_targets(batch, self.vista.targets)
        if self.whole_batch is None or not self.task.has_missing_labels:
            return self.vista.loss(logits, batch.index, targets)
        rows = self.count_rows(logits)
        assert rows is not None
        return self.vista.loss(logits, batch.index, targets, reduction="sum") / rows

    def has_target(self, index: Tensor) -> Tensor:
        return self.vista.targets(index).sum(dim=1) > 0

    def end_epoch(self, end: EpochEnd) -> dict[str, Any]:
        if self.clean_pass:
            for logits, index in end.train_logits():
                self.vista.record(logits, index)
        summary = self.vista.end_epoch(end.val_logits)
        line = {"beta": summary.beta, "anchors": len(summary.anchors), "unrecorded": summary.unrecorded}
        return {**line, "event": summary.event} if summary.event else line

    def final_teacher(self) -> Tensor:
        return self.vista.teacher()

    def share_state(self, seen: Tensor) -> None:
        """Nothing: ``Vista`` has exchanged what the processes saw at the epoch's end."""

    def bytes_changing(self) -> int:
        """The running epoch's predictions, and which samples have one."""
        return self.task.num_samples * (self.task.num_classes * BYTES_PER_VALUE + 1)

    def bytes_written_once(self) -> int:
        return bytes_needed(self.task.num_samples, self.task.num_classes, self.task.epochs, self.config.tau)

    def advice_for_less_room(self) -> str:
        lighter = bytes_needed(self.task.num_samples, self.task.num_classes, self.task.epochs, 0.01)
        return f"; with tau=0.01 predictions take at most {readable(lighter)}, or use --out on a larger disk"

    def get_extra_state(self) -> dict[str, Any]:
        state = self.vista.state_dict()
        return {**state, "predictions": WrittenOnce(state["predictions"])}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.vista.load_state_dict(state)
