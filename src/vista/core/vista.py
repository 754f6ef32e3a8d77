"""``Vista``: the method as one object that holds all of its state; the mathematics is in the modules beside it."""

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
from vista.core.losses import (
    Reduction,
    cross_entropy_and_probs,
    in_torch_func,
    one_hot,
    reduce,
    rows_with_target,
    smooth_targets,
    wide,
)
from vista.core.options import Options, Record, Schedule, Start, check_epochs
from vista.core.store import PredictionStore, check_memory
from vista.core.topk import are_packed, check_topk
from vista.core.validation import (
    FirstFault,
    Integers,
    as_int,
    as_labels,
    as_logits,
    as_numbers,
    check_all_named,
    check_finite,
    check_index,
    check_logits,
    predicted_classes,
    unit_interval,
)

FORMAT = 1


@dataclass(frozen=True)
class Summary:
    """The result of :meth:`Vista.end_epoch`.

    Attributes:
        epoch: The epoch that ended, from 1.
        accuracy: Share of validation samples whose given label was predicted.
        anchors: Weight of each anchor by its epoch, oldest first.
        beta: Weight of the teacher in the targets of the next epoch.
        unrecorded: Number of training samples without a prediction of this epoch.
        event: A description of anything unusual, or ``None``.
        options: Options of the ``Vista``, for plots and logs.

    >>> vista = Vista([0, 1], num_classes=2, epochs=2, val_labels=[0, 1])
    >>> vista.record(torch.eye(2), [0, 1])
    >>> vista.end_epoch(torch.eye(2)).accuracy
    1.0
    """

    epoch: int
    accuracy: float
    anchors: dict[int, float]
    beta: float
    unrecorded: int
    event: str | None = None
    options: Options = field(default_factory=Options, repr=False)


class Vista:
    """Soft targets from the given labels and the predictions of past states of the same network.

    Args:
        labels: Given labels of the training samples, ``[N]``; -1 or ``ignore_index`` means no label.
        num_classes: Number of classes K.
        epochs: Planned number of epochs, at least 2.
        val_labels: Given labels of the validation samples, ``[m]``.
        tau: Prune states that add at most this fraction of the validation set; 0 is Basic, 0.01 the paper's Light.
        record: ``"train"`` stores the softmax of the training pass in :meth:`loss`; ``"eval"`` stores the predictions
            given to :meth:`record` or :meth:`end_epoch`.
        schedule: How the teacher's weight beta rises: exp, linear, cosine or fixed.
        k: Curvature of the exp schedule.
        value: Beta of the fixed schedule.
        order: Which states claim validation samples first: accuracy or newest.
        weights: What a state's weight is computed from: coverage, accuracy or uniform.
        smoothing: Odd width in epochs of the window predictions are averaged over.
        start: Targets of epoch 1 under a fixed schedule: hard (the labels) or uniform (blended with 1 / K).
        topk: Keep only the ``topk`` largest probabilities of each prediction, and a uniform remainder: 4 bytes each
            instead of 2 K. Its soft targets differ from those of all probabilities; off by default.
        ignore_index: Another value than -1 that means no label.
        checks: ``False`` skips checks per batch, for a loop that guarantees valid, unique indices and finite logits.
        device: Device of the targets and predictions; by default that of the first logits.

    >>> import torch
    >>> vista = Vista([0, 1, 1, 0], num_classes=2, epochs=2, val_labels=[0, 1])
    >>> network = torch.nn.Linear(3, 2)
    >>> for epoch in vista.epochs():
    ...     for index in torch.tensor([[0, 1], [2, 3]]):
    ...         vista.loss(network(torch.rand(2, 3)), index).backward()
    ...     summary = vista.end_epoch(torch.eye(2))
    >>> summary.epoch, summary.accuracy, summary.anchors
    (2, 1.0, {1: 1.0})
    """

    def __init__(
        self,
        labels: Integers,
        *,
        num_classes: int,
        epochs: int,
        val_labels: Integers,
        tau: float = 0.0,
        record: Record = "train",
        schedule: Schedule = "exp",
        k: float = 2.0,
        value: float | None = None,
        order: coverage.Order = "accuracy",
        weights: teacher.Weights = "coverage",
        smoothing: int = 1,
        start: Start = "hard",
        topk: int | None = None,
        ignore_index: int = -1,
        checks: bool = True,
        device: torch.device | str | None = None,
    ) -> None:
        self.num_classes = num_classes = as_int(num_classes, "num_classes")
        self.num_epochs = check_epochs(epochs)
        self.epoch = 0  # epochs that have ended
        self._calls_to_end = 0
        self._checks = checks
        self._options = Options(tau, record, schedule, k, value, order, weights, smoothing, start, topk)
        check_topk(self._options.topk, num_classes)
        self.expects_every_sample = True  # False: a sampler leaves samples out on purpose, which needs no warning
        self._labels = as_labels(labels, num_classes, "labels", missing=as_int(ignore_index, "ignore_index"))
        self._val_labels = as_labels(val_labels, num_classes, "val_labels")
        self._identity = _digest(self._labels), _digest(self._val_labels)
        self._follows_logits = device is None  # until the first logits arrive
        if device is None:
            device = labels.device if isinstance(labels, Tensor) else "cpu"
        device = _check_device(device)
        self._check_memory(device)
        self._labels = self._labels.to(device)
        self._missing = (self._labels < 0).nonzero().flatten()
        self._states: list[int] = []  # kept states, oldest first: the anchors, or every past state
        self._counts: list[int] = []  # their marginal coverage at the end of the last epoch
        self._bits: coverage.Bits = coverage.pack(np.zeros((0, len(self._val_labels)), np.bool_))
        unseen = one_hot(self._labels, num_classes)
        unseen[self._missing] = 1.0 / num_classes
        self._store = PredictionStore(unseen, self._options.topk)
        self._fault = FirstFault(device)
        self._targets = torch.zeros(len(unseen) + 1, num_classes, dtype=torch.float32, device=device)
        del unseen  # the next line needs the memory
        self._make_targets()

    # ---------------------------------------------------------------- the loop

    def epochs(self) -> Iterator[int]:
        """Iterate over the epochs that remain; after a loaded state, the interrupted epoch comes first.

        Returns:
            An iterator over epoch numbers up to the planned one.

        Raises:
            RuntimeError: If the body of the loop does not call :meth:`end_epoch` exactly once.

        >>> vista = Vista([0, 1], num_classes=2, epochs=2, val_labels=[0], record="eval")
        >>> [vista.end_epoch(torch.eye(2)[:1], train_logits=torch.eye(2)).epoch for _ in vista.epochs()]
        [1, 2]
        """
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

    def targets(self, index: Integers) -> Tensor:
        """Return the targets of the current epoch.

        Args:
            index: Sample numbers, ``[B]``.

        Returns:
            A float32 tensor ``[B, K]``; each row is a distribution, or zero for a sample without label or teacher.

        >>> Vista([0, 1], num_classes=2, epochs=2, val_labels=[0]).targets([1])
        tensor([[0., 1.]])
        """
        rows = self._redirect(check_index(index, len(self._store))) if self._checks else torch.as_tensor(index)
        return self._targets.index_select(0, rows)

    def loss(
        self,
        logits: Tensor,
        index: Integers,
        targets: Tensor | None = None,
        reduction: Reduction = "mean",
        sample_weight: Tensor | None = None,
        class_weight: Tensor | None = None,
        label_smoothing: float = 0.0,
    ) -> Tensor:
        """Compute the cross-entropy with soft targets, and store the predictions.

        Predictions are stored with ``record="train"``, with gradients enabled and without ``targets``. The mean is over
        the samples that have a target, whatever their weights, as in torch with soft targets (with class indices torch
        divides by the class weights).

        Args:
            logits: Logits of the batch, ``[B, K]``.
            index: Sample numbers of its rows, ``[B]``.
            targets: Custom targets ``[B, K]``; by default :meth:`targets` of ``index``.
            reduction: One of mean, sum, none.
            sample_weight: Weight of each row, ``[B]``.
            class_weight: Weight of each class, ``[K]``.
            label_smoothing: Share of every target that is spread evenly over all classes.

        Returns:
            The loss, a scalar, or ``[B]`` without reduction.

        >>> vista = Vista([0, 1], num_classes=2, epochs=2, val_labels=[0])
        >>> vista.loss(torch.zeros(2, 2), [0, 1])
        tensor(0.6931)
        """
        rows = self._check_batch(logits, index)
        recording = targets is None and self._options.record == "train" and torch.is_grad_enabled()
        if recording and in_torch_func():
            raise RuntimeError(
                "loss() cannot store predictions inside torch.func: pass targets=vista.targets(index) there, and call "
                "record(logits, index) outside"
            )
        # On a GPU, checks may have redirected a bad row to the spare row, whose target is zero.
        sum_to_one = targets is None and not len(self._missing) and not (self._checks and logits.is_cuda)
        if targets is None:
            targets = self._targets.index_select(0, rows)
        else:
            targets = as_numbers(targets, logits, tuple(logits.shape), "targets")
        if sample_weight is not None:
            sample_weight = as_numbers(sample_weight, logits, (len(logits),), "sample_weight")
        if class_weight is not None:
            class_weight = as_numbers(class_weight, logits, (self.num_classes,), "class_weight")
        if label_smoothing:
            targets = smooth_targets(targets, unit_interval(label_smoothing, "label_smoothing"))
        losses, probs = cross_entropy_and_probs(logits, targets, class_weight, sum_to_one)
        loss = reduce(losses, reduction, sample_weight, rows_with_target(targets) if len(self._missing) else None)
        if recording:  # last, so that a call that fails stores nothing
            with torch.no_grad():
                self._store.write(rows, probs, unique=not self._checks)
        return loss

    @torch.no_grad()
    def record(self, logits: Tensor, index: Integers) -> None:
        """Store ``softmax(logits)`` as the predictions of this epoch.

        Args:
            logits: Logits, ``[B, K]``.
            index: Sample numbers of their rows, ``[B]``.

        >>> vista = Vista([0, 1], num_classes=2, epochs=2, val_labels=[0], record="eval")
        >>> vista.record(torch.zeros(2, 2), [0, 1])
        """
        rows = self._check_batch(logits, index)
        self._store.write(rows, wide(logits).softmax(dim=-1))

    @torch.no_grad()
    def end_epoch(
        self,
        val_logits: Tensor | NDArray[Any],
        val_index: Integers | None = None,
        train_logits: Tensor | NDArray[Any] | None = None,
    ) -> Summary:
        """End the epoch: update the anchors and make the targets of the next epoch.

        Args:
            val_logits: Logits of the validation samples, ``[m, K]``, in the order of ``val_labels`` without
                ``val_index``. With several processes, each passes the rows it has. Or bool ``[m]``: which samples are
                predicted correctly, where that is already known.
            val_index: Validation sample number of each row.
            train_logits: Logits of all training samples from a clean pass, ``[N, K]``; only with ``record="eval"``.

        Returns:
            The anchors with their weights, the validation accuracy, and the next beta.

        >>> vista = Vista([0, 1], num_classes=2, epochs=2, val_labels=[0, 1], record="eval")
        >>> vista.end_epoch(torch.eye(2), train_logits=torch.eye(2)).anchors
        {1: 1.0}
        """
        epoch = self.epoch + 1
        if epoch > self.num_epochs:
            raise RuntimeError(f"all {self.num_epochs} epochs have ended: use epochs={epoch} or more to train longer")
        self.check()
        correct = self._find_correct(val_logits, val_index)
        if train_logits is not None:
            self._record_all(as_logits(train_logits, "train_logits"))
        elif self._options.record == "eval" and not self._is_recorded_anywhere():
            raise ValueError(
                f"epoch {epoch} has no recorded predictions: with record='eval' pass train_logits [N, K] to end_epoch, "
                "or call record(logits, index) on a clean pass before it"
            )
        collectives.merge_rows(self._store.current[:-1], self._store.recorded())
        unrecorded = len(self._store) - int(self._store.recorded().sum())
        self._add_state(epoch, correct)
        self._store.start_epoch()
        self.epoch = epoch
        self._calls_to_end += 1
        self._make_targets()
        self._check_agreement()
        return self._summarise(float(correct.mean()), unrecorded)

    def teacher(self) -> Tensor:
        """Return the teacher ``Q`` of the last ended epoch.

        Returns:
            Probabilities of the training samples, float32 ``[N, K]``; the labels as rows if there is no anchor.

        >>> Vista([0, 1], num_classes=2, epochs=2, val_labels=[0]).teacher()
        tensor([[1., 0.],
                [0., 1.]])
        """
        weights = self._teacher_weights()
        if weights:
            return teacher.teacher(self._store.states, weights, out=torch.empty_like(self._targets[:-1]))
        return one_hot(self._labels, self.num_classes)

    def check(self) -> None:
        """Raise the first error found on a GPU since the last call; on the CPU errors are raised at once."""
        self._fault.raise_if_any(self.epoch + 1, len(self._store))

    # ---------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """Return all state, from which a ``Vista`` with the same arguments continues exactly.

        Returns:
            Tensors, numbers and strings, loadable with ``torch.load(..., weights_only=True)``. The predictions of kept
            states are shared, not copied; they never change.

        >>> vista, resumed = (Vista([0, 1], num_classes=2, epochs=2, val_labels=[0]) for _ in range(2))
        >>> resumed.load_state_dict(vista.state_dict())
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
        """Continue from a state. An invalid state raises an error and changes nothing.

        Args:
            state: The result of :meth:`state_dict` of a ``Vista`` with the same labels and options, at any step.

        Raises:
            TypeError: If ``state`` is not a mapping, or a number in it is not whole.
            ValueError: If it belongs to other data or options, or is damaged.

        >>> vista = Vista([0, 1], num_classes=2, epochs=2, val_labels=[0])
        >>> vista.load_state_dict(vista.state_dict())
        """
        _check_parts(state)
        for name, ours in self._describe().items():
            theirs = state["identity"].get(name)
            if theirs != ours:
                raise ValueError(f"the state was made with {name}={theirs!r}, but this Vista has {name}={ours!r}")
        epoch = as_int(state["epoch"], "the state's epoch")
        states, counts = (
            [as_int(number, f"every number in the state's {name}") for number in state[name]]
            for name in ("states", "counts")
        )
        predictions = {int(s): rows.to(self.device) for s, rows in state["predictions"].items()}
        current, seen = state["current"].to(self.device), state["seen"].to(self.device)
        packed = np.ascontiguousarray(state["coverage"].cpu().numpy())
        shape, words = self._store.current[:-1].shape, self._bits.shape[1]
        is_valid = {
            "epoch": 0 <= epoch <= self.num_epochs,
            "states": states == sorted({*states}) and all(0 < s <= epoch for s in states),
            "coverage": packed.dtype == np.uint8 and packed.shape == (len(states), 8 * words),
            "seen": seen.dtype == torch.bool and seen.shape == shape[:1],
            "current": self._are_predictions(current, shape),
            "predictions": set(predictions) == set(states)
            and all(self._are_predictions(rows, shape) for rows in predictions.values()),
        }
        is_valid["counts"] = is_valid["coverage"] and self._are_counts(counts, packed.view(np.uint64))
        damaged = [name for name, valid in is_valid.items() if not valid]
        if damaged:
            raise ValueError(f"the state of epoch {epoch} is damaged: invalid {', '.join(damaged)}")
        self.epoch, self._states, self._counts, self._bits = epoch, states, counts, packed.copy().view(np.uint64)
        self._store.current[:-1], self._store.seen[:-1], self._store.states = current, seen, predictions
        self._make_targets()

    @property
    def tau(self) -> float:
        """States that add at most this fraction of the validation set are pruned."""
        return self._options.tau

    @property
    def device(self) -> torch.device:
        """Device of the targets and predictions."""
        return self._targets.device

    def to(self, device: torch.device | str) -> Vista:
        """Move targets and predictions, in place.

        Args:
            device: The new device.

        Returns:
            This object.

        >>> Vista([0, 1], num_classes=2, epochs=2, val_labels=[0]).to("cpu").device
        device(type='cpu')
        """
        device = _check_device(device)
        self._labels, self._missing, self._targets = (
            tensor.to(device) for tensor in (self._labels, self._missing, self._targets)
        )
        self._store.to(device)
        self._fault = self._fault.to(device)
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

    def _are_predictions(self, rows: Tensor, shape: torch.Size) -> bool:
        if self._options.topk is None:
            return _are_predictions(rows, shape)
        return are_packed(rows, shape, self.num_classes)

    def _are_counts(self, counts: Sequence[int], bits: coverage.Bits) -> bool:
        """Whether these can be the marginal coverage of kept states: above the tolerance and at most ``|C_s|``."""
        if len(counts) != len(bits):
            return False
        found = np.array(counts, dtype=object)  # a damaged count may exceed int64
        kept = (found > self.tau * len(self._val_labels)) | self._options.needs_every_state
        return bool((kept & (found >= 0) & (found <= coverage.sizes(bits))).all())

    # ---------------------------------------------------------------- checks

    def _check_batch(self, logits: Tensor, index: Integers) -> Tensor:
        """Check a batch and return its rows in the store; on a GPU, bad rows are redirected to the spare row."""
        if not self._checks:
            return torch.as_tensor(index)
        rows = check_index(index, len(self._store))
        check_logits(logits, len(rows), self.num_classes)
        if self._follows_logits:
            if logits.device != self.device:
                self._check_memory(logits.device)
                self.to(logits.device)
            self._follows_logits = False
        if logits.device != self.device:
            raise ValueError(f"logits must be on {self.device}, the device of this Vista, got {logits.device}")
        if logits.is_cuda:
            return self._redirect(rows, logits)
        check_finite(logits, rows, self.epoch + 1)
        return rows

    def _check_memory(self, device: torch.device) -> None:
        prunes = not self._options.needs_every_state
        check_memory(len(self._labels), self.num_classes, self.num_epochs, self.tau, device, prunes, self._options.topk)

    def _redirect(self, index: Tensor, logits: Tensor | None = None) -> Tensor:
        """Move ``index`` to the device; on a GPU, redirect bad rows to the spare row."""
        index = index.to(self.device, non_blocking=self.device.type == "cuda")  # a copy to the CPU must be complete
        return self._fault.redirect(index, len(self._store), logits) if index.is_cuda else index

    def _find_correct(self, logits: Tensor | NDArray[Any], index: Integers | None) -> NDArray[np.bool_]:
        """Return which validation samples are predicted correctly, bool ``[m]``, over all processes."""
        m = len(self._val_labels)
        if index is None and getattr(logits, "dtype", None) in (torch.bool, np.bool_):
            if logits.shape != (m,):
                raise ValueError(f"val_logits must be logits [{m}, K] or bool [{m}], got shape {tuple(logits.shape)}")
            correct, seen = torch.as_tensor(logits).cpu().to(torch.int32), torch.ones(m, dtype=torch.bool)
        else:
            classes = predicted_classes(as_logits(logits, "val_logits"), index, m, self.num_classes, self.epoch + 1)
            correct, seen = (classes == self._val_labels).to(torch.int32), classes >= 0
        collectives.merge_rows(correct, seen)
        check_all_named(seen)
        return correct.numpy().astype(np.bool_)

    def _record_all(self, logits: Tensor) -> None:
        if self._options.record != "eval":
            raise ValueError("train_logits must be None with record='train', which stores predictions in loss()")
        check_logits(logits, len(self._store), self.num_classes, "train_logits")
        samples = torch.arange(len(logits))
        check_finite(logits, samples, self.epoch + 1, "train_logits")
        self._store.write(samples.to(self.device), wide(logits).softmax(dim=-1).to(self.device))

    def _is_recorded_anywhere(self) -> bool:
        anything = self._store.recorded().any().to(torch.int32).cpu().view(1)
        collectives.merge_rows(anything, anything.bool())
        return bool(anything.any())

    def _check_agreement(self) -> None:
        """Check that all processes hold the same data and options and have chosen the same anchors."""
        decision = repr((self._describe(), self.epoch, self._states, self._counts)).encode() + self._bits.tobytes()
        collectives.agree(decision, f"the anchors of epoch {self.epoch}")

    # ---------------------------------------------------------------- the method

    def _add_state(self, epoch: int, correct: NDArray[np.bool_]) -> None:
        """Add the newest state, prune states that add too little, and delete their predictions."""
        self._states, counts, self._bits = coverage.add_state(
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

    def _anchors(self) -> dict[int, float]:
        """Return the weights of the contributing set."""
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
        """Write the targets of the next epoch in place: the captured step of an engine reads this tensor."""
        targets, weights = self._targets[:-1], self._teacher_weights()
        if weights:
            teacher.teacher(self._store.states, weights, out=targets)
        elif self.epoch == 0 and self._options.start == "uniform":
            targets.fill_(1.0 / self.num_classes)
        else:
            targets.copy_(one_hot(self._labels, self.num_classes))
            return
        teacher.blend_labels_(targets, self._labels, self._beta())

    def _summarise(self, accuracy: float, unrecorded: int) -> Summary:
        events = []
        if unrecorded and self.expects_every_sample:
            events.append(
                f"{unrecorded} of {len(self._store)} training samples were not recorded in epoch {self.epoch}"
            )
            why = "they keep their last prediction (their label if there is none)"
            if unrecorded == len(self._store):
                why += "; loss() with custom targets stores nothing: call record(logits, index) beside it"
            warnings.warn(f"{events[0]}; {why}", stacklevel=4)
        anchors = self._anchors()
        if not anchors:
            nothing = f"no state covers more than {self.tau:g} of the validation set"
            events.append(f"{nothing}: the next targets are the labels")
        event = "; ".join(events) or None
        return Summary(self.epoch, accuracy, anchors, self._beta(), unrecorded, event, self._options)


# ---------------------------------------------------------------- checks of devices and states


def _check_device(device: torch.device | str) -> torch.device:
    found = torch.device(device)
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device must be 'cpu' without a CUDA device, got {str(device)!r}")
    return found


def _digest(labels: Tensor) -> str:
    return hashlib.sha256(labels.cpu().numpy().astype("<i8").tobytes()).hexdigest()[:16]


_KINDS: dict[str, tuple[type, ...]] = {
    "identity": (Mapping,),
    "epoch": (object,),
    "states": (list, tuple),
    "counts": (list, tuple),
    "coverage": (Tensor,),
    "current": (Tensor,),
    "seen": (Tensor,),
    "predictions": (Mapping,),
}


def _check_parts(state: Mapping[str, Any]) -> None:
    """Check the format of a state, and that it has every part, each of the right type."""
    if not isinstance(state, Mapping):
        raise TypeError(f"state must be the result of state_dict(), got a {type(state).__name__}")
    if state.get("format") != FORMAT:
        raise ValueError(f"the state must have format {FORMAT}, got {state.get('format')!r}")
    absent = [part for part in _KINDS if part not in state]
    if absent:
        raise ValueError(f"the state is damaged: it lacks {', '.join(absent)}")
    for part, kinds in _KINDS.items():
        if not isinstance(state[part], kinds):
            wanted, kind = kinds[0].__name__.lower(), type(state[part]).__name__
            raise ValueError(f"the state is damaged: {part} must be a {wanted}, got a {kind}")
    for s, rows in state["predictions"].items():
        if not (str(s).isdecimal() and isinstance(rows, Tensor)):
            raise ValueError(f"the state is damaged: predictions must be a tensor per epoch, got {s!r}: {type(rows)}")


def _are_predictions(rows: Tensor, shape: torch.Size) -> bool:
    """Whether these are float16 probabilities of this shape: finite, in [0, 1], with rows that sum to one.

    The tolerance covers rounding to float16, and log-softmax in float32 of logits up to about 1e4 on a GPU.
    """
    if rows.dtype != torch.float16 or rows.shape != shape:
        return False
    tolerance = 2**-8 + shape[1] * 2**-25
    return all(
        bool(((part >= 0) & (part <= 1)).all() & ((part.sum(dim=1, dtype=torch.float32) - 1).abs() <= tolerance).all())
        for part in rows.split(2**16)
    )
