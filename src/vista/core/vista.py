"""``Vista``: the state machine of one training, and the only state of the method."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vista.core import collectives, coverage, teacher
from vista.core.losses import Reduction, cross_entropy_and_probs, one_hot, reduce, rows_with_target, transformed, wide
from vista.core.options import Options, Record, Schedule, Start, check_epochs
from vista.core.store import PredictionStore, check_room
from vista.core.validation import (
    FirstFault,
    as_labels,
    as_logits,
    as_numbers,
    check_all_named,
    check_finite,
    check_index,
    check_logits,
    predicted_classes,
    whole,
)

FORMAT = 1
STATE = ("identity", "epoch", "states", "counts", "coverage", "current", "seen", "predictions")


def check_parts(state: Mapping[str, Any]) -> None:
    """Refuse what is not whole, or of another format or kind; whether the parts fit together is seen later."""
    if not isinstance(state, Mapping):
        raise TypeError(f"the state is a {type(state).__name__}, but what state_dict() gave is needed")
    if state.get("format") != FORMAT:
        raise ValueError(f"the state has format {state.get('format')!r}, but this version reads format {FORMAT}")
    absent = [part for part in STATE if part not in state]
    if absent:
        raise ValueError(f"the state lacks {', '.join(absent)}: it is damaged, or not whole")
    fits = {
        "identity": ("named values are", lambda part: isinstance(part, Mapping)),
        "states": ("a list is", lambda part: isinstance(part, list | tuple)),
        "counts": ("a list is", lambda part: isinstance(part, list | tuple)),
        "coverage": ("a tensor is", lambda part: isinstance(part, Tensor)),
        "current": ("a tensor is", lambda part: isinstance(part, Tensor)),
        "seen": ("a tensor is", lambda part: isinstance(part, Tensor)),
        "predictions": ("a tensor for each state is", _are_predictions),
    }
    for name, (needed, is_that) in fits.items():
        if not is_that(state[name]):
            kind = type(state[name]).__name__
            raise ValueError(f"the state's {name} is a {kind}, but {needed} needed: it is damaged")


def _are_predictions(part: Any) -> bool:
    return isinstance(part, Mapping) and all(
        str(s).isdecimal() and isinstance(rows, Tensor) for s, rows in part.items()
    )


@dataclass(frozen=True)
class Summary:
    """What an epoch's end decided."""

    epoch: int
    accuracy: float  # share of validation samples whose given label was predicted
    anchors: dict[int, float]  # the contributing set and its weights, oldest first
    beta: float  # beta_t, the weight of the teacher in the coming epoch
    unrecorded: int  # training samples without a prediction of this epoch
    event: str | None = None  # what was out of the ordinary
    options: Options = field(default_factory=Options, repr=False)  # those of its Vista, for who draws or logs it


class Vista:
    """Targets from the labels and from what past states of the same network still know.

    ``labels`` ``[N]`` are the given labels of the training samples and ``val_labels`` ``[m]`` those of the validation
    samples; -1 (or ``ignore_index``) among ``labels`` means that a sample has none. ``tau`` prunes states that add at
    most that fraction of the validation set. ``record="train"`` remembers the softmax of the training pass itself,
    ``"eval"`` what :meth:`record` or :meth:`end_epoch` are given. ``order``, ``weights`` and ``smoothing`` are the
    paper's ablations, ``schedule`` with ``k`` or ``value`` its choices of beta; ``start="uniform"`` gives a fixed
    beta a uniform teacher in epoch 1. ``checks=False`` is for a loop that vouches for its batches: indices in range,
    no sample twice in a batch, non-finite losses noticed by itself. ``device``: that of the first logits if not given.
    """

    def __init__(
        self,
        labels: Tensor | NDArray[Any] | Sequence[int],
        *,
        num_classes: int,
        epochs: int,
        val_labels: Tensor | NDArray[Any] | Sequence[int],
        tau: float = 0.0,
        record: Record = "train",
        schedule: Schedule = "exp",
        k: float = 2.0,
        value: float | None = None,
        order: coverage.Order = "accuracy",
        weights: teacher.Weights = "coverage",
        smoothing: int = 1,
        start: Start = "hard",
        ignore_index: int = -1,
        checks: bool = True,
        device: torch.device | str | None = None,
    ) -> None:
        self.num_classes = num_classes = whole(num_classes, "num_classes")
        self.num_epochs = check_epochs(epochs)
        self.epoch = 0  # epochs that have ended
        self._calls_to_end = 0
        self._checks = checks
        self._options = Options(tau, record, schedule, k, value, order, weights, smoothing, start)
        self._labels = as_labels(labels, num_classes, "labels", missing=whole(ignore_index, "ignore_index"))
        self._val_labels = as_labels(val_labels, num_classes, "val_labels")
        self._identity = _digest(self._labels), _digest(self._val_labels)
        if device is None:
            self._device_is_open, place = True, labels.device if isinstance(labels, Tensor) else torch.device("cpu")
        else:
            self._device_is_open, place = False, _existing(device)
        self._check_room(place)
        self._labels = self._labels.to(place)
        self._missing = (self._labels < 0).nonzero().flatten()
        self._states: list[int] = []  # kept states, oldest first: the anchors, or all past states in the ablations
        self._counts: list[int] = []  # their marginal coverage at the end of the last epoch
        self._bits: coverage.Bits = coverage.pack(np.zeros((0, len(self._val_labels)), np.bool_))
        unseen = one_hot(self._labels, num_classes)
        unseen[self._missing] = 1.0 / num_classes
        self._store = PredictionStore(unseen)
        self._fault = FirstFault(place)
        self._targets = torch.zeros(len(unseen) + 1, num_classes, dtype=torch.float32, device=place)
        del unseen  # the next line needs the room
        self._make_targets()

    # ---------------------------------------------------------------- the loop

    def epochs(self) -> Iterator[int]:
        """1 to the planned number; after a loaded state the epoch it stopped in comes first."""
        while self.epoch < self.num_epochs:
            epoch, before = self.epoch + 1, self._calls_to_end
            yield epoch
            if self.epoch < epoch:
                raise RuntimeError(f"epoch {epoch} was not ended: call end_epoch(val_logits) at its end")
            if self._calls_to_end > before + 1:
                times = self._calls_to_end - before
                raise RuntimeError(
                    f"epoch {epoch} was ended {times} times: call end_epoch(val_logits) once, at its end"
                )

    def targets(self, index: Tensor | NDArray[Any] | Sequence[int]) -> Tensor:
        """Targets of the running epoch, float32 ``[B, K]``."""
        rows = self._safe_index(check_index(index, len(self._store))) if self._checks else torch.as_tensor(index)
        return self._targets.index_select(0, rows)

    def loss(
        self,
        logits: Tensor,
        index: Tensor | NDArray[Any] | Sequence[int],
        targets: Tensor | None = None,
        reduction: Reduction = "mean",
        sample_weight: Tensor | None = None,
        class_weight: Tensor | None = None,
    ) -> Tensor:
        """Soft-target cross-entropy of ``logits`` ``[B, K]`` for the samples ``index`` ``[B]``.

        With ``record="train"``, gradients on and no ``targets`` given, the predictions are remembered. The mean is over
        the samples that have a target, whatever their weights: as torch takes it with soft targets, while with class
        numbers it divides by the weights of these.
        """
        rows = self._rows(logits, index)
        recording = targets is None and self._options.record == "train" and torch.is_grad_enabled()
        if recording and transformed():
            raise RuntimeError(
                "loss() cannot remember predictions inside torch.func: give it targets=vista.targets(index) there, "
                "and call record(logits, index) outside"
            )
        # A checked card may have sent a bad row to the spare one, whose target is empty.
        whole = targets is None and not len(self._missing) and not (self._checks and logits.is_cuda)
        if targets is None:
            targets = self._targets.index_select(0, rows)
        else:
            targets = as_numbers(targets, logits, tuple(logits.shape), "targets")
        if sample_weight is not None:
            sample_weight = as_numbers(sample_weight, logits, (len(logits),), "sample_weight")
        if class_weight is not None:
            class_weight = as_numbers(class_weight, logits, (self.num_classes,), "class_weight")
        losses, probs = cross_entropy_and_probs(logits, targets, class_weight, sum_to_one=whole)
        loss = reduce(losses, reduction, sample_weight, rows_with_target(targets) if len(self._missing) else None)
        if recording:  # last, so that a call that fails has stored nothing
            with torch.no_grad():
                self._store.write(rows, probs, unique=not self._checks)
        return loss

    @torch.no_grad()
    def record(self, logits: Tensor, index: Tensor | NDArray[Any] | Sequence[int]) -> None:
        """Remember ``softmax(logits)`` ``[B, K]`` as this epoch's predictions of the samples ``index`` ``[B]``."""
        rows = self._rows(logits, index)
        self._store.write(rows, wide(logits).softmax(dim=-1))

    @torch.no_grad()
    def end_epoch(
        self,
        val_logits: Tensor | NDArray[Any],
        val_index: Tensor | NDArray[Any] | Sequence[int] | None = None,
        train_logits: Tensor | NDArray[Any] | None = None,
    ) -> Summary:
        """Sweep, prune, make the teacher of the next epoch.

        ``val_logits`` ``[m, K]`` are in the order of ``val_labels`` unless ``val_index`` names each row's sample; with
        several processes each passes its own part. ``train_logits`` ``[N, K]`` belong to ``record="eval"`` alone.
        """
        epoch = self.epoch + 1
        if epoch > self.num_epochs:
            raise RuntimeError(f"all {self.num_epochs} epochs have ended; epochs={epoch} or more would allow another")
        self.check()
        correct = self._coverage_of(as_logits(val_logits, "val_logits"), val_index)
        if train_logits is not None:
            self._take_train_logits(as_logits(train_logits, "train_logits"))
        elif self._options.record == "eval" and not self._recorded_anywhere():
            raise ValueError(
                f"epoch {epoch} has no recorded predictions: with record='eval' give end_epoch train_logits [N, K], "
                "or call record(logits, index) on a clean pass before it"
            )
        collectives.merge_rows(self._store.current[:-1], self._store.recorded())
        unrecorded = len(self._store) - int(self._store.recorded().sum())
        self._admit(epoch, correct)
        self._store.turn()
        self.epoch = epoch
        self._calls_to_end += 1
        self._make_targets()
        self._agree()
        return self._summary(float(correct.mean()), unrecorded)

    def teacher(self) -> Tensor:
        """``Q`` of the last ended epoch, float32 ``[N, K]``; without an anchor the labels themselves."""
        weights = self._teacher_weights()
        if weights:
            return teacher.teacher(self._store.states, weights)
        return one_hot(self._labels, self.num_classes)

    def check(self) -> None:
        """Raise what a CUDA device found since the last look; on the CPU it was raised at once."""
        self._fault.raise_if_any(self.epoch + 1, len(self._store))

    # ---------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """All state, in tensors, numbers and strings: it loads with ``torch.load(..., weights_only=True)``.

        The predictions of kept states are the tensors themselves, not copies: nothing ever writes to them.
        """
        return {
            "format": FORMAT,
            "identity": self._describe(),
            "epoch": self.epoch,
            "states": list(self._states),
            "counts": list(self._counts),
            "coverage": torch.from_numpy(self._bits.view(np.uint8).copy()),
            "current": self._store.current[:-1].clone(),
            "seen": self._store.recorded().clone(),
            "predictions": {str(s): rows for s, rows in self._store.states.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state`` was taken, after any step. It must come from the same data and options."""
        check_parts(state)
        for name, ours in self._describe().items():
            theirs = state["identity"].get(name)
            if theirs != ours:
                raise ValueError(f"the state was made with {name}={theirs!r}, but this Vista has {name}={ours!r}")
        # Everything is read and measured before anything is changed: a damaged state leaves this one as it was.
        epoch = whole(state["epoch"], "the state's epoch")
        states, counts = (
            [whole(number, f"a number in the state's {name}") for number in state[name]]
            for name in ("states", "counts")
        )
        predictions = {int(s): rows.to(self.device) for s, rows in state["predictions"].items()}
        current, seen = state["current"].to(self.device), state["seen"].to(self.device)
        packed = np.ascontiguousarray(state["coverage"].cpu().numpy())
        rows = tuple(self._store.current[:-1].shape)
        shapes = {tuple(kept.shape) for kept in (current, *predictions.values())}
        if not (
            shapes == {rows}
            and tuple(seen.shape) == rows[:1]
            and len(states) == len(counts)
            and packed.dtype == np.uint8
            and packed.shape == (len(states), self._bits.view(np.uint8).shape[1])
            and self._could_count(counts, packed.view(np.uint64))
            and set(predictions) == set(states)
            and states == sorted({*states})
            and all(0 < s <= epoch for s in states)
            and all(bool(torch.isfinite(kept.sum(dtype=torch.float32))) for kept in (current, *predictions.values()))
            and 0 <= epoch <= self.num_epochs
        ):
            raise ValueError(
                f"the state of epoch {epoch} does not fit together: it is damaged, or put together by hand"
            )
        self.epoch, self._states, self._counts, self._bits = epoch, states, counts, packed.copy().view(np.uint64)
        self._store.current[:-1], self._store.seen[:-1], self._store.states = current, seen, predictions
        self._make_targets()

    @property
    def tau(self) -> float:
        """States that add at most this fraction of the validation set are pruned."""
        return self._options.tau

    @property
    def device(self) -> torch.device:
        return self._targets.device

    def to(self, device: torch.device | str) -> Vista:
        """Move everything to ``device``."""
        place = _existing(device)
        self._labels, self._missing, self._targets = (t.to(place) for t in (self._labels, self._missing, self._targets))
        self._store.to(place)
        self._fault = self._fault.to(place)
        return self

    def _describe(self) -> dict[str, Any]:
        labels, val_labels = self._identity
        return {
            "num_classes": self.num_classes,
            "samples": len(self._store),
            "validation_samples": len(self._val_labels),
            "labels": labels,
            "val_labels": val_labels,
            "epochs": self.num_epochs,
            **asdict(self._options),
        }

    # ---------------------------------------------------------------- checks

    def _rows(self, logits: Tensor, index: Tensor | NDArray[Any] | Sequence[int]) -> Tensor:
        """Rows to read and write for ``logits``: ``index`` itself, or the spare row where something is wrong (CUDA)."""
        if not self._checks:
            return torch.as_tensor(index)
        given = check_index(index, len(self._store))
        check_logits(logits, len(given), self.num_classes)
        if self._device_is_open:
            if logits.device != self.device:
                self._check_room(logits.device)
                self.to(logits.device)
            self._device_is_open = False
        if logits.device != self.device:
            raise ValueError(f"logits are on {logits.device}, but this Vista is on {self.device}: pass device=")
        if logits.is_cuda:
            return self._safe_index(given, logits)
        check_finite(logits, given, self.epoch + 1)
        return given

    def _check_room(self, device: torch.device) -> None:
        prunes = not self._options.needs_every_state
        check_room(len(self._labels), self.num_classes, self.num_epochs, self.tau, device, prunes)

    def _safe_index(self, index: Tensor, logits: Tensor | None = None) -> Tensor:
        index = index.to(self.device, non_blocking=self.device.type == "cuda")  # on the CPU it is read at once
        return self._fault.spare(index, len(self._store), logits) if index.is_cuda else index

    def _coverage_of(self, logits: Tensor, index: Tensor | NDArray[Any] | Sequence[int] | None) -> NDArray[np.bool_]:
        """Which validation samples are right, bool ``[m]``, over all processes."""
        classes = predicted_classes(logits, index, len(self._val_labels), self.num_classes, self.epoch + 1)
        correct, seen = (classes == self._val_labels).to(torch.int32), classes >= 0
        collectives.merge_rows(correct, seen)
        check_all_named(seen)
        return correct.numpy().astype(np.bool_)

    def _take_train_logits(self, logits: Tensor) -> None:
        if self._options.record != "eval":
            raise ValueError(
                "train_logits were given, but record='train' takes predictions from loss(): use record='eval'"
            )
        if len(logits) != len(self._store):
            raise ValueError(f"train_logits has {len(logits)} rows, but there are {len(self._store)} training samples")
        everything = torch.arange(len(logits))
        check_logits(logits, len(logits), self.num_classes, "train_logits")
        check_finite(logits, everything, self.epoch + 1, "train_logits")
        self._store.write(everything.to(self.device), wide(logits).softmax(dim=-1).to(self.device))

    def _recorded_anywhere(self) -> bool:
        anything = self._store.recorded().any().to(torch.int32).cpu().view(1)
        collectives.merge_rows(anything, anything.bool())
        return bool(anything.any())

    def _agree(self) -> None:
        """Every process holds the same data and options, and decided the same."""
        decision = repr((self._describe(), self.epoch, self._states, self._counts)).encode() + self._bits.tobytes()
        collectives.agree(decision, f"the anchors of epoch {self.epoch}")

    # ---------------------------------------------------------------- the method

    def _admit(self, epoch: int, correct: NDArray[np.bool_]) -> None:
        """The newest state joins the kept ones, and what adds too little leaves, its predictions with it."""
        self._states, counts, self._bits = coverage.admit(
            self._states,
            self._bits,
            epoch,
            coverage.pack(correct[None]),
            m=len(correct),
            tau=self.tau,
            order=self._options.order,
            prunes=not self._options.needs_every_state,
        )
        self._counts = counts.tolist()
        if epoch in self._states:
            self._store.keep(epoch)
        for s in set(self._store.states) - set(self._states):
            del self._store.states[s]

    def _could_count(self, counts: Sequence[int], bits: coverage.Bits) -> bool:
        """Whether a sweep that left these states can have counted this of each of them.

        Counts are taken before the pruning. What a tolerance prunes may have covered samples that a kept state covers,
        so there a sweep over the kept ones alone counts as much or more.
        """
        found, swept = np.array(counts, dtype=np.int64), coverage.sweep(bits, self._options.order)
        kept = coverage.above_tolerance(found, self.tau, len(self._val_labels)) | self._options.needs_every_state
        return bool((kept & (found <= swept if self.tau else found == swept)).all())

    def _anchors(self) -> dict[int, float]:
        """The contributing set and its weights."""
        kind = self._options.weights
        scores: Sequence[float] = self._counts
        if kind == "accuracy":
            scores = coverage.sizes(self._bits).tolist()
        elif kind == "uniform":
            scores = [1.0] * len(self._states)
        return teacher.normalise(dict(zip(self._states, scores, strict=True)))

    def _teacher_weights(self) -> dict[int, float]:
        return teacher.smooth(self._anchors(), self.epoch, self._options.smoothing)

    def _beta(self) -> float:
        return self._options.beta(self.epoch, self.num_epochs)

    def _make_targets(self) -> None:
        """Targets of the coming epoch, in place: the captured step of an engine reads this very tensor."""
        targets, weights = self._targets[:-1], self._teacher_weights()
        if weights:
            teacher.teacher(self._store.states, weights, out=targets)
        elif self.epoch == 0 and self._options.start == "uniform":
            targets.fill_(1.0 / self.num_classes)
        else:
            targets.copy_(one_hot(self._labels, self.num_classes))
            return
        unlabelled = targets[self._missing]
        beta = self._beta()
        targets.mul_(beta)
        labels = self._labels.clamp(min=0).unsqueeze(1)
        targets.scatter_(1, labels, targets.gather(1, labels) + (1.0 - beta))
        targets[self._missing] = unlabelled

    def _summary(self, accuracy: float, unrecorded: int) -> Summary:
        events = []
        if unrecorded:
            events.append(
                f"{unrecorded} of {len(self._store)} training samples were not recorded in epoch {self.epoch}"
            )
            why = "they keep their last prediction (its label where there is none)"
            if unrecorded == len(self._store):
                why += "; loss() with targets of your own remembers nothing: call record(logits, index) beside it"
            warnings.warn(f"{events[0]}; {why}", stacklevel=4)
        anchors = self._anchors()
        if not anchors:
            nothing = f"no state covers more than {self.tau:g} of the validation set"
            events.append(f"{nothing}: the next targets are the labels")
        event = "; ".join(events) or None
        return Summary(self.epoch, accuracy, anchors, self._beta(), unrecorded, event, self._options)


def _existing(device: torch.device | str) -> torch.device:
    place = torch.device(device)
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device is {str(device)!r}, but there is no CUDA device: use device='cpu'")
    return place


def _digest(labels: Tensor) -> str:
    return hashlib.sha256(labels.cpu().numpy().astype("<i8").tobytes()).hexdigest()[:16]
