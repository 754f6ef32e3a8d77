"""A run, built from its configuration: labels, split, pictures, network, method, optimiser, engine."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from vista import durable, models
from vista.training import refusals, run_folder
from vista.training.config import TrainConfig, existing_device
from vista.training.engine import Engine, make_optimizer
from vista.training.environment import environment
from vista.training.parts import make_loader, make_network_and_method
from vista.training.random_state import Draws
from vista.training.record import TEST, VAL_GIVEN, VAL_TRUE, Record
from vista.training.run_folder import RunFolder
from vista.training.samples import load_samples
from vista.training.training import Training


def prepare(config: TrainConfig, folder: RunFolder, earlier: dict[str, nn.Module]) -> Training:
    """Build a run, or refuse it; nothing is written yet."""
    device = existing_device(config.device)
    samples = load_samples(config, device)
    refusals.refuse_changes_of_pictures(config, samples)
    refusals.refuse_channels_last(config, samples)
    network, method = make_network_and_method(config, samples, device, earlier)
    refusals.refuse_misfit(config, samples, network)
    refusals.refuse_frozen(config, network)
    refusals.refuse_lone_sample(config, samples, device, earlier)
    optimizer = make_optimizer(
        [p for p in (*network.parameters(), *method.parameters()) if p.requires_grad],
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
    refusals.refuse_full_disk(Path(config.checkpoint_dir or folder.path), network, method)
    network.train()
    if engine.stream is not None:  # all of the above was enqueued where the run will not work: it must be there first
        engine.stream.wait_stream(torch.cuda.current_stream(device))
    draws = Draws(config.seed, device) if models.is_from_outside(config.network) else None
    return Training(config, folder, samples, network, method, optimizer, loader, engine, device, Record(sizes), draws)


def write_description(training: Training) -> None:
    """What the run is and where it ran, before its first step."""
    path = training.folder.path
    durable.write_json(path / run_folder.DATA, training.samples.description)
    durable.write_json(path / run_folder.ENVIRONMENT, environment(training.device))
    training.samples.given.save(path / run_folder.LABELS)
    training.samples.split.save(path / run_folder.SPLIT)
    durable.write_json(path / run_folder.CONFIG, training.config.to_json())
