"""One training in progress: all of its parts, and its state as a checkpoint stores it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from vista.core import collectives
from vista.core.evidence import MISSING, Evidence
from vista.core.store import WrittenOnce
from vista.core.validation import first_few
from vista.data.loader import Inputs, Loader
from vista.methods import Method
from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.runs.record import Record
from vista.training import optimization
from vista.training.engine import Engine
from vista.training.resolve import ResolvedRun
from vista.training.samples import Samples

EVALUATION_BATCH = 1000  # samples, fewer if they are large
EVALUATION_VALUES = 2**24  # values of a batch: 111 photos of 224 pixels
RNG_STREAM = 500  # separates these draws from those of loader and method
Y = TypeVar("Y")
R = TypeVar("R")


@dataclass
class Training:
    """One training in progress; :meth:`state` holds everything that survives a stop."""

    run: ResolvedRun
    folder: RunFolder
    samples: Samples
    network: nn.Module
    method: Method
    optimizer: torch.optim.Optimizer
    loader: Loader
    engine: Engine
    evidence: Evidence
    record: Record
    rng: TorchRng | None = None  # for a custom network, which draws from torch's global generators
    threads: int | None = None  # CPU threads; None leaves the process's setting
    epoch: int = 1  # the current one
    best_epoch: int = 0
    best_accuracy: float = -1.0
    best_weights: dict[str, Tensor] = field(default_factory=dict)

    @property
    def config(self) -> TrainConfig:
        return self.run.config

    @property
    def device(self) -> torch.device:
        return self.run.device

    def begin_epoch(self, steps_done: int = 0) -> None:
        """Draw order and augmentation of the current epoch and set its learning rates."""
        self.loader.begin_epoch(self.epoch)
        self.method.begin_epoch(self.epoch)
        rates = optimization.learning_rates(self.config, self.epoch, self.loader.steps)
        self.engine.begin_epoch(rates.tolist(), steps_done)

    def evaluated(self) -> nn.Module:
        """The network to evaluate, select and save: the average of the weights if the run keeps one."""
        average = self.engine.average
        return self.method.evaluated(self.network) if average is None else average.network

    def keep_if_best(self, accuracy: float, evaluated: nn.Module) -> bool:
        """Keep the weights if no earlier epoch had this validation accuracy."""
        if accuracy <= self.best_accuracy:
            return False
        self.best_accuracy, self.best_epoch = accuracy, self.epoch
        self.best_weights = {name: tensor.detach().clone() for name, tensor in evaluated.state_dict().items()}
        return True

    def in_context(self, events: Generator[Y, None, R]) -> Generator[Y, None, R]:
        """Advance ``events`` inside the run's context, and leave the context at every yield.

        The context is the run's CUDA stream, its state of torch's global generators and its number of CPU threads:
        this is the one place where a run enters and leaves them, so that runs can interleave in one process.
        """
        try:
            while True:
                with self.context():
                    try:
                        event = next(events)
                    except StopIteration as end:
                        result: R = end.value
                        return result
                yield event
        finally:
            events.close()

    @contextmanager
    def context(self) -> Iterator[None]:
        """The run's CUDA stream, generator state and CPU threads."""
        with ExitStack() as stack:
            if self.engine.stream is not None:
                stack.enter_context(torch.cuda.stream(self.engine.stream))
            if self.rng is not None:
                stack.enter_context(self.rng.installed())
            if self.threads is not None:
                stack.enter_context(cpu_threads(self.threads))
            yield

    # ------------------------------------------------------------ state

    def state(self) -> dict[str, Any]:
        """All state at a step boundary, nested, of tensors, arrays, numbers and strings."""
        return {
            "identity": self.run.identity,
            "epoch": self.epoch,
            "steps_done": self.engine.steps_done,
            "losses": self.engine.losses,
            "network": self.network.state_dict(),
            **optimization.stored_buffers(self.optimizer),
            **({} if self.engine.average is None else {"average": self.engine.average.state_dict()}),
            "method": self.method.state_dict(),
            "generator": self.method.task.generator.get_state(),
            **({"draws": self.rng.state()} if self.rng is not None else {}),
            "best_epoch": self.best_epoch,
            "best_accuracy": self.best_accuracy,
            "best": WrittenOnce({str(self.best_epoch): dict(self.best_weights)} if self.best_weights else {}),
            "evidence": self.evidence.state(),
            "record": self.record.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore ``state`` in place: a captured step keeps references to the tensors it was recorded with.

        A state of another number of processes has ``other_parts``: the first process takes over what each of them has
        seen in the current epoch, the other ones (``None``) start with nothing of it.
        """
        is_first = "other_parts" not in state or state["other_parts"] is not None
        if "other_parts" in state:
            state = self._of_other_processes(state, state["other_parts"])
        self.network.load_state_dict(state["network"])
        self.method.load_state_dict(state["method"])
        for name, buffers in optimization.stored_buffers(self.optimizer).items():
            for buffer, saved in zip(buffers, state[name], strict=True):
                buffer.copy_(saved)
        if self.engine.average is not None:
            self.engine.average.load_state_dict(state["average"])
        if is_first:  # other processes draw other numbers
            self._load_generator(state["generator"].cpu())
        if self.rng is not None and "draws" in state and is_first:  # absent in checkpoints of older versions
            self.rng.load(state["draws"])
        self.epoch = state["epoch"]
        self.best_epoch, self.best_accuracy = state["best_epoch"], state["best_accuracy"]
        self.best_weights = {k: v.to(self.device) for group in state["best"].values() for k, v in group.items()}
        self.record = Record.from_state(state["record"])
        self.evidence.load(state.get("evidence"), self.epoch - 1)  # absent in checkpoints of older versions
        self.begin_epoch(state["steps_done"])
        self.engine.losses.copy_(state["losses"])

    def _of_other_processes(self, first: dict[str, Any], others: list[dict[str, Any]] | None) -> dict[str, Any]:
        """The first process's state with what all processes have seen in this epoch; without ``others``, with none."""
        parts = [] if others is None else [first, *others]
        evidence = {name: value for name, value in first["evidence"].items() if name == "history"}
        for name in ("count", "total"):
            evidence[name] = sum((part["evidence"][name] for part in parts), torch.zeros_like(first["evidence"][name]))
        evidence["current"] = torch.full_like(first["evidence"]["current"], MISSING)
        for part in parts:
            evidence["current"] = torch.maximum(evidence["current"], part["evidence"]["current"])
        losses = sum((part["losses"] for part in parts), torch.zeros_like(first["losses"]))
        method = self.method.merge_parts([part["method"] for part in parts], first["method"])
        return {**first, "method": method, "evidence": evidence, "losses": losses}

    def _load_generator(self, saved: Tensor) -> None:
        """CPU and CUDA generators have states of different sizes, which are not interchangeable."""
        generator = self.method.task.generator
        if saved.shape == generator.get_state().shape:
            generator.set_state(saved)
            return
        warnings.warn(
            f"{self.folder.path} was saved on another type of device: random draws start anew, so the run will not end "
            "with the bytes of an uninterrupted one",
            stacklevel=2,
        )

    def copy_state(self) -> dict[str, Any]:
        """A copy in memory of everything that the warm-up of a captured step changes."""
        copy: dict[str, Any] = _cloned(self.state())
        return copy

    # ------------------------------------------------------------ predictions

    @torch.no_grad()
    def logits(self, network: nn.Module, inputs: Inputs) -> Tensor:
        """Logits ``[n, K]`` in eval mode, float32 or float64, gathered over all processes."""
        rows = torch.arange(collectives.rank(), len(inputs), collectives.world_size(), device=self.device)
        part = torch.cat([logits for logits, _ in self._predict(network, inputs, rows)])
        if not collectives.active():
            return part
        everything = torch.zeros(len(inputs), part.shape[1], dtype=part.dtype, device=self.device)
        seen = torch.zeros(len(inputs), dtype=torch.bool, device=self.device)
        everything[rows], seen[rows] = part, True
        collectives.merge_rows(everything, seen)
        return everything

    @torch.no_grad()
    def _predict(self, network: nn.Module, inputs: Inputs, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        training = [module for module in network.modules() if module.training]  # not those of a frozen backbone
        network.eval()
        for index, samples in inputs.in_batches(rows.split(evaluation_batch(inputs.sample_shape))):
            with self.engine.autocast():
                logits = network(samples)
            yield (logits if self.config.precision == "fp64" else logits.float()), index
        for module in training:
            module.training = True

    def train_logits(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Logits and indices of this process's training samples without augmentation; the network is unchanged."""
        rows = self.loader.samples_of_rank().nonzero().flatten()
        for logits, index in self._predict(self.network, self.samples.train, rows):
            self.check_finite(logits, index, "train")
            yield logits, index

    def check_finite(self, logits: Tensor, index: Tensor, part: str) -> None:
        """Predictions ``[n, K]`` for samples ``index`` of a part: the last step of an epoch may have broken them."""
        bad = index[(~torch.isfinite(logits)).any(dim=1)].cpu().numpy()
        if len(bad):
            ids = getattr(self.samples.split, part)[bad]
            raise FloatingPointError(
                f"predictions are not finite after epoch {self.epoch}, step {self.engine.steps_done}, on the {part} "
                f"samples {first_few(ids)}: try a smaller --lr; earlier checkpoints are kept"
            )

    def train_images(self) -> Iterator[Tensor]:
        """Clean training images in batches of about equal size: BatchNorm needs more than one sample per batch."""
        n = len(self.samples.train)
        batches = torch.arange(n, device=self.device).tensor_split(-(-n // EVALUATION_BATCH))
        for _, images in self.samples.train.in_batches(batches):
            yield images


def evaluation_batch(sample_shape: Sequence[int]) -> int:
    """Samples per batch without gradients.

    >>> evaluation_batch((3, 32, 32)), evaluation_batch((3, 224, 224))
    (1000, 111)
    """
    return max(1, min(EVALUATION_BATCH, EVALUATION_VALUES // math.prod(sample_shape)))


def _cloned(state: Any) -> Any:
    if isinstance(state, Tensor):
        return state.clone()
    if isinstance(state, dict):
        return {key: _cloned(value) for key, value in state.items()}
    if isinstance(state, list):
        return [_cloned(value) for value in state]
    return state


@contextmanager
def cpu_threads(count: int) -> Iterator[None]:
    """Use ``count`` threads for operations on the CPU. The number decides the last bits of a result."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class TorchRng:
    """A run's state of torch's global generators, from which a custom network draws (``nn.Dropout`` does).

    Our own networks draw from the generator of their run. The global generators are shared by the whole process, so
    each run installs its own state while it executes and restores the previous one afterwards.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self.device = device
        generators = [torch.Generator(), *([torch.Generator(device)] if device.type == "cuda" else [])]
        seed = seed * 1000 + RNG_STREAM + collectives.rank()
        self._states = [generator.manual_seed(seed).get_state() for generator in generators]
        self._is_installed = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Continue the run's sequence of draws inside; outside nothing changes."""
        before = self._read()
        self._write(self._states)
        self._is_installed = True
        try:
            yield
        finally:
            self._states, self._is_installed = self._read(), False
            self._write(before)

    def state(self) -> list[Tensor]:
        return self._read() if self._is_installed else self._states

    def load(self, states: Sequence[Tensor]) -> None:
        """Continue from ``states``; a generator that the saved run did not have starts anew."""
        known = [state.cpu() for state in states[: len(self._states)]]
        self._states = [*known, *self._states[len(known) :]]
        if self._is_installed:
            self._write(self._states)

    def _read(self) -> list[Tensor]:
        on_device = [torch.cuda.get_rng_state(self.device)] if self.device.type == "cuda" else []
        return [torch.get_rng_state(), *on_device]

    def _write(self, states: Sequence[Tensor]) -> None:
        torch.set_rng_state(states[0])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(states[1], self.device)
