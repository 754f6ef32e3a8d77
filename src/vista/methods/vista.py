"""VISTA: Basic, Light and the ablations are named variants of one method."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vista.core.options import Options
from vista.core.store import Store, bytes_needed, bytes_per_state, check_store, readable
from vista.core.vista import Vista
from vista.methods.base import Batch, EpochEnd, Method, RowsOnDisk, Task, WrittenOnce

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

    incidental = ("store",)

    @dataclass(frozen=True)
    class Config(Options):
        """The options of :class:`vista.Vista`."""

        store: Store = "auto"
        """Store past predictions in device memory, in files on the host, or (auto) in files once memory is full."""

        def __post_init__(self) -> None:
            super().__post_init__()
            check_store(self.store)

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
            store_dir=task.store_dir,
            checks=False,  # the engine's batches contain each sample once, and it checks every loss
            **options,
        )
        self.capturable = self.vista.on_device
        self._host_index: Tensor | None = None  # samples of the coming step, if known on the CPU
        self.vista.expects_every_sample = task.sees_every_sample

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        logits, targets = self.observe(batch, network(batch.x)), None
        weights, index = self.target_weights(), self._index(batch)
        if batch.partner is not None:
            targets = self.mix_targets(batch, self.vista.targets)
        if self.whole_batch is None or not self.task.has_missing_labels:
            return self.vista.loss(logits, index, targets, **weights)
        rows = self.count_rows(logits)
        assert rows is not None
        return self.vista.loss(logits, index, targets, reduction="sum", **weights) / rows

    def _index(self, batch: Batch) -> Tensor:
        """The samples of the batch; on the CPU if the store is there, so that a step on a GPU need not wait."""
        index, self._host_index = self._host_index, None
        return batch.index if self.vista.on_device or index is None else index

    def expect(self, index: Tensor, following: Tensor) -> None:
        if not self.vista.on_device:
            self._host_index = index
            if len(following):
                self.vista.prefetch(following)

    def close(self) -> None:
        self.vista.close()

    def has_target(self, index: Tensor) -> Tensor:
        return self.vista.targets(index).sum(dim=1) > 0

    def end_epoch(self, end: EpochEnd) -> dict[str, Any]:
        if self.clean_pass:
            for logits, index in end.train_logits():
                self.vista.record(logits, index)
        summary = self.vista.end_epoch(end.val_correct)
        self.capturable = self.vista.on_device
        line = {
            "beta": summary.beta,
            "anchors": len(summary.anchors),
            "anchor_weights": {str(state): weight for state, weight in summary.anchors.items()},
            "unrecorded": summary.unrecorded,
        }
        return {**line, "event": summary.event} if summary.event else line

    def final_teacher(self) -> Tensor:
        return self.vista.teacher(torch.float32 if self.vista.on_device else torch.float16)

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

    def merge_parts(self, parts: list[dict[str, Any]], first: dict[str, Any]) -> dict[str, Any]:
        key = "_extra_state"
        return {**first, key: merge_rows_of_epoch([part[key] for part in parts], first[key])}

    def get_extra_state(self) -> dict[str, Any]:
        state, files = self.vista.state_dict(), self.vista.files()
        predictions = {s: files.get(int(s), rows) for s, rows in state["predictions"].items()}
        stored: dict[str, Any] = {**state, "predictions": WrittenOnce(predictions)}
        if "rows" in state:  # of a store on the host: the last predictions do not change either
            epoch = self.vista.epoch
            stored["current"] = WrittenOnce({str(epoch): files.get(epoch, state["current"])})
        return stored

    def set_extra_state(self, state: dict[str, Any]) -> None:
        current, predictions = state["current"], state["predictions"]
        if isinstance(current, dict):
            current = _rows(next(iter(current.values())))
        rows = {s: _rows(entry) for s, entry in predictions.items()}
        self.vista.load_state_dict({**state, "current": current, "predictions": rows}, mapped=True)
        self.capturable = self.vista.on_device


def _rows(entry: Tensor | RowsOnDisk) -> Tensor:
    return entry.rows if isinstance(entry, RowsOnDisk) else entry


def merge_rows_of_epoch(parts: list[dict[str, Any]], first: dict[str, Any]) -> dict[str, Any]:
    """Return ``first`` with the rows that the processes of ``parts`` have recorded in the current epoch.

    A sample that two of them recorded has the row of the lower one, as at the end of an epoch.
    """
    seen = torch.zeros_like(first["seen"])
    in_file = "rows" in first
    rows = first["rows"].new_zeros(len(seen), first["rows"].shape[1]) if in_file else first["current"].clone()
    for part in parts:
        fresh = part["seen"] & ~seen
        rows[fresh] = part["rows"][fresh[part["seen"]]] if in_file else part["current"][fresh]
        seen |= fresh
    return {**first, "seen": seen, **({"rows": rows[seen]} if in_file else {"current": rows})}
