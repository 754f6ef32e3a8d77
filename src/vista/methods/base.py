"""The protocol that every training method implements, with a default for each hook.

The training loop calls the hooks of a :class:`Method` in this order (pseudocode of ``vista.training``)::

    for run in Cls.earlier_runs(config):                 # e.g. a teacher to train first
        task.earlier[run.role] = train(run)
    method = Cls(task, network, config)                  # create buffers and extra heads
    if resuming:
        method.load_state_dict(checkpoint)               # calls set_extra_state

    for epoch in 1, ..., task.epochs:
        method.begin_epoch(epoch)                        # also after resuming in the middle of an epoch
        for batch in loader:
            loss = method.loss(network, batch)           # default: cross-entropy with method.targets(batch.index);
                                                         # calls method.observe(batch, logits) once
            loss.backward()
            optimizer.step()                             # parameters of the network and of the method
            method.after_step(network)
            if checkpoint is due:
                save(method.state_dict())                # calls get_extra_state

        evaluated = method.evaluated(network)            # default: the network itself
        val_logits, test_logits = predict(evaluated)
        if validation accuracy is the best so far:
            keep the weights of evaluated
        line = method.end_epoch(EpochEnd(...))           # may change the network; returned values are recorded
        method.share_state(seen)                         # several processes: synchronise buffers

    save(method.evaluated(network))                      # the last weights; the best ones were kept above
    method.fused_predictions()                           # default: None, the network predicts
    method.final_teacher()                               # default: None; read by `vista labels`
    method.close()                                       # also after an error; default: nothing

On CUDA the lines from ``loss`` to ``after_step`` are captured into a CUDA graph and replayed, so Python runs them only
while warming up and capturing; :class:`Method` states what that requires. Before the first step the loop also asks for
``bytes_changing``, ``bytes_written_once`` and ``advice_for_less_disk_space``, to check that checkpoints fit on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vista.core import collectives
from vista.core.evidence import Evidence
from vista.core.losses import (
    at_least_float32,
    cross_entropy_and_probs,
    one_hot,
    reduce,
    rows_with_target,
    smooth_targets,
    soft_cross_entropy,
)
from vista.core.store import RowsOnDisk, WrittenOnce
from vista.core.teacher import adapt_targets
from vista.models.staged import check_stages

__all__ = [
    "Batch", "EarlierRun", "EpochEnd", "Family", "LastPrediction", "Method", "RowsOnDisk", "RunningTargets", "Task",
    "WholeBatch", "WrittenOnce", "check_below_one",
]  # fmt: skip

Family = Literal["plain", "teacher-free", "current epoch", "past epochs", "noise-robust", "ours"]


@dataclass(frozen=True)
class Task:
    """The training that a method is part of: labels, sizes, device and random generator."""

    labels: Tensor  # given labels of the training samples, int64 [N], -1 for a missing label
    val_labels: Tensor  # given labels of the validation samples, int64 [m]
    num_classes: int
    epochs: int
    steps_per_epoch: int
    batch_size: int
    device: torch.device
    generator: torch.Generator  # for all random numbers of the method; its state is saved in checkpoints
    cutmix: bool = False  # whether CutMix is on
    earlier: dict[str, nn.Module] = field(default_factory=dict)  # networks of the earlier runs, by role
    has_missing_labels: bool = False
    num_test: int = 0  # number of test samples
    label_smoothing: float = 0.0  # share of every target that is spread over all classes
    class_weight: Tensor | None = None  # weight of each class in the loss, float32 [K]
    sees_every_sample: bool = True  # in every epoch; not with balanced sampling
    store_dir: Path | None = None  # where a method may keep predictions in files, on the disk of the checkpoints

    @property
    def num_samples(self) -> int:
        return len(self.labels)

    def one_hot(self, index: Tensor) -> Tensor:
        """One-hot given labels ``[B, K]`` of the samples ``index``; zeros for a missing label."""
        return one_hot(self.labels.index_select(0, index), self.num_classes)


class Batch(Protocol):
    """The samples of one step. Further views are computed only when a method requests them."""

    x: Tensor  # augmented images [B, ...], mixed if CutMix is on
    index: Tensor  # int64 [B], positions in the training set
    partner: Tensor | None  # with CutMix, the samples mixed in
    share: Tensor | None  # with CutMix, the area share of ``index`` in the image, float32 [1]

    def view(self, number: int = 1, index: Tensor | None = None) -> Tensor:
        """Another, independently augmented view (``number`` 1 or 2) of this batch, or of the samples ``index``."""

    def same_class(self) -> Tensor:
        """For each sample, another sample with the same given label, redrawn every epoch: int64 [B]."""

    def validation(self) -> tuple[Tensor, Tensor]:
        """A batch of validation samples: unaugmented images ``[B, ...]`` and given labels ``[B]``."""


@dataclass(frozen=True)
class WholeBatch:
    """The samples of one step over all processes; fields as in :class:`Batch`."""

    index: Tensor
    partner: Tensor | None
    share: Tensor | None


@dataclass(frozen=True)
class EpochEnd:
    """The argument of :meth:`Method.end_epoch`.

    Logits come from the evaluated network in eval mode. Validation and test logits cover all samples and are equal in
    every process.
    """

    epoch: int  # the epoch that just ended
    network: nn.Module  # the network being trained
    val_logits: Tensor  # [m, K], in the order of the task's val_labels
    test_logits: Tensor  # [T, K], to store only; never use them to select anything
    train_logits: Callable[[], Iterator[tuple[Tensor, Tensor]]]  # pass without augmentation: (logits, index) batches
    train_images: Callable[[], Iterator[Tensor]]  # unaugmented images in batches, to re-estimate BatchNorm
    val_correct: NDArray[np.bool_]  # [m], which of val_logits predict the task's val_labels


@dataclass(frozen=True)
class EarlierRun:
    """A run to finish first; its best network is passed as ``task.earlier[role]``."""

    role: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)


def check_below_one(value: float, name: str) -> None:
    """Raise unless ``0 <= value < 1``, as a momentum, a decay or a dropout probability must be."""
    if not 0.0 <= value < 1.0:
        raise ValueError(f"{name} must be at least 0 and less than 1, got {value}")


class Method(nn.Module):
    """A training method. The module docstring shows when each hook is called.

    Put tensors that must be saved into buffers and extra heads into submodules: ``state_dict`` covers both. Parameters
    of the method are trained together with the network and are not part of the saved model.

    A step may be captured into a CUDA graph. :meth:`loss` and :meth:`after_step` must therefore not read tensor values
    on the host (no ``.item()``, no ``if`` on a tensor) and must update buffers in place. Store values that depend on
    the epoch in a buffer that :meth:`begin_epoch` sets.
    """

    name: ClassVar[str]
    family: ClassVar[Family]
    summary: ClassVar[str]  # one line
    cost: ClassVar[str]  # per step, in forward and backward passes
    keeps: ClassVar[str]  # state in addition to the network
    source: ClassVar[str]  # publication
    version: ClassVar[int] = 1  # raise it when the computation changes: records of older versions are other runs
    reconstruction: ClassVar[bool] = False  # built from a description, because the source gives no formula or code
    variants: ClassVar[dict[str, dict[str, Any]]] = {}  # additional names: this method with these options
    incidental: ClassVar[tuple[str, ...]] = ()  # names of options that do not change the result
    capturable: bool = True  # may become false at the end of an epoch, or when a state is loaded
    composes_with_cutmix: ClassVar[bool] = True
    needs_unmixed: ClassVar[bool] = False  # learns from predictions for batches that CutMix leaves alone
    trains_plainly: ClassVar[bool] = False  # the network is the same as with cross-entropy; only predictions differ
    weighs_targets: ClassVar[bool] = True  # label smoothing and class weights apply: see weigh_targets
    needs_stages: ClassVar[bool] = False  # requires a network with at least two stages of feature maps
    sample_buffers: ClassVar[tuple[str, ...]] = ()  # names of buffers with one row per training sample
    evidence: Evidence | None = None  # where predictions of the training pass are recorded
    learning_rate: Tensor | float = 0.0  # of the current step, set by the engine
    whole_batch: WholeBatch | None = None  # set during a step that is split over several processes

    @dataclass(frozen=True)
    class Config:
        """Options with the source's defaults and a docstring line each; validate them in ``__post_init__``."""

    def __init__(self, task: Task, network: nn.Module, config: Any) -> None:
        super().__init__()
        if self.needs_stages:
            check_stages(network, self.name)
        self.task = task
        self.config = config

    @classmethod
    def earlier_runs(cls, config: Any) -> tuple[EarlierRun, ...]:
        """Return the runs whose trained networks this method needs."""
        return ()

    def begin_epoch(self, epoch: int) -> None:
        """Prepare an epoch (1-based); also called after resuming in the middle of one."""

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """Return the loss to minimise, a scalar: the mean over the batch."""
        return self.cross_entropy(self.observe(batch, network(batch.x)), self.mix_targets(batch, self.targets))

    def targets(self, index: Tensor) -> Tensor:
        """Return the targets ``[B, K]`` of the samples ``index``; override this if only the targets change."""
        return self.task.one_hot(index)

    def observe(self, batch: Batch, logits: Tensor) -> Tensor:
        """Record the predictions for the samples of the batch, and return ``logits``.

        Every method calls it on the logits ``[B, K]`` of ``batch.x``: the run keeps the predicted class of every
        sample and epoch. A mixed image belongs to no sample, so batches with CutMix are not recorded.
        """
        if self.evidence is not None and batch.partner is None:
            self.evidence.record(logits, batch.index)
        return logits

    def expect(self, index: Tensor, following: Tensor) -> None:
        """Receive the samples of the coming step on the CPU, ``[B]``, and those of the one after it.

        Called before every step that is not captured, for methods that read per-sample state on the host.
        """

    def after_step(self, network: nn.Module) -> None:
        """Called after the optimizer step; part of a captured step."""

    def evaluated(self, network: nn.Module) -> nn.Module:
        """Return the network to evaluate, select and save: the trained one, or an average of its weights."""
        return network

    def end_epoch(self, end: EpochEnd) -> dict[str, Any]:
        """Process the end of an epoch; the returned values are added to the epoch's line of the record."""
        return {}

    def close(self) -> None:
        """Release files when the training ends, is interrupted or fails."""

    def fused_predictions(self) -> tuple[Tensor, Tensor] | None:
        """Return final validation and test probabilities if they are not the network's own predictions."""
        return None

    def final_teacher(self) -> Tensor | None:
        """Return the method's final probabilities ``[N, K]`` for the training samples, if it has any."""
        return None

    def merge_parts(self, parts: list[dict[str, Any]], first: dict[str, Any]) -> dict[str, Any]:
        """Return the state for another number of processes.

        Args:
            parts: ``state_dict`` of every process that saved one, or none for a process that takes over no samples.
            first: That of the first process, which the default returns: what others have seen in this epoch is lost.
        """
        return first

    def bytes_changing(self) -> int:
        """Return the size of the state that every checkpoint writes again: parameters, momentum and buffers."""
        parameters = sum(p.nbytes * (2 if p.requires_grad else 1) for p in self.parameters())
        return parameters + sum(buffer.nbytes for buffer in self.buffers())

    def bytes_written_once(self) -> int:
        """Return the maximum total size of the :class:`WrittenOnce` entries."""
        return 0

    def advice_for_less_disk_space(self) -> str:
        """Return how to need less disk space, as the end of an error message."""
        return "; use --out on a larger disk"

    # ------------------------------------------------------------ shared by the methods

    def mix_targets(self, batch: Batch, targets: Callable[[Tensor], Tensor]) -> Tensor:
        """Return ``targets(index)``, with CutMix ``share * targets(index) + (1 - share) * targets(partner)``."""
        own = targets(batch.index)
        if batch.partner is None or batch.share is None:
            return own
        return own * batch.share + targets(batch.partner) * (1.0 - batch.share)

    def cross_entropy(self, logits: Tensor, targets: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """Return the mean soft-target cross-entropy over the rows that have a target."""
        rows = self.count_rows(targets)
        return soft_cross_entropy(logits, self.weigh_targets(targets), sample_weight=sample_weight, rows=rows)

    def weigh_targets(self, targets: Tensor) -> Tensor:
        """Return targets ``[B, K]`` with the run's label smoothing and class weights, for a cross-entropy."""
        if self.task.label_smoothing:
            targets = smooth_targets(targets, self.task.label_smoothing)
        return targets if self.task.class_weight is None else targets * self.task.class_weight

    def target_weights(self) -> dict[str, Any]:
        """Return the same as arguments of :meth:`vista.Vista.loss`."""
        return {"label_smoothing": self.task.label_smoothing, "class_weight": self.task.class_weight}

    def count_rows(self, targets: Tensor) -> Tensor | None:
        """Return the divisor of a mean over the rows with a target; ``None`` (all rows) if no label is missing.

        With several processes, each uses its share of the whole batch's count: the engine weights the losses of the
        processes by their numbers of samples, so their sum is the mean over all rows with a target.
        """
        if not self.task.has_missing_labels:
            return None
        if self.whole_batch is None:
            return rows_with_target(targets)
        whole = self.whole_batch
        has = self.has_target(whole.index)
        if whole.partner is not None and whole.share is not None:
            has = (has & (whole.share > 0)) | (self.has_target(whole.partner) & (whole.share < 1))
        return has.sum().clamp(min=1) * (len(targets) / len(whole.index))

    def has_target(self, index: Tensor) -> Tensor:
        """Return which samples currently have a target (from their label or a teacher), bool ``[B]``."""
        return self.targets(index).sum(dim=1) > 0

    def share_state(self, seen: Tensor) -> None:
        """Synchronise the buffers of several processes at the end of an epoch.

        Rows of :attr:`sample_buffers` come from the process that trained on the sample, other buffers from process 0.

        Args:
            seen: Which samples this process trained on, bool ``[N]``.
        """
        for name, buffer in self.named_buffers():
            if name in self.sample_buffers:
                collectives.merge_rows(buffer, seen.clone())
            else:
                collectives.broadcast(buffer)


class LastPrediction(Method):
    """Base of methods that build targets from the label and the previous prediction of each sample."""

    keeps = "N x K float32"
    composes_with_cutmix = False
    sample_buffers = ("memory",)

    memory: Tensor  # probabilities [N, K] from the last time a sample was trained on; one-hot labels before that

    def __init__(self, task: Task, network: nn.Module, config: Any) -> None:
        super().__init__(task, network, config)
        self.register_buffer("memory", task.one_hot(torch.arange(task.num_samples, device=task.device)))

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        targets = self.targets(batch.index)
        rows = self.count_rows(targets)  # before the update, which fills the rows of samples without a label
        losses, probs = cross_entropy_and_probs(self.observe(batch, network(batch.x)), self.weigh_targets(targets))
        self.memory.index_copy_(0, batch.index, probs.to(self.memory.dtype))
        return reduce(losses, "mean", None, rows)

    def final_teacher(self) -> Tensor:
        return self.memory


class RunningTargets(Method):
    """Base of methods whose targets move from the label to a running mean of predictions.

    Their options are ``momentum``, the weight of the old target in each update, and ``start``, the share of the epochs
    in which targets stay the labels.
    """

    keeps = "N x K float32"
    composes_with_cutmix = False
    sample_buffers = ("memory",)

    memory: Tensor  # targets [N, K]
    momentum: Tensor

    def __init__(self, task: Task, network: nn.Module, config: Any) -> None:
        super().__init__(task, network, config)
        self.register_buffer("memory", task.one_hot(torch.arange(task.num_samples, device=task.device)))
        self.register_buffer("momentum", torch.ones((), device=task.device))

    def begin_epoch(self, epoch: int) -> None:
        started = (epoch - 1) / self.task.epochs >= self.config.start
        self.momentum.fill_(self.config.momentum if started else 1.0)

    @torch.no_grad()
    def update_targets(self, logits: Tensor, index: Tensor) -> Tensor:
        """Move the targets of a batch towards its predictions, and return them."""
        probs = at_least_float32(logits).softmax(dim=1).to(self.memory.dtype)
        targets = adapt_targets(self.memory.index_select(0, index), probs, self.momentum)
        self.memory.index_copy_(0, index, targets)
        return targets

    def final_teacher(self) -> Tensor:
        return self.memory
