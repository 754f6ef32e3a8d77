"""The parts that a run is built of: network and method, the task that the method sees, the loader."""

from __future__ import annotations

import torch
from torch import nn

from vista import exchange, models
from vista.data.augment import Augmentation, CutMix
from vista.data.loader import Loader
from vista.methods import Method, Task
from vista.models import dropout
from vista.training.config import TrainConfig
from vista.training.network import build_network, on_device
from vista.training.samples import Samples

METHOD_STREAM = 7  # keeps the method's draws apart from those of the loader


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
        num_test=len(samples.test),
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
        batch_size=task.batch_size,
        augmentation=augmentation,
        cutmix=CutMix(config.cutmix) if config.cutmix else None,
        seed=config.seed,
        rank=exchange.rank(),
        world_size=exchange.world_size(),
    )
