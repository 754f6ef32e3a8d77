"""``Vista``: the method as one object that holds all of its state; the mathematics is in the modules beside it."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vista.core import collectives, coverage, misuse, teacher
from vista.core.host_store import Ahead, HostStore, check_folder
from vista.core.losses import (
    Reduction,
    at_least_float32,
    cross_entropy_and_probs,
    in_torch_func,
    one_hot,
    reduce,
    rows_with_target,
    smooth_targets,
)
from vista.core.options import Options, Record, Schedule, Start, check_epochs
from vista.core.store import (
    PredictionStore,
    RowsOnDisk,
    Store,
    bytes_available,
    bytes_per_state,
    check_store,
    fits_one_more,
    starts_on_device,
)
from vista.core.topk import are_packed, check_topk, pack
from vista.core.validation import (
    FirstFault,
    Integers,
    as_int,
    as_integers,
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
ROWS_OF_TEACHER = 2**16  # computed at a time if the teacher is not wanted in float32
HOST_FORMAT = 2  # with the rows of the current epoch beside the last predictions before it
MAX_REPEATED = 0.01  # share of the rows of an epoch, beyond those that fill up one batch


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
        store: Where past predictions are: ``"device"`` in the memory of the device, ``"host"`` in memory-mapped files
            that the processes of a machine share, ``"auto"`` on the device as long as they fit. The results are equal.
        store_dir: Folder of these files; by default the one for temporary files. They are deleted at the end.
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
        store: Store = "auto",
        store_dir: str | Path | None = None,
        ignore_index: int = -1,
        checks: bool = True,
        device: torch.device | str | None = None,
    ) -> None:
        self.num_classes = num_classes = as_int(num_classes, "num_classes")
        self.num_epochs = check_epochs(epochs)
        self.epoch = 0  # epochs that have ended
        self._calls_to_end = 0
        self._checks = checks
        self._inspects_outputs = checks  # until the first recorded batch
        self._outputs_are_probabilities: Tensor | None = None  # of that batch on a GPU, read when the epoch ends
        self._epochs_at_chance = 0  # whose validation rows seem to be in another order
        self._options = Options(tau, record, schedule, k, value, order, weights, smoothing, start, topk)
        check_topk(self._options.topk, num_classes)
        # False: a sampler repeats samples and leaves others out on purpose, which needs no error and no warning.
        self.expects_every_sample = True
        self._written = self._largest = 0  # rows of this epoch with repetitions, and of a call; not part of the state
        self._labels = as_labels(labels, num_classes, "labels", missing=as_int(ignore_index, "ignore_index"))
        self._val_labels = as_labels(val_labels, num_classes, "val_labels")
        self._identity = _digest(self._labels), _digest(self._val_labels)
        self._follows_logits = device is None  # until the first logits arrive
        if device is None:
            device = labels.device if isinstance(labels, Tensor) else "cpu"
        self._store_kind = check_store(store)
        self._store_dir = None if store_dir is None else Path(store_dir)
        self._missing = (self._labels < 0).nonzero().flatten()
        self._states: list[int] = []  # kept states, oldest first: the anchors, or every past state
        self._counts: list[int] = []  # their marginal coverage at the end of the last epoch
        self._bits: coverage.Bits = coverage.pack(np.zeros((0, len(self._val_labels)), np.bool_))
        self._fault: FirstFault
        self._ahead = Ahead()
        self._weights: dict[int, float] = {}  # of the teacher of the current epoch
        self._targets: Tensor | None = None  # [N + 1, K] with the store on the device, made once per epoch
        self._store: PredictionStore | HostStore
        self._make_store(_check_device(device))
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
        if self._targets is None:
            return self._gather_targets(index)
        rows = self._redirect(check_index(index, len(self._store))) if self._checks else torch.as_tensor(index)
        return self._targets.index_select(0, rows)

    def prefetch(self, index: Integers) -> None:
        """Start to gather the targets of a coming batch in the background; nothing happens with the store on a device.

        Args:
            index: Sample numbers of the batch, ``[B]``, as later given to :meth:`loss` or :meth:`targets`.

        >>> vista = Vista([0, 1], num_classes=2, epochs=2, val_labels=[0], store="host")
        >>> vista.prefetch([1])
        >>> vista.targets([1])
        tensor([[0., 1.]])
        """
        if self._targets is None and self._weights:
            self._ahead.start(self._on_host(index), self._compute_targets, self.device)

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
        if self._targets is None:
            index = self._on_host(index)
        rows = self._check_batch(logits, index)
        recording = targets is None and self._options.record == "train" and torch.is_grad_enabled()
        if recording and in_torch_func():
            raise RuntimeError(
                "loss() cannot store predictions inside torch.func: pass targets=vista.targets(index) there, and call "
                "record(logits, index) outside"
            )
        # On a GPU, checks may have redirected a bad row to the spare row, whose target is zero.
        sum_to_one = targets is None and not self._missing.numel() and not (self._checks and logits.is_cuda)
        if targets is None:
            targets = self._targets.index_select(0, rows) if self._targets is not None else self._gather_targets(index)
            if self._targets is None and self._checks and logits.is_cuda:
                targets = targets * (rows < len(self._store)).unsqueeze(1)  # a bad row has no target
        else:
            targets = as_numbers(targets, logits, tuple(logits.shape), "targets")
        if sample_weight is not None:
            sample_weight = as_numbers(sample_weight, logits, (len(logits),), "sample_weight")
        if class_weight is not None:
            class_weight = as_numbers(class_weight, logits, (self.num_classes,), "class_weight")
        if label_smoothing:
            targets = smooth_targets(targets, unit_interval(label_smoothing, "label_smoothing"))
        is_plain = reduction == "mean" and sample_weight is None and not self._missing.numel()
        loss, probs = cross_entropy_and_probs(logits, targets, class_weight, sum_to_one, mean=is_plain)
        if self._checks and not logits.is_cuda:
            check_finite(logits, rows, self.epoch + 1, computed=(loss if is_plain else loss.detach().sum()).item())
        if not is_plain:
            loss = reduce(loss, reduction, sample_weight, rows_with_target(targets) if len(self._missing) else None)
        if recording:  # last, so that a call that fails stores nothing
            if self._inspects_outputs:
                self._inspect(logits.detach())
            self._store.write(rows, probs, unique=not self._checks)
            self._count(len(rows))
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
        if self._checks and not logits.is_cuda:
            check_finite(logits, rows, self.epoch + 1)
        self._store.write(rows, at_least_float32(logits).softmax(dim=-1))
        self._count(len(rows))

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
        self._check_repetitions()
        correct = self._find_correct(val_logits, val_index)
        if train_logits is not None:
            self._record_all(as_logits(train_logits, "train_logits"))
        elif self._options.record == "eval" and not self._is_recorded_anywhere():
            raise ValueError(
                f"epoch {epoch} has no recorded predictions: with record='eval' pass train_logits [N, K] to end_epoch, "
                "or call record(logits, index) on a clean pass before it"
            )
        self._ahead.clear()
        self._choose_store()
        unrecorded = self._store.end_epoch(epoch)
        self._add_state(epoch, correct)
        self._store.start_epoch()
        self.epoch = epoch
        self._calls_to_end += 1
        self._make_targets()
        self._check_agreement()
        return self._summarise(float(correct.mean()), unrecorded)

    def teacher(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the teacher ``Q`` of the last ended epoch.

        Args:
            dtype: Type of the result; it is computed in float32, by blocks if this is another one.

        Returns:
            Probabilities of the training samples, ``[N, K]``; the labels as rows if there is no anchor. With
            the store on the host they are on the CPU.

        >>> Vista([0, 1], num_classes=2, epochs=2, val_labels=[0]).teacher()
        tensor([[1., 0.],
                [0., 1.]])
        """
        weights, states = self._teacher_weights(), self._store.states
        if not weights:
            return one_hot(self._labels, self.num_classes, dtype)
        size = len(self._store)
        out = torch.empty(size, self.num_classes, dtype=dtype, device=states[next(iter(weights))].device)
        if dtype == torch.float32:
            return teacher.teacher(states, weights, out=out)
        for part in torch.arange(size).split(ROWS_OF_TEACHER):
            low, high = int(part[0]), int(part[-1]) + 1
            block = torch.empty(high - low, self.num_classes, dtype=torch.float32, device=out.device)
            out[low:high] = teacher.teacher({s: rows[low:high] for s, rows in states.items()}, weights, out=block)
        return out

    def check(self) -> None:
        """Raise the first error found on a GPU since the last call; on the CPU errors are raised at once.

        >>> vista = Vista([0, 1], num_classes=2, epochs=2, val_labels=[0])
        >>> vista.record(torch.eye(2), [0, 1])
        >>> vista.check()
        """
        self._fault.raise_if_any(self.epoch + 1, len(self._store))
        if self._outputs_are_probabilities is not None and self._outputs_are_probabilities:
            warnings.warn(misuse.PROBABILITIES, stacklevel=3)
        self._outputs_are_probabilities = None

    # ---------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """Return all state, from which a ``Vista`` with the same arguments continues exactly.

        Returns:
            Tensors, numbers and strings, loadable with ``torch.load(..., weights_only=True)``. The predictions of kept
            states are shared, not copied; they never change.

        >>> vista, resumed = (Vista([0, 1], num_classes=2, epochs=2, val_labels=[0]) for _ in range(2))
        >>> resumed.load_state_dict(vista.state_dict())
        """
        state = {
            "format": FORMAT,
            "identity": self._describe(),
            "epoch": self.epoch,
            "states": list(self._states),
            "counts": list(self._counts),
            "coverage": torch.from_numpy(self._bits.view(np.uint8).copy()),
            "seen": self._store.recorded().clone(),
            "predictions": {str(s): rows for s, rows in self._store.states.items()},
        }
        if isinstance(self._store, PredictionStore):
            return {**state, "current": self._store.current[:-1].clone()}
        last, rows = self._store.current()
        return {**state, "format": HOST_FORMAT, "current": last, "rows": rows}

    def files(self) -> dict[int, RowsOnDisk]:
        """List the files that a store on the host has written in this process.

        Returns:
            The file of each kept state by epoch, and that of the last epoch; empty for a store on the device.

        >>> Vista([0, 1], num_classes=2, epochs=2, val_labels=[0]).files()
        {}
        """
        if isinstance(self._store, PredictionStore):
            return {}
        last = self._store.last_file()
        return {**self._store.files, **({self.epoch: last} if last is not None else {})}

    def close(self) -> None:
        """Delete the files of a store on the host now; otherwise they are deleted with this object.

        >>> Vista([0, 1], num_classes=2, epochs=2, val_labels=[0], store="host").close()
        """
        self._ahead.clear()
        if isinstance(self._store, HostStore):
            self._store.close()

    def load_state_dict(self, state: Mapping[str, Any], mapped: bool = False) -> None:
        """Continue from a state. An invalid state raises an error and changes nothing.

        Args:
            state: The result of :meth:`state_dict` of a ``Vista`` with the same labels and options, at any step.
            mapped: The predictions are memory-mapped from verified files, which are kept as long as they are needed: a
                store on the host then uses them as they are.

        Raises:
            TypeError: If ``state`` is not a mapping, or a number in it is not whole.
            ValueError: If it belongs to other data or options, or is damaged.

        >>> vista = Vista([0, 1], num_classes=2, epochs=2, val_labels=[0])
        >>> vista.load_state_dict(vista.state_dict())
        """
        _check_parts(state)
        known = self._describe()
        for name in {**known, **state["identity"]}:
            theirs, ours = state["identity"].get(name), known.get(name)
            if theirs != ours:
                raise ValueError(f"the state was made with {name}={theirs!r}, but this Vista has {name}={ours!r}")
        epoch = as_int(state["epoch"], "the state's epoch")
        states, counts = (
            [as_int(number, f"every number in the state's {name}") for number in state[name]]
            for name in ("states", "counts")
        )
        predictions = {int(s): rows for s, rows in state["predictions"].items()}
        current, seen, rows = state["current"], state["seen"], state.get("rows")
        packed = np.ascontiguousarray(state["coverage"].cpu().numpy())
        shape, words = torch.Size(self._store.shape), self._bits.shape[1]
        is_valid = {
            "epoch": 0 <= epoch <= self.num_epochs,
            "states": states == sorted({*states}) and all(0 < s <= epoch for s in states),
            "coverage": packed.dtype == np.uint8 and packed.shape == (len(states), 8 * words),
            "seen": seen.dtype == torch.bool and seen.shape == shape[:1],
            "current": self._are_predictions(current, shape) or (rows is not None and current.shape == (0, shape[1])),
            "predictions": set(predictions) == set(states)
            and all(mapped or self._are_predictions(rows, shape) for rows in predictions.values()),
        }
        if rows is not None:
            own = torch.Size((int(seen.sum()), shape[1])) if is_valid["seen"] else shape
            is_valid["rows"] = isinstance(rows, Tensor) and self._are_predictions(rows, own)
        is_valid["counts"] = is_valid["coverage"] and self._are_counts(counts, packed.view(np.uint64))
        damaged = [name for name, valid in is_valid.items() if not valid]
        if damaged:
            raise ValueError(f"the state of epoch {epoch} is damaged: invalid {', '.join(damaged)}")
        self.epoch, self._states, self._counts, self._bits = epoch, states, counts, packed.copy().view(np.uint64)
        self._ahead.clear()
        self._load_predictions(predictions, current, seen, rows, mapped)
        self._make_targets()

    @property
    def tau(self) -> float:
        """States that add at most this fraction of the validation set are pruned."""
        return self._options.tau

    @property
    def records_training(self) -> bool:
        """Whether :meth:`loss` stores the predictions of the training pass."""
        return self._options.record == "train"

    @property
    def device(self) -> torch.device:
        """Device of the targets and predictions."""
        return self._device

    @property
    def on_device(self) -> bool:
        """Whether past predictions are in the memory of the device now."""
        return self._store.on_device

    def to(self, device: torch.device | str) -> Vista:
        """Move targets and predictions, in place.

        Args:
            device: The new device.

        Returns:
            This object.

        >>> Vista([0, 1], num_classes=2, epochs=2, val_labels=[0]).to("cpu").device
        device(type='cpu')
        """
        self._device = device = _check_device(device)
        self._ahead.clear()
        self._labels, self._missing = self._labels.to(device), self._missing.to(device)
        if self._targets is not None:
            self._targets = self._targets.to(device)
        if isinstance(self._store, PredictionStore):
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
        """Check a batch, on a CPU all but that its values are finite, and return its rows in the store.

        On a GPU, bad rows are redirected to the spare row.
        """
        if not self._checks:
            return torch.as_tensor(index)
        rows = check_index(index, len(self._store))
        check_logits(logits, len(rows), self.num_classes)
        if self._follows_logits:
            if logits.device != self.device:
                self._follow(logits.device)
            self._follows_logits = False
        if logits.device != self.device:
            raise ValueError(f"logits must be on {self.device}, the device of this Vista, got {logits.device}")
        return self._redirect(rows, logits) if logits.is_cuda else rows

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
            if self._checks and index is None and not collectives.active():
                self._check_order(classes)
            correct, seen = (classes == self._val_labels).to(torch.int32), classes >= 0
        collectives.merge_rows(correct, seen)
        check_all_named(seen)
        return correct.numpy().astype(np.bool_)

    def _inspect(self, logits: Tensor) -> None:
        """Warn if the model returns probabilities; on a GPU at the end of the epoch, without a host sync here."""
        self._inspects_outputs, found = False, misuse.are_probabilities(logits)
        if logits.is_cuda:
            self._outputs_are_probabilities = found
        elif found:
            warnings.warn(misuse.PROBABILITIES, stacklevel=3)

    def _check_order(self, classes: Tensor) -> None:
        """Warn if validation accuracy stays at chance while the training predictions are far above it."""
        validation = misuse.above_chance(classes, self._val_labels, self.num_classes)
        if validation[0] >= 2 * validation[1]:
            self._epochs_at_chance = 0
            return
        if isinstance(self._store, HostStore):  # reading all its rows would take long
            return
        rows = self._store.recorded() & (self._labels >= 0)
        training = misuse.above_chance(self._store.predicted()[rows], self._labels[rows], self.num_classes)
        self._epochs_at_chance += misuse.seems_shuffled(validation, training)
        if self._epochs_at_chance == 2:  # not at once: averaged weights may need a few epochs
            warnings.warn(
                f"validation accuracy is at chance in epoch {self.epoch + 1}, but training accuracy is "
                f"{100 * training[0]:.0f} points above it: val_logits must be in the order of val_labels, so the "
                "validation loader must not shuffle; or pass val_index",
                stacklevel=5,
            )

    def _record_all(self, logits: Tensor) -> None:
        if self._options.record != "eval":
            raise ValueError("train_logits must be None with record='train', which stores predictions in loss()")
        check_logits(logits, len(self._store), self.num_classes, "train_logits")
        samples = torch.arange(len(logits))
        check_finite(logits, samples, self.epoch + 1, "train_logits")
        if self.on_device:
            self._store.write(samples.to(self.device), at_least_float32(logits).softmax(dim=-1).to(self.device))
            return
        for part, rows in zip(samples.split(2**14), logits.split(2**14), strict=True):
            self._store.write(part, at_least_float32(rows).softmax(dim=-1).cpu())

    def _count(self, rows: int) -> None:
        self._written, self._largest = self._written + rows, max(self._largest, rows)

    def _check_repetitions(self) -> None:
        """Reject an epoch with indices that do not belong to its samples, as a loader without stable indices has."""
        written, self._written = self._written, 0
        repeated = written - int(self._store.recorded().sum())
        if repeated > max(MAX_REPEATED * written, self._largest) and self.expects_every_sample:
            raise ValueError(
                f"{repeated} of {written} sample numbers in epoch {self.epoch + 1} were repeated: index must be the "
                "sample's position in labels, and the loader must not resample; for a sampler that repeats samples on "
                "purpose, or several views of a sample, set vista.expects_every_sample = False"
            )

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
            self._store.drop(s)

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
        """Write the targets of the next epoch in place: the captured step of an engine reads this tensor.

        With the store on the host there is no such table: each batch gathers its rows.
        """
        self._weights = self._teacher_weights()
        if self._targets is None:
            return
        targets = self._targets[:-1]
        if self._weights:
            teacher.teacher(self._store.states, self._weights, out=targets)
        elif self.epoch == 0 and self._options.start == "uniform":
            targets.fill_(1.0 / self.num_classes)
        else:
            targets.copy_(one_hot(self._labels, self.num_classes))
            return
        teacher.blend_labels_(targets, self._labels, self._beta())

    def _gather_targets(self, index: Integers) -> Tensor:
        """Compute the targets ``[B, K]`` of a batch, the same numbers as its rows of the whole table."""
        samples = self._on_host(index)
        if self._weights:
            return self._ahead.take(samples, self._compute_targets)
        labels = self._labels.index_select(0, samples.to(self.device, non_blocking=True))
        if self.epoch > 0 or self._options.start != "uniform":
            return one_hot(labels, self.num_classes)
        size = len(labels), self.num_classes
        targets = torch.full(size, 1.0 / self.num_classes, dtype=torch.float32, device=self.device)
        teacher.blend_labels_(targets, labels, self._beta())
        return targets

    def _compute_targets(self, index: Tensor) -> Tensor:
        """The targets of a batch from the rows of each anchor; also called in another thread, on another stream."""
        assert isinstance(self._store, HostStore)
        states = self._store.gather(list(self._weights), index, self.device)
        targets = torch.empty(len(index), self.num_classes, dtype=torch.float32, device=self.device)
        teacher.teacher(dict(zip(self._weights, states, strict=True)), self._weights, out=targets)
        labels = self._labels.index_select(0, index.to(self.device, non_blocking=True))
        teacher.blend_labels_(targets, labels, self._beta())
        return targets

    def _on_host(self, index: Integers) -> Tensor:
        """The sample numbers of a batch on the CPU; an index on a GPU waits for it."""
        host = as_integers(index, "index").cpu()
        return check_index(host, len(self._store)) if self._checks else host

    # ---------------------------------------------------------------- the store

    def _make_store(self, device: torch.device) -> None:
        """Make an empty store, on the device or in files, and the table of targets if it is on the device."""
        options = self._options
        if self._store_dir is not None and self._store_kind != "device":
            check_folder(self._store_dir)
        size = (len(self._labels), self.num_classes, self.num_epochs, self.tau)
        prunes = not options.needs_every_state
        on_device = starts_on_device(self._store_kind, *size, device, self._store_dir, prunes, options.topk)
        self._device, self._fault = device, FirstFault(device)
        self._labels, self._missing = self._labels.to(device), self._missing.to(device)
        if not on_device:
            self._store, self._targets = self._host_store(), None
            return
        unseen = unseen_rows(self._labels, self.num_classes)
        self._store = PredictionStore(unseen, options.topk)
        del unseen  # the next line needs the memory
        self._targets = torch.zeros(len(self._labels) + 1, self.num_classes, dtype=torch.float32, device=device)

    def _host_store(self) -> HostStore:
        labels, classes, kept = self._labels.cpu(), self.num_classes, self._options.topk
        return HostStore(self._store_dir, len(labels), classes, lambda *rows: unseen_rows(labels, classes, *rows), kept)

    def _follow(self, device: torch.device) -> None:
        """Move to the device of the first logits, where another store may be due."""
        if self.epoch or bool(self._store.recorded().any()):
            self.to(device)
            return
        self._make_store(device)
        self._make_targets()

    def _choose_store(self) -> None:
        """Move the predictions to files if those of the epoch that ends do not fit beside the others any more."""
        on_device = self._store
        stays = isinstance(on_device, PredictionStore) and (
            self._store_kind == "device" or fits_one_more(self._bytes_per_state(), self.device)
        )
        if collectives.all_agree(stays):
            return
        if isinstance(on_device, PredictionStore):
            store = self._host_store()
            store.load(on_device.states, on_device.current[:-1], on_device.recorded(), None)
            self._store, self._targets = store, None
        assert isinstance(self._store, HostStore)
        self._store.share_states()

    def _bytes_per_state(self) -> int:
        return bytes_per_state(len(self._store), self.num_classes, self._options.topk)

    def _load_predictions(
        self, states: dict[int, Tensor], current: Tensor, seen: Tensor, rows: Tensor | None, mapped: bool
    ) -> None:
        """Put the predictions of a loaded state into the store, whichever kind of store it was saved from."""
        if self.on_device and self._store_kind == "auto":
            available = bytes_available(self.device)
            most = (len(states) + 1) * self._bytes_per_state()
            if rows is not None or (available is not None and most > available):
                self._store, self._targets = self._host_store(), None
        if isinstance(self._store, HostStore):
            last = current.cpu() if len(current) else None
            self._store.load({s: r.cpu() for s, r in states.items()}, last, seen, rows, mapped)
            return
        kept, kept_topk = self._store.current[:-1], self._options.topk
        if len(current):
            kept.copy_(current)
        else:
            unseen = unseen_rows(self._labels, self.num_classes)
            kept.copy_(unseen.to(torch.float16) if kept_topk is None else pack(unseen, kept_topk))
        seen = seen.to(self.device)
        if rows is not None:
            kept[seen] = rows.to(self.device)
        self._store.seen[:-1] = seen
        self._store.states = {s: tensor.to(self.device) for s, tensor in states.items()}

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


def unseen_rows(labels: Tensor, num_classes: int, low: int = 0, high: int | None = None) -> Tensor:
    """What samples ``low`` to ``high`` count as until their first prediction, ``[n, K]``: their label, or uniform."""
    part = labels[low:high]
    rows = one_hot(part, num_classes)
    rows[part < 0] = 1.0 / num_classes
    return rows


# ---------------------------------------------------------------- checks of devices and states


def _check_device(device: torch.device | str) -> torch.device:
    found = torch.device(device)
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device must be 'cpu' without a CUDA device, got {str(device)!r}")
    return torch.empty(0, device=found).device  # "cuda" is the current GPU, and tensors name it: "cuda:0"


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
    if state.get("format") not in (FORMAT, HOST_FORMAT):
        raise ValueError(f"the state must have format {FORMAT} or {HOST_FORMAT}, got {state.get('format')!r}")
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
