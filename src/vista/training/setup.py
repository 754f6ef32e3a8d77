"""A run, built from its configuration: labels, split, pictures, network, method, optimiser, engine."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from torch import nn

from vista import durable, exchange, models
from vista.data.augment import Augmentation, CutMix
from vista.data.loader import Loader
from vista.methods import Method, Task
from vista.models import dropout
from vista.store import readable
from vista.training import run_folder
from vista.training.config import TrainConfig
from vista.training.engine import Engine, make_optimizer
from vista.training.environment import environment
from vista.training.network import build_network, on_device
from vista.training.record import TEST, VAL_GIVEN, VAL_TRUE, Record
from vista.training.run_folder import RunFolder
from vista.training.samples import Samples, load_samples
from vista.training.training import Training

METHOD_STREAM = 7  # keeps the method's draws apart from those of the loader


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
