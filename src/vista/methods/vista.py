"""VISTA, Basic and Light, and its ablations: options of one class, each of which has a name of its own."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any, Literal

from torch import Tensor, nn

from vista.distiller import Vista, check_options
from vista.methods.base import Batch, EpochEnd, Method, Task
from vista.store import bytes_needed, readable

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

    @dataclass(frozen=True)
    class Config:
        tau: float = 0.0
        """Prune states that add at most this fraction of the validation set; 0 is Basic, 0.01 the paper's Light."""
        record: Literal["train", "eval"] = "train"
        """Remember predictions of the training pass itself, or of a clean pass after each epoch."""
        schedule: Literal["exp", "linear", "cosine", "fixed"] = "exp"
        """How the teacher's weight beta rises."""
        k: float = 2.0
        """Curvature of the exp schedule."""
        value: float | None = None
        """Beta of the fixed schedule."""
        order: Literal["accuracy", "newest"] = "accuracy"
        """Which states claim samples first."""
        weights: Literal["coverage", "accuracy", "uniform"] = "coverage"
        """What a state's weight comes from."""
        smoothing: int = 1
        """Width in epochs of the window predictions are averaged over."""
        start: Literal["hard", "uniform"] = "hard"
        """Targets of epoch 1 under a fixed schedule: the labels, or blended with a uniform teacher."""

        def __post_init__(self) -> None:
            kind, epochs = self.schedule, 2  # the number of epochs is the training's business
            check_options(
                epochs,
                self.tau,
                self.record,
                kind,
                self.k,
                self.value,
                self.order,
                self.weights,
                self.smoothing,
                self.start,
            )

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
        logits = network(batch.x)
        if batch.partner is None:
            return self.vista.loss(logits, batch.index)
        return self.vista.loss(logits, batch.index, targets=self.mixed(batch, self.vista.targets))

    def end_epoch(self, end: EpochEnd) -> dict[str, Any]:
        if self.clean_pass:
            for logits, index in end.train_logits():
                self.vista.record(logits, index)
        summary = self.vista.end_epoch(end.val_logits, end.val_index)
        line = {"beta": summary.beta, "anchors": len(summary.anchors), "unrecorded": summary.unrecorded}
        return {**line, "event": summary.event} if summary.event else line

    def final_teacher(self) -> Tensor:
        return self.vista.teacher()

    def share_state(self, seen: Tensor) -> None:
        """Nothing: ``Vista`` has exchanged what the processes saw at the epoch's end."""

    def bytes_at_most(self) -> int:
        return bytes_needed(self.task.num_samples, self.task.num_classes, self.task.epochs, self.config.tau)

    def advice_for_less_room(self) -> str:
        lighter = bytes_needed(self.task.num_samples, self.task.num_classes, self.task.epochs, 0.01)
        return f"; with tau=0.01 predictions take at most {readable(lighter)}, or use --out on a larger disk"

    def check(self) -> None:
        """Raise what the device found since the last look."""
        self.vista.check()

    def get_extra_state(self) -> dict[str, Any]:
        return self.vista.state_dict()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.vista.load_state_dict(state)
