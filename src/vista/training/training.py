"""Everything a run holds, and its state as a checkpoint keeps it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vista import exchange
from vista.checks import first_few
from vista.data.loader import Inputs, Loader
from vista.methods import Method, WrittenOnce
from vista.training import learning_rate, run_folder
from vista.training.config import TrainConfig
from vista.training.engine import Engine
from vista.training.random_state import Draws
from vista.training.record import Record
from vista.training.run_folder import RunFolder
from vista.training.samples import Samples

EVALUATION_BATCH = 1000


@dataclass
class Training:
    """One training in progress; what of it survives a stop is in :meth:`state`."""

    config: TrainConfig
    folder: RunFolder
    samples: Samples
    network: nn.Module
    method: Method
    optimizer: torch.optim.SGD
    loader: Loader
    engine: Engine
    device: torch.device
    record: Record
    draws: Draws | None = None  # of a network from outside
    epoch: int = 1  # the one that runs
    best_epoch: int = 0
    best_accuracy: float = -1.0
    best_weights: dict[str, Tensor] = field(default_factory=dict)

    def begin_epoch(self, steps_done: int = 0) -> None:
        """Draw the running epoch."""
        self.loader.begin_epoch(self.epoch)
        self.method.begin_epoch(self.epoch)
        rates = learning_rate.table(self.config, self.epoch, self.loader.steps)
        self.engine.begin_epoch(rates.tolist(), steps_done)

    def note_best(self, accuracy: float, evaluated: nn.Module) -> bool:
        """Keep the weights if no epoch before had this validation accuracy."""
        if accuracy <= self.best_accuracy:
            return False
        self.best_accuracy, self.best_epoch = accuracy, self.epoch
        self.best_weights = {name: tensor.detach().clone() for name, tensor in evaluated.state_dict().items()}
        return True

    @contextmanager
    def on_stream(self) -> Iterator[None]:
        """Work of this run goes to its own CUDA stream, beside that of other runs, and has draws of its own."""
        stream = torch.cuda.stream(self.engine.stream) if self.engine.stream is not None else nullcontext()
        with stream, self.draws.taken() if self.draws is not None else nullcontext():
            yield

    # ------------------------------------------------------------ state

    def state(self) -> dict[str, Any]:
        """All state at a step boundary, nested, of tensors, arrays, numbers and strings."""
        return {
            "identity": self.config.identity(),
            "epoch": self.epoch,
            "steps_done": self.engine.steps_done,
            "losses": self.engine.losses,
            "network": self.network.state_dict(),
            "momentum": [s["momentum_buffer"] for s in self.optimizer.state.values()],
            "method": self.method.state_dict(),
            "generator": self.method.task.generator.get_state(),
            **({"draws": self.draws.state()} if self.draws is not None else {}),
            "best_epoch": self.best_epoch,
            "best_accuracy": self.best_accuracy,
            "best": WrittenOnce({str(self.best_epoch): dict(self.best_weights)} if self.best_weights else {}),
            "record": self.record.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from ``state``, in place: a captured step holds on to the tensors it was recorded with."""
        if state["identity"] != self.config.identity():
            raise ValueError(
                f"the checkpoint in {self.folder.path} belongs to another configuration than {run_folder.CONFIG}"
            )
        self.network.load_state_dict(state["network"])
        self.method.load_state_dict(state["method"])
        for ours, saved in zip(self.optimizer.state.values(), state["momentum"], strict=True):
            ours["momentum_buffer"].copy_(saved)
        self._load_generator(state["generator"].cpu())
        if self.draws is not None and "draws" in state:  # a checkpoint of an older version has none
            self.draws.load(state["draws"])
        self.epoch = state["epoch"]
        self.best_epoch, self.best_accuracy = state["best_epoch"], state["best_accuracy"]
        self.best_weights = {k: v.to(self.device) for group in state["best"].values() for k, v in group.items()}
        self.record = Record.from_state(state["record"])
        self.begin_epoch(state["steps_done"])
        self.engine.losses.copy_(state["losses"])

    def _load_generator(self, saved: Tensor) -> None:
        """One of a CUDA device and one of the CPU cannot take each other's state, and differ in its size."""
        generator = self.method.task.generator
        if saved.shape == generator.get_state().shape:
            generator.set_state(saved)
            return
        warnings.warn(
            f"{self.folder.path} was saved on another kind of device: random draws go on anew, so it will not end with "
            "the bytes of a run that was never stopped",
            stacklevel=2,
        )

    def in_memory_copy(self) -> dict[str, Any]:
        """What the warm-up of a captured step may change."""
        copy: dict[str, Any] = _cloned(self.state())
        return copy

    # ------------------------------------------------------------ predictions

    @torch.no_grad()
    def logits(self, network: nn.Module, inputs: Inputs) -> Tensor:
        """Logits ``[n, K]`` in eval mode, float32 or wider, over all processes."""
        rows = torch.arange(exchange.rank(), len(inputs), exchange.world_size(), device=self.device)
        parts = [logits for logits, _ in self._predict(network, inputs, rows)]
        part = torch.cat(parts)
        if not exchange.active():
            return part
        everything = torch.zeros(len(inputs), part.shape[1], dtype=part.dtype, device=self.device)
        seen = torch.zeros(len(inputs), dtype=torch.bool, device=self.device)
        everything[rows], seen[rows] = part, True
        exchange.merge_rows(everything, seen)
        return everything

    @torch.no_grad()
    def _predict(self, network: nn.Module, inputs: Inputs, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        was_training = network.training
        network.eval()
        for index in rows.split(EVALUATION_BATCH):
            with self.engine.autocast():
                logits = network(inputs.clean(index))
            yield (logits if self.config.precision == "fp64" else logits.float()), index
        network.train(was_training)

    def train_logits(self) -> Iterator[tuple[Tensor, Tensor]]:
        """A clean pass over this process's part of the training samples, without a trace in the network."""
        rows = self.loader.samples_of_rank().nonzero().flatten()
        for logits, index in self._predict(self.network, self.samples.train, rows):
            self.refuse_broken(logits, index, self.samples.split.train, "training")
            yield logits, index

    def refuse_broken(self, logits: Tensor, index: Tensor, part: NDArray[np.int64], name: str) -> None:
        """Predictions ``[n, K]`` of a part's samples ``index`` may break by an epoch's last step, after its loss."""
        bad = index[(~torch.isfinite(logits)).any(dim=1)].cpu().numpy()
        if len(bad):
            raise FloatingPointError(
                f"after epoch {self.epoch}, step {self.engine.steps_done}, predictions are not finite on the {name} "
                f"samples {first_few(part[bad])}: a smaller --lr may help; checkpoints from before it stay"
            )

    def train_pictures(self) -> Iterator[Tensor]:
        """In batches of about the same size: of one sample alone BatchNorm can tell nothing."""
        n = len(self.samples.train)
        for index in torch.arange(n, device=self.device).tensor_split(-(-n // EVALUATION_BATCH)):
            yield self.samples.train.clean(index)


def _cloned(state: Any) -> Any:
    if isinstance(state, Tensor):
        return state.clone()
    if isinstance(state, dict):
        return {key: _cloned(value) for key, value in state.items()}
    if isinstance(state, list):
        return [_cloned(value) for value in state]
    return state
