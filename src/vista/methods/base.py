"""What a method may do: a small protocol with defaults, which serves every method."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from vista import exchange
from vista.losses import cross_entropy_and_probs, one_hot, reduce, rows_with_target, soft_cross_entropy
from vista.models.staged import check_stages

Family = Literal["plain", "teacher-free", "current epoch", "past epochs", "noise-robust", "ours"]


@dataclass(frozen=True)
class Task:
    """What a method is told about the training it serves."""

    labels: Tensor  # given labels of the training samples, int64 [N], -1 where there is none
    val_labels: Tensor  # given labels of the validation samples, int64 [m]
    num_classes: int
    epochs: int
    steps_per_epoch: int
    batch_size: int
    device: torch.device
    generator: torch.Generator  # for every random draw of the method; its state is saved with the run
    cutmix: bool = False  # whether pictures will be mixed
    earlier: dict[str, nn.Module] = field(default_factory=dict)  # trained networks of the runs it asked for, by role
    has_missing_labels: bool = False
    num_test: int = 0  # test samples, whose predictions some methods keep

    @property
    def num_samples(self) -> int:
        return len(self.labels)

    def one_hot(self, index: Tensor) -> Tensor:
        """Given labels of the samples ``index`` as rows ``[B, K]``; zeros where there is none."""
        return one_hot(self.labels.index_select(0, index), self.num_classes)


class Batch(Protocol):
    """One step's samples. Further pictures are made only for methods that ask."""

    x: Tensor  # augmented view [B, ...], mixed where CutMix is on
    index: Tensor  # int64 [B], positions in the training set
    partner: Tensor | None  # under CutMix, the samples mixed in
    share: Tensor | None  # under CutMix, the share of ``index`` in the picture, float32 [1]

    def view(self, number: int = 1, index: Tensor | None = None) -> Tensor:
        """Another, independently augmented view (``number`` 1 or 2) of these samples, or of the samples ``index``."""

    def same_class(self) -> Tensor:
        """For each sample another one of the same given label, drawn anew each epoch: int64 [B]."""

    def validation(self) -> tuple[Tensor, Tensor]:
        """A batch of validation samples, clean pictures ``[B, ...]`` and given labels ``[B]``."""


@dataclass(frozen=True)
class WholeBatch:
    """One step's samples over all processes, as in :class:`Batch`."""

    index: Tensor
    partner: Tensor | None
    share: Tensor | None


@dataclass(frozen=True)
class EpochEnd:
    """What a method hears at the end of an epoch. Logits are of the network that is evaluated, in eval mode.

    Those of validation and test are of all samples, and the same in every process.
    """

    epoch: int  # the one that just ended
    network: nn.Module  # the network that trains
    val_logits: Tensor  # [m, K], in the order of the task's val_labels
    test_logits: Tensor  # [T, K], for methods that keep them; never to choose by
    train_logits: Callable[[], Iterator[tuple[Tensor, Tensor]]]  # a clean pass: (logits, index) in batches
    train_pictures: Callable[[], Iterator[Tensor]]  # clean pictures in batches, to re-estimate BatchNorm


@dataclass(frozen=True)
class EarlierRun:
    """A run that must be there first: its network is handed over as ``task.earlier[role]``."""

    role: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)


class WrittenOnce(dict[str, Any]):
    """Entries of a method's extra state, tensors or dicts of them, that never change under the same name.

    A checkpoint writes each of them once, as a file of its own, and later ones refer to it.
    """


class Method(nn.Module):
    """A way to train. Tensors that must survive are buffers, extra heads are submodules: both are saved by themselves.

    Parameters of the method train beside the network's and are gone at inference, because only the plain network is
    ever saved as the model. A step may be captured into a CUDA graph once and replayed: :meth:`loss` must then not
    look at values (no ``.item()``, no ``if`` on a tensor) and must change buffers in place. What depends on the epoch
    goes through a buffer that :meth:`begin_epoch` sets.
    """

    name: ClassVar[str]
    family: ClassVar[Family]
    summary: ClassVar[str]  # one line
    cost: ClassVar[str]  # per step, in forward and backward passes
    keeps: ClassVar[str]  # state beyond the network
    source: ClassVar[str]  # where the method comes from
    reconstruction: ClassVar[bool] = False  # built from a description, because the source gives no formula or code
    variants: ClassVar[dict[str, dict[str, Any]]] = {}  # further names: the same method with these options
    capturable: ClassVar[bool] = True
    composes_with_cutmix: ClassVar[bool] = True
    trains_plainly: ClassVar[bool] = False  # its network is plain training's own; only what is made of it differs
    needs_stages: ClassVar[bool] = False  # wants the maps of a staged network
    sample_buffers: ClassVar[tuple[str, ...]] = ()  # names of buffers with one row per training sample
    whole_batch: WholeBatch | None = None  # of the running step, where several processes share it

    @dataclass(frozen=True)
    class Config:
        """Options with the source's defaults, a line of explanation each; a subclass checks them in __post_init__."""

    def __init__(self, task: Task, network: nn.Module, config: Any) -> None:
        super().__init__()
        if self.needs_stages:
            check_stages(network, self.name)
        self.task = task
        self.config = config

    @classmethod
    def earlier_runs(cls, config: Any) -> tuple[EarlierRun, ...]:
        """The runs whose networks this one needs."""
        return ()

    def begin_epoch(self, epoch: int) -> None:
        """Before the first step of an epoch (1-based); also after a resume in the middle of one."""

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """The loss to minimise, a scalar: the mean over the batch."""
        return self.cross_entropy(network(batch.x), self.mix_targets(batch, self.targets))

    def targets(self, index: Tensor) -> Tensor:
        """Targets ``[B, K]`` of the samples, for methods that change nothing else."""
        return self.task.one_hot(index)

    def after_step(self, network: nn.Module) -> None:
        """After the optimiser's step, still inside a captured one."""

    def evaluated(self, network: nn.Module) -> nn.Module:
        """The network that is evaluated, selected and saved: the trained one, or an average of it."""
        return network

    def end_epoch(self, end: EpochEnd) -> dict[str, Any]:
        """Hear the end of an epoch; what is returned goes into the epoch's line of the record."""
        return {}

    def fused_predictions(self) -> tuple[Tensor, Tensor] | None:
        """Final validation and test probabilities, for methods whose result is not the network's own prediction."""
        return None

    def final_teacher(self) -> Tensor | None:
        """What the method believes of the training samples at the end, probabilities ``[N, K]``."""
        return None

    def bytes_changing(self) -> int:
        """What of the method every checkpoint holds anew: parameters, with their momentum, buffers, and so on."""
        parameters = sum(p.nbytes * (2 if p.requires_grad else 1) for p in self.parameters())
        return parameters + sum(buffer.nbytes for buffer in self.buffers())

    def bytes_written_once(self) -> int:
        """Most that its entries can take that are :class:`WrittenOnce`."""
        return 0

    def advice_for_less_room(self) -> str:
        """What to change where that is too much, as the end of a sentence."""
        return "; use --out on a larger disk"

    # ------------------------------------------------------------ shared by the methods

    def mix_targets(self, batch: Batch, targets: Callable[[Tensor], Tensor]) -> Tensor:
        """``targets(index)``, under CutMix mixed by area: share * targets(a) + (1 - share) * targets(b)."""
        own = targets(batch.index)
        if batch.partner is None or batch.share is None:
            return own
        return own * batch.share + targets(batch.partner) * (1.0 - batch.share)

    def cross_entropy(self, logits: Tensor, targets: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """Mean soft-target cross-entropy over the rows that have a target."""
        return soft_cross_entropy(logits, targets, sample_weight=sample_weight, rows=self.count_rows(targets))

    def count_rows(self, targets: Tensor) -> Tensor | None:
        """By how many rows a sum over the batch is to be divided; ``None`` where every sample has a label.

        Over several processes each has its share of those that the whole batch has: the engine weighs their losses by
        their samples, so that together they come to the mean over the rows with a target.
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
        """Which samples have a target now, bool ``[B]``: the labelled ones, and those that a teacher speaks of."""
        return self.targets(index).sum(dim=1) > 0

    def share_state(self, seen: Tensor) -> None:
        """Over several processes, at the end of an epoch: rows by the process that saw the sample, the rest from 0.

        ``seen`` bool ``[N]`` says which samples this process trained on.
        """
        for name, buffer in self.named_buffers():
            if name in self.sample_buffers:
                exchange.merge_rows(buffer, seen.clone())
            else:
                exchange.broadcast(buffer)


class LastPrediction(Method):
    """For methods whose targets are made of the label and what the network last said of the sample."""

    keeps = "N x K float32"
    composes_with_cutmix = False
    sample_buffers = ("memory",)

    memory: Tensor  # probabilities [N, K] of the last time a sample was trained on; its label before that

    def __init__(self, task: Task, network: nn.Module, config: Any) -> None:
        super().__init__(task, network, config)
        self.register_buffer("memory", task.one_hot(torch.arange(task.num_samples, device=task.device)))

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        targets = self.targets(batch.index)
        rows = self.count_rows(targets)  # before the memory speaks of samples without label
        losses, probs = cross_entropy_and_probs(network(batch.x), targets)
        self.memory.index_copy_(0, batch.index, probs.to(self.memory.dtype))
        return reduce(losses, "mean", None, rows)

    def final_teacher(self) -> Tensor:
        return self.memory
