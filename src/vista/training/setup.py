"""Everything a run holds, built from its configuration: labels, split, pictures, network, method, optimiser, engine."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from torch import Tensor, nn

import vista
from vista import exchange, models, noise, split
from vista.data import source
from vista.data.augment import Augmentation, CutMix
from vista.data.loader import Inputs, Loader
from vista.data.source import Source
from vista.methods import Method, Task
from vista.models import dropout
from vista.noise import NoisyLabels
from vista.split import Split
from vista.store import readable
from vista.training import durable, learning_rate, run_folder
from vista.training.config import TrainConfig
from vista.training.engine import Engine, make_optimizer
from vista.training.network import build_network, on_device
from vista.training.record import TEST, VAL_GIVEN, VAL_TRUE, Record
from vista.training.run_folder import RunFolder

EVALUATION_BATCH = 1000
METHOD_STREAM = 7  # keeps the method's draws apart from those of the loader


@dataclass(frozen=True)
class Samples:
    """The data of a run: inputs on the device, given and true labels on the host."""

    train: Inputs
    val: Inputs
    test: Inputs
    given: NoisyLabels
    split: Split
    test_labels: np.ndarray
    description: dict[str, Any]

    def labels(self, part: str, kind: str) -> np.ndarray:
        """Labels of ``train`` or ``val``, ``given`` or ``true``."""
        return np.asarray(getattr(self.given, kind)[getattr(self.split, part)])


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

    def on_stream(self) -> AbstractContextManager[Any]:
        """Work of this run goes to its own CUDA stream, beside that of other runs."""
        return torch.cuda.stream(self.engine.stream) if self.engine.stream is not None else nullcontext()

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
            "best_epoch": self.best_epoch,
            "best_accuracy": self.best_accuracy,
            "best": {str(self.best_epoch): dict(self.best_weights)} if self.best_weights else {},
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
        self.method.task.generator.set_state(state["generator"].cpu())
        self.epoch = state["epoch"]
        self.best_epoch, self.best_accuracy = state["best_epoch"], state["best_accuracy"]
        self.best_weights = {k: v.to(self.device) for group in state["best"].values() for k, v in group.items()}
        self.record = Record.from_state(state["record"])
        self.begin_epoch(state["steps_done"])
        self.engine.losses.copy_(state["losses"])

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
        return self._predict(self.network, self.samples.train, rows)

    def train_pictures(self) -> Iterator[Tensor]:
        for index in torch.arange(len(self.samples.train), device=self.device).split(EVALUATION_BATCH):
            yield self.samples.train.clean(index)


def prepare(config: TrainConfig, folder: RunFolder, earlier: dict[str, nn.Module]) -> Training:
    """Build a run; its folder gets configuration, environment, labels and split."""
    device = torch.device(config.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(f"device is {config.device!r}, but there is no CUDA device: use --device cpu")
    samples = load_samples(config, device)
    network = build_network(config, samples.description)
    task = make_task(config, samples, device, earlier)
    chosen = config.chosen()
    if config.cutmix and not chosen.method.composes_with_cutmix:
        raise ValueError(f"method {chosen.name!r} does not compose with CutMix: use --cutmix 0")
    if config.cutmix and not samples.train.is_image:
        raise ValueError(f"cutmix is {config.cutmix}, but {config.data} has no pictures: use --cutmix 0")
    with models.seeded(config.seed + 1):
        method = chosen.method(task, network, chosen.config)
    network, method = on_device(network, device), method.to(device)
    if config.precision == "fp64":
        method = method.double()
    dropout.set_generator(network, task.generator)
    dropout.set_generator(method, task.generator)
    optimizer = make_optimizer(
        [*network.parameters(), *(p for p in method.parameters() if p.requires_grad)],
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        nesterov=config.nesterov,
        device=device,
    )
    loader = make_loader(config, samples, task)
    engine = Engine(
        network,
        method,
        loader,
        optimizer,
        device=device,
        precision=config.precision,
        compile_network=config.compile,
        capture=config.capture,
    )
    sizes = {VAL_GIVEN: len(samples.val), VAL_TRUE: len(samples.val), TEST: len(samples.test)}
    check_disk(folder.path, network, method)
    network.train()
    if engine.stream is not None:  # all of the above was enqueued where the run will not work: it must be there first
        engine.stream.wait_stream(torch.cuda.current_stream(device))
    return Training(config, folder, samples, network, method, optimizer, loader, engine, device, Record(sizes))


def load_samples(config: TrainConfig, device: torch.device) -> Samples:
    """Labels made noisy, then split; inputs brought to the device."""
    data = source.load(config.data, config.root)
    given, parts = labels_and_split(config, data, config.root)
    dtype = torch.float64 if config.precision == "fp64" else torch.float32

    def placed(values: np.ndarray, rows: np.ndarray | None = None) -> Inputs:
        return Inputs(values, data.mean, data.std, device, dtype, rows)

    train, val = placed(data.train_inputs, parts.train), placed(data.train_inputs, parts.val)
    description = {
        "format": 1,
        "name": data.name,
        "classes": list(data.classes),
        "sample_shape": list(train.sample_shape),
        "samples": {"train": len(parts.train), "val": len(parts.val), "test": len(data.test_labels)},
        "labels_hash": given.hash,
        "split_hash": parts.hash,
        "noise_rate": given.rate,
        "mean": list(data.mean),
        "std": list(data.std),
        "flip": data.flip,
        "padding": data.padding,
    }
    return Samples(train, val, placed(data.test_inputs), given, parts, data.test_labels, description)


def labels_and_split(config: TrainConfig, data: Source, root: str | None) -> tuple[NoisyLabels, Split]:
    """The labels that a run is given, and which of them it trains on: functions of its seeds."""
    noise_seed = config.seed if config.noise_seed is None else config.noise_seed
    split_seed = config.seed if config.split_seed is None else config.split_seed
    given = noise.make(config.noise, data.train_labels, data.num_classes, noise_seed, groups=data.groups, root=root)
    held_out = int(config.validation) if config.validation >= 1 else config.validation
    return given, split.stratified(given.given, held_out, split_seed)


def make_task(config: TrainConfig, samples: Samples, device: torch.device, earlier: dict[str, nn.Module]) -> Task:
    labels = torch.from_numpy(samples.labels("train", "given"))
    generator = torch.Generator(device=device)
    generator.manual_seed(config.seed * 1000 + METHOD_STREAM + exchange.rank())
    return Task(
        labels=labels.to(device),
        val_labels=torch.from_numpy(samples.labels("val", "given")).to(device),
        num_classes=len(samples.description["classes"]),
        epochs=config.epochs,
        steps_per_epoch=-(-len(labels) // config.batch_size),
        batch_size=config.batch_size,
        device=device,
        generator=generator,
        cutmix=config.cutmix > 0,
        earlier={role: network.to(device) for role, network in earlier.items()},
        has_missing_labels=bool((labels < 0).any()),
    )


def make_loader(config: TrainConfig, samples: Samples, task: Task) -> Loader:
    own = samples.description
    augmentation = Augmentation(
        padding=own["padding"] if config.padding is None else config.padding,
        flip=own["flip"] if config.flip is None else config.flip,
        rotation=config.rotation,
    )
    return Loader(
        samples.train,
        task.labels,
        (samples.val, task.val_labels),
        batch_size=config.batch_size,
        augmentation=augmentation,
        cutmix=CutMix(config.cutmix) if config.cutmix else None,
        seed=config.seed,
        rank=exchange.rank(),
        world_size=exchange.world_size(),
    )


def check_disk(path: Path, network: nn.Module, method: Method) -> None:
    """Refuse before the run starts what its checkpoints could not hold at its end."""
    weights = sum(t.nbytes for t in network.state_dict().values())
    needed = 6 * weights + method.bytes_at_most()  # two checkpoints of weights, momentum and best weights
    path.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(path).free
    if needed > free:
        raise OSError(
            f"{path} has {readable(free)} free, but checkpoints of this run may need {readable(needed)}"
            f"{method.advice_for_less_room()}"
        )


def write_description(training: Training) -> None:
    """What the run is and where it ran, before its first step."""
    path = training.folder.path
    durable.write_json(path / run_folder.DATA, training.samples.description)
    durable.write_json(path / run_folder.ENVIRONMENT, environment(training.device))
    training.samples.given.save(path / run_folder.LABELS)
    training.samples.split.save(path / run_folder.SPLIT)
    durable.write_json(path / run_folder.CONFIG, training.config.to_json())


def environment(device: torch.device) -> dict[str, Any]:
    """Versions and machine, as far as they may explain a difference."""
    return {
        "vista": vista.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "safetensors": safetensors.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "threads": torch.get_num_threads(),
        "processes": exchange.world_size(),
    }


def _commit() -> str | None:
    """The source's commit, where vista runs from a checkout or VISTA_COMMIT names it (a copy without its history)."""
    if named := os.environ.get("VISTA_COMMIT"):
        return named
    place = Path(vista.__file__).parent
    try:
        out = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=place, capture_output=True, text=True, timeout=5, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return out.stdout.strip() or None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        return names[0] if names else platform.processor()
    except OSError:
        return platform.processor()


def _cloned(state: Any) -> Any:
    if isinstance(state, Tensor):
        return state.clone()
    if isinstance(state, dict):
        return {key: _cloned(value) for key, value in state.items()}
    if isinstance(state, list):
        return [_cloned(value) for value in state]
    return state
