"""Build a training from its resolved run: data, network, method, optimiser, loader, engine."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import nn

from vista import models
from vista.core import collectives
from vista.core.evidence import Evidence
from vista.data.augment import Augmentation, CutMix
from vista.data.balance import balance_classes
from vista.data.loader import Loader
from vista.files import atomic
from vista.methods import Method, Task
from vista.models import dropout
from vista.runs import checkpoint
from vista.runs.config import TrainConfig
from vista.runs.environment import environment
from vista.runs.folder import CONFIG, DATA, ENVIRONMENT, LABELS, SPLIT, RunFolder
from vista.runs.record import TEST, VAL_GIVEN, VAL_TRUE, Record
from vista.training import preflight
from vista.training.engine import Engine
from vista.training.network import initial_network, on_device
from vista.training.optimization import freeze_backbone, make_optimizer, train_mode
from vista.training.resolve import ResolvedRun
from vista.training.samples import Samples, load_samples
from vista.training.state import TorchRng, Training
from vista.training.weight_average import WeightAverage

METHOD_STREAM = 7  # separates the method's draws from those of the loader
SMALL_BATCH = 2**14  # values in a batch of inputs below which one thread is fastest: two took thrice as long on digits


def build_training(run: ResolvedRun, folder: RunFolder, earlier: dict[str, nn.Module]) -> Training:
    """Build and check a training; nothing is written to disk yet.

    Args:
        run: The resolved run.
        folder: Its folder, which may hold a checkpoint.
        earlier: Trained networks of the runs that the method needs first, by role.
    """
    config, device = run.config, run.device
    if not (folder.path / CONFIG).exists():
        preflight.check_backbone(config)
    samples = load_samples(config, device)
    preflight.check_processes_agree(samples)
    preflight.check_augmentation(run.config, samples)
    preflight.check_channels_first(config, samples)
    root = Path(config.checkpoint_dir or folder.path)
    network, method = build_network_and_method(run, samples, earlier, root / checkpoint.STORE)
    evidence = Evidence(len(samples.train), len(samples.description.classes), device)
    method.evidence = evidence
    preflight.check_network(config, samples, network)
    if config.ema and method.evaluated(network) is not network:
        raise ValueError(
            f"ema is {config.ema}, but method {method.name!r} averages the weights itself: leave out --ema, or use "
            "another method"
        )
    if (config.label_smoothing or config.class_weights != "none") and not method.weighs_targets:
        name = "label_smoothing" if config.label_smoothing else "class_weights"
        raise ValueError(
            f"{name} is {getattr(config, name)}, but method {method.name!r} weights samples itself: leave it out, or "
            "use another method"
        )
    if config.freeze == "backbone":
        freeze_backbone(network)
    optimizer = make_optimizer(config, network, method.parameters(), device)
    loader = build_loader(config, samples, method.task)
    engine = Engine(
        network,
        method,
        loader,
        optimizer,
        average=WeightAverage(network, config.ema) if config.ema else None,
        clip_grad=config.clip_grad,
        accumulate=config.accumulate,
        device=device,
        precision=config.precision,
        compile_network=config.compile,
        capture=config.capture,
    )
    further = (config.optimizer == "adamw") + (config.ema > 0)  # AdamW's second buffer, the average
    checkpoints = preflight.bytes_of_checkpoints(network, method, evidence.nbytes(config.epochs), further)
    preflight.check_disk_space(root, checkpoints, method)
    train_mode(network, frozen=config.freeze == "backbone")
    if engine.stream is not None:  # the work above was enqueued on the current stream and must be done first
        engine.stream.wait_stream(torch.cuda.current_stream(device))
    return Training(
        run=run,
        folder=folder,
        samples=samples,
        network=network,
        method=method,
        optimizer=optimizer,
        loader=loader,
        engine=engine,
        evidence=evidence,
        record=Record({VAL_GIVEN: len(samples.val), VAL_TRUE: len(samples.val), TEST: len(samples.test)}),
        rng=TorchRng(config.seed, device) if models.is_third_party(config.network) else None,
        threads=_cpu_threads(config, folder, samples) if device.type == "cpu" else None,
    )


def build_network_and_method(
    run: ResolvedRun, samples: Samples, earlier: dict[str, nn.Module], store_dir: Path | None = None
) -> tuple[nn.Module, Method]:
    """Both untrained, their weights a function of the seed."""
    config = run.config
    network = initial_network(config, samples.description)
    task = build_task(run, samples, earlier, store_dir)
    with models.seed_context(config.seed + 1):
        method = run.chosen.method(task, network, run.chosen.config)
    network, method = on_device(network, run.device), method.to(run.device)
    if config.precision == "fp64":
        method = method.double()
    dropout.set_generator(network, task.generator)
    dropout.set_generator(method, task.generator)
    return network, method


def build_task(
    run: ResolvedRun, samples: Samples, earlier: dict[str, nn.Module], store_dir: Path | None = None
) -> Task:
    """The task that a method receives."""
    config, device = run.config, run.device
    labels, num_classes = torch.from_numpy(samples.labels("train", "given")), len(samples.description.classes)
    generator = torch.Generator(device=device)
    generator.manual_seed(config.seed * 1000 + METHOD_STREAM + collectives.rank())
    return Task(
        labels=labels.to(device),
        val_labels=torch.from_numpy(samples.labels("val", "given")).to(device),
        num_classes=num_classes,
        epochs=config.epochs,
        steps_per_epoch=-(-len(labels) // config.batch_size),
        batch_size=min(config.batch_size, len(samples.train)),
        device=device,
        generator=generator,
        cutmix=config.cutmix > 0,
        earlier={role: network.to(device) for role, network in earlier.items()},
        has_missing_labels=bool((labels < 0).any()),
        num_test=len(samples.test),
        label_smoothing=config.label_smoothing,
        class_weight=None if config.class_weights == "none" else balance_classes(labels, num_classes).to(device),
        sees_every_sample=not config.balanced_sampling,
        store_dir=store_dir,
    )


def build_loader(config: TrainConfig, samples: Samples, task: Task) -> Loader:
    """The loader of the training samples, with the augmentation of the run or of its data set."""
    description = samples.description
    augmentation = Augmentation(
        padding=description.padding if config.padding is None else config.padding,
        flip=description.flip if config.flip is None else config.flip,
        rotation=config.rotation,
        crop_scale=None if description.image_size is None else config.crop_scale,
        color_jitter=config.color_jitter,
        augment=config.augment,
    )
    return Loader(
        samples.train,
        task.labels,
        (samples.val, task.val_labels),
        batch_size=task.batch_size,
        augmentation=augmentation,
        cutmix=CutMix(config.cutmix) if config.cutmix else None,
        balanced=config.balanced_sampling,
        seed=config.seed,
        rank=collectives.rank(),
        world_size=collectives.world_size(),
    )


def is_small(config: TrainConfig, sample_shape: tuple[int, ...]) -> bool:
    """Whether one CPU thread is fastest for a batch of these samples."""
    return config.batch_size * math.prod(sample_shape) < SMALL_BATCH


def _cpu_threads(config: TrainConfig, folder: RunFolder, samples: Samples) -> int | None:
    """The threads a resumed run started with, since they decide its last bits; for a new run what is fastest."""
    if (folder.path / ENVIRONMENT).exists():
        return folder.threads()
    return 1 if is_small(config, samples.train.sample_shape) else None


def write_description(training: Training) -> None:
    """Write what the run is and where it runs, before its first step; config.json last, because it makes it a run."""
    path, samples = training.folder.path, training.samples
    atomic.write_json(path / DATA, samples.description.to_json())
    atomic.write_json(path / ENVIRONMENT, environment(training.device))
    samples.given.save(path / LABELS)
    samples.split.save(path / SPLIT)
    if samples.content is not None:
        training.folder.write_content_hashes(samples.content)
    atomic.write_json(path / CONFIG, training.config.to_json())
