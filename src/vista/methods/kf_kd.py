"""KF-KD (reconstruction): fuse the epochs of a first training phase, restart, and distil from the result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vista.core import collectives, fusion, teacher
from vista.core.losses import cross_entropy_and_probs, one_hot, reduce
from vista.core.validation import unit_interval
from vista.methods.base import Batch, EpochEnd, Method, Task, WrittenOnce

NEUTRAL: dict[str, Any] = {"alpha": 0.0}


def split_epochs(first: float, epochs: int) -> int:
    """Number of epochs in the first phase: the share ``first``, with at least one epoch in each phase."""
    return min(max(1, round(first * epochs)), epochs - 1)


def list_float_tensors(network: nn.Module) -> Iterator[Tensor]:
    """Yield weights and running statistics."""
    yield from (t for t in (*network.parameters(), *network.buffers()) if t.is_floating_point())


def list_integer_tensors(network: nn.Module) -> Iterator[Tensor]:
    """Yield integer and bool buffers: counters, indices, masks."""
    yield from (t for t in network.buffers() if not t.is_floating_point() and not t.is_complex())


def flatten_tensors(tensors: Iterable[Tensor]) -> Tensor:
    """Concatenate copies of the tensors into one vector."""
    parts = [tensor.detach().flatten() for tensor in tensors]
    return torch.cat(parts) if parts else torch.zeros(0)


def restore_tensors(tensors: Iterable[Tensor], values: Tensor) -> None:
    """Write ``values``, the result of :func:`flatten_tensors`, back to ``tensors``."""
    start = 0
    for tensor in tensors:
        tensor.copy_(values[start : start + tensor.numel()].view(tensor.shape))
        start += tensor.numel()


class KnowledgeFusionDistilled(Method):
    """Holds the initial weights, the predictions of the first phase and the fused teacher of the second phase.

    Until the teacher is computed, ``alpha_now`` is zero and ``fused`` has no effect.
    """

    name = "kf-kd"
    family = "past epochs"
    summary = "Predictions of a first training phase are fused; a restarted network learns from them"
    cost = "1 forward, 1 backward"
    keeps = "(N + m) x K float16 per epoch of the first phase, then N x K; the initial weights"
    source = "Stern, Corn and Weinshall, Forget Me Not, 2025"
    reconstruction = True
    composes_with_cutmix = False  # predictions for mixed images belong to no single sample
    sample_buffers = ("current",)

    current: Tensor
    seen: Tensor
    fused: Tensor
    alpha_now: Tensor
    initial: Tensor
    initial_integral: Tensor

    @dataclass(frozen=True)
    class Config:
        first: float = 0.5
        """Share of the epochs in the first phase, whose predictions are fused; the second phase learns from them."""
        alpha: float = 0.9
        """Weight of the fused prediction in the targets; the label has weight 1 - alpha."""
        window: int = 3
        """Window width in epochs over which past predictions are averaged."""
        step: float = 0.05
        """Step of the grid of blending weights."""
        rounds: int = 10
        """Maximum number of blending rounds."""

        def __post_init__(self) -> None:
            if not 0 < self.first < 1:
                raise ValueError(f"first must be a share of the epochs between 0 and 1 (exclusive), got {self.first}")
            unit_interval(self.alpha, "alpha")
            fusion.check_options(self.window, self.step, self.rounds)

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        self.first_epochs = split_epochs(config.first, task.epochs)
        device = task.device
        # Predictions of samples not yet seen: the one-hot label, or uniform without a label.
        unseen = one_hot(task.labels, task.num_classes, torch.float16).to(device)
        unseen[task.labels.to(device) < 0] = 1.0 / task.num_classes
        self.register_buffer("current", unseen)
        self.register_buffer("seen", torch.zeros(task.num_samples, dtype=torch.uint8, device=device))
        self.register_buffer("fused", torch.zeros(task.num_samples, task.num_classes, device=device))
        self.register_buffer("alpha_now", torch.zeros(1, device=device))
        self.register_buffer("initial", flatten_tensors(list_float_tensors(network)))
        self.register_buffer("initial_integral", flatten_tensors(list_integer_tensors(network)).long())
        self._predictions: dict[int, dict[str, Tensor]] = {}  # of the first phase, by epoch, in host memory

    def begin_epoch(self, epoch: int) -> None:
        self.alpha_now.fill_(self.config.alpha if epoch > self.first_epochs else 0.0)

    def targets(self, index: Tensor) -> Tensor:
        return teacher.blend_labelled(self.task.one_hot(index), self.fused.index_select(0, index), self.alpha_now)

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        targets = self.targets(batch.index)
        losses, probs = cross_entropy_and_probs(self.observe(batch, network(batch.x)), self.weigh_targets(targets))
        self.current.index_copy_(0, batch.index, probs.to(self.current.dtype))
        self.seen.index_fill_(0, batch.index, 1)
        return reduce(losses, "mean", None, self.count_rows(targets))

    @torch.no_grad()
    def end_epoch(self, end: EpochEnd) -> dict[str, Any]:
        if end.epoch > self.first_epochs:
            return {}
        collectives.merge_rows(self.current, self.seen.bool())
        self.seen.zero_()
        val = fusion.stored_probs(end.val_logits)
        self._predictions[end.epoch] = {"val": val, "train": self.current.to("cpu", copy=True)}
        return self._begin_second_phase(end.network) if end.epoch == self.first_epochs else {}

    def _begin_second_phase(self, network: nn.Module) -> dict[str, Any]:
        """Compute the teacher and reset the network to its initial weights."""
        config, states = self.config, sorted(self._predictions)
        weights = fusion.fusion_weights(
            [self._predictions[s]["val"] for s in states],
            self.task.val_labels.cpu(),
            window=config.window,
            step=config.step,
            rounds=config.rounds,
        )
        self.fused.copy_(teacher.teacher({s: self._predictions[s]["train"] for s in weights}, weights))
        self._predictions.clear()
        restore_tensors(list_float_tensors(network), self.initial)
        restore_tensors(list_integer_tensors(network), self.initial_integral)
        return {"fused": {str(s): weight for s, weight in weights.items()}}

    def final_teacher(self) -> Tensor:
        return self.fused

    def bytes_written_once(self) -> int:
        rows = self.task.num_samples + len(self.task.val_labels)
        return self.first_epochs * rows * self.task.num_classes * torch.float16.itemsize

    def get_extra_state(self) -> dict[str, Any]:
        kept = {str(epoch): dict(probs) for epoch, probs in self._predictions.items()}
        return {"predictions": WrittenOnce(kept)}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._predictions = {
            int(epoch): {name: tensor.cpu() for name, tensor in probs.items()}
            for epoch, probs in state["predictions"].items()
        }
