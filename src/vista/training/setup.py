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
from vista.training.config import TrainConfig, existing_device
from vista.training.engine import Engine, make_optimizer
from vista.training.environment import environment
from vista.training.network import build_network, on_device
from vista.training.record import TEST, VAL_GIVEN, VAL_TRUE, Record
from vista.training.run_folder import RunFolder
from vista.training.samples import Samples, load_samples
from vista.training.training import Training

BATCH_NORM_ALONE = "more than 1 value per channel"  # what torch says of a batch without a spread
METHOD_STREAM = 7  # keeps the method's draws apart from those of the loader


def prepare(config: TrainConfig, folder: RunFolder, earlier: dict[str, nn.Module]) -> Training:
    """Build a run; its folder gets configuration, environment, labels and split."""
    device = existing_device(config.device)
    samples = load_samples(config, device)
    chosen = config.chosen()
    if config.cutmix and not chosen.method.composes_with_cutmix:
        raise ValueError(f"method {chosen.name!r} does not compose with CutMix: use --cutmix 0")
    if config.cutmix and not samples.train.is_image:
        raise ValueError(f"cutmix is {config.cutmix}, but {config.data} has no pictures: use --cutmix 0")
    refuse_changes_of_features(config, samples)
    network, method = make_network_and_method(config, samples, device, earlier)
    refuse_misfit(config, samples, network)
    if leaves_one_alone(len(samples.train), config.batch_size, exchange.world_size()):
        refuse_lone_sample(config, samples, device, earlier)
    optimizer = make_optimizer(
        [*network.parameters(), *(p for p in method.parameters() if p.requires_grad)],
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        nesterov=config.nesterov,
        device=device,
    )
    loader = make_loader(config, samples, method.task)
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


def make_network_and_method(
    config: TrainConfig, samples: Samples, device: torch.device, earlier: dict[str, nn.Module]
) -> tuple[nn.Module, Method]:
    """Both fresh, their weights a function of the seed."""
    network = build_network(config, samples.description)
    task = make_task(config, samples, device, earlier)
    chosen = config.chosen()
    with models.seeded(config.seed + 1):
        method = chosen.method(task, network, chosen.config)
    network, method = on_device(network, device), method.to(device)
    if config.precision == "fp64":
        method = method.double()
    dropout.set_generator(network, task.generator)
    dropout.set_generator(method, task.generator)
    return network, method


def refuse_changes_of_features(config: TrainConfig, samples: Samples) -> None:
    """Pictures are shifted, mirrored and turned; what else a sample may be is not."""
    for name in ("padding", "flip", "rotation"):
        value = getattr(config, name)
        if value and not samples.train.is_image:
            raise ValueError(f"{name} is {value}, but {config.data} has no pictures: leave --{name} out")


@torch.no_grad()
def refuse_misfit(config: TrainConfig, samples: Samples, network: nn.Module) -> None:
    """Find out before the first step whether the network takes these samples and tells these classes apart."""
    shape, classes = samples.val.sample_shape, len(samples.description["classes"])
    x = samples.val.clean(torch.arange(1, device=samples.val.device))
    sizes = " x ".join(map(str, shape))
    training = network.training
    try:
        logits: object = network.eval()(x)
    except Exception as error:
        raise ValueError(
            f"network {config.network!r} does not take samples of shape {sizes}: {type(error).__name__}: {error}"
        ) from error
    finally:
        network.train(training)
    if not isinstance(logits, torch.Tensor) or logits.shape != (1, classes):
        found = f"shape {tuple(logits.shape)}" if isinstance(logits, torch.Tensor) else f"a {type(logits).__name__}"
        raise ValueError(
            f"network {config.network!r} gives {found} for one sample of shape {sizes}, "
            f"but logits of shape (1, {classes}) are needed, one for each class"
        )


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
        batch_size=min(config.batch_size, len(samples.train)),
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
        batch_size=min(config.batch_size, len(samples.train)),
        augmentation=augmentation,
        cutmix=CutMix(config.cutmix) if config.cutmix else None,
        seed=config.seed,
        rank=exchange.rank(),
        world_size=exchange.world_size(),
    )


def leaves_one_alone(samples: int, batch_size: int, processes: int) -> bool:
    """Whether a process ever trains on a batch of one sample: it takes every so-many-th of a full or short batch."""
    sizes = {min(batch_size, samples), samples % batch_size}
    return any(len(range(rank, size, processes)) == 1 for size in sizes for rank in range(processes))


def refuse_lone_sample(
    config: TrainConfig, samples: Samples, device: torch.device, earlier: dict[str, nn.Module]
) -> None:
    """Find out before the first step whether a batch of one sample would break the last one of the epoch.

    It depends on network and method: BatchNorm has nothing to normalise over where its map is 1 x 1, unless the
    method sends two views through at once. So both are made, tried and thrown away.
    """
    network, method = make_network_and_method(config, samples, device, earlier)
    loader = make_loader(config, samples, method.task)
    loader.begin_epoch(1)
    method.begin_epoch(1)
    first_step = torch.zeros(1, dtype=torch.long, device=device)
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            method.loss(network.train(), loader.batch(first_step, loader.rank + 1))
    except ValueError as error:
        if BATCH_NORM_ALONE not in str(error):
            raise
        n, processes = len(samples.train), exchange.world_size()
        shared = f" on {processes} processes" if processes > 1 else ""
        sizes = sorted(range(2, n + 1), key=lambda size: abs(size - config.batch_size))
        suited = next((size for size in sizes if not leaves_one_alone(n, size, processes)), None)
        advice = f"use --batch-size {suited}" if suited else "no --batch-size would do"
        raise ValueError(
            f"batch_size is {config.batch_size}, which leaves a batch of one of the {n} training samples{shared}, "
            f"but BatchNorm in network {config.network!r} needs more than one: {advice}"
        ) from error


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
