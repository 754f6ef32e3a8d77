"""What a run is refused for before its first step."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from vista import exchange, models
from vista.methods import Method
from vista.store import readable
from vista.training import checkpoint
from vista.training.config import TrainConfig, differences
from vista.training.network import does_not_take, in_words, network_name
from vista.training.parts import make_loader, make_network_and_method
from vista.training.run_folder import CONFIG, METRICS, RunFolder, checkpoints_size
from vista.training.samples import Samples

BATCH_NORM_ALONE = "more than 1 value per channel"  # what torch says of a batch without a spread


def refuse_another_run(config: TrainConfig, folder: RunFolder) -> None:
    """A folder holds one run: this one, or none yet."""
    there = (folder.path / CONFIG).exists()
    if folder.is_finished() and not there:
        raise ValueError(
            f"{folder.path} has {METRICS} but no {CONFIG}, which says of what run: put it back, remove what is left of "
            "that run, or choose another --out"
        )
    found = differences(folder.config(), config) if there else []
    if found:
        name, theirs, ours = found[0]
        raise ValueError(
            f"{folder.path} holds another run, with {name}={theirs!r} where this one has {ours!r}: "
            "choose another --out, or replace it with --fresh"
        )


def refuse_changes_of_pictures(config: TrainConfig, samples: Samples) -> None:
    """Pictures are mixed, shifted, mirrored and turned; what else a sample may be is not."""
    chosen = config.chosen()
    if config.cutmix and not chosen.method.composes_with_cutmix:
        raise ValueError(f"method {chosen.name!r} does not compose with CutMix: use --cutmix 0")
    for name in ("cutmix", "padding", "flip", "rotation"):
        value = getattr(config, name)
        if value and not samples.train.is_image:
            raise ValueError(f"{name} is {value}, but {config.data} has no pictures: leave --{name} out")


def refuse_channels_last(config: TrainConfig, samples: Samples) -> None:
    """Floats that look like pictures [H, W, C] would be taken for H channels by a network of ours."""
    shape, name = samples.val.sample_shape, network_name(config, samples.val.sample_shape)
    if len(shape) != 3 or name == "mlp" or models.is_from_outside(name):
        return
    height, width, channels = shape
    if min(height, width) > 4 and (channels == 3 or (channels == 1 and height == width)):
        raise ValueError(
            f"network is {name!r}, which takes channels first, but a sample has shape {in_words(shape)}: give pictures "
            "as uint8 [N, H, W, C], or floats as numpy.moveaxis(x, -1, 1)"
        )


def refuse_misfit(config: TrainConfig, samples: Samples, network: nn.Module) -> None:
    """Find out before the first step whether the network takes these samples and tells these classes apart."""
    sample = samples.val.clean(torch.arange(1, device=samples.val.device))
    _try(config, samples, network.eval(), sample)
    if models.is_from_outside(config.network):  # it may give something else while it trains
        with _unchanged(network, sample.device):
            _try(config, samples, network.train(), sample.repeat(2, *(1 for _ in sample.shape[1:])))


def _try(config: TrainConfig, samples: Samples, network: nn.Module, x: Tensor) -> None:
    count, classes = len(x), len(samples.description["classes"])
    try:
        with torch.set_grad_enabled(network.training):
            logits: object = network(x)
    except Exception as error:
        raise does_not_take(config, samples.val.sample_shape, error) from error
    if not isinstance(logits, Tensor) or logits.shape != (count, classes):
        found = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
        given = "two samples in training" if network.training else "one sample"
        raise ValueError(
            f"network {config.network!r} gives {found} for {given} of shape {in_words(samples.val.sample_shape)}, "
            f"but logits of shape ({count}, {classes}) are needed, one for each class"
        )
    if network.training and not logits.requires_grad and any(weight.requires_grad for weight in network.parameters()):
        raise ValueError(
            f"network {config.network!r} gives logits without a gradient, but it has weights to train: "
            "look for detach() or torch.no_grad() in its forward"
        )


@contextmanager
def _unchanged(network: nn.Module, device: torch.device) -> Iterator[None]:
    """What a pass in training changes, as BatchNorm's averages and what torch's generators give next, is put back."""
    before = [(buffer, buffer.clone()) for buffer in network.buffers()]
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        for buffer, value in before:
            buffer.copy_(value)


def refuse_frozen(config: TrainConfig, network: nn.Module) -> None:
    if not any(weight.requires_grad for weight in network.parameters()):
        raise ValueError(
            f"network {config.network!r} has no weight that requires a gradient: there is nothing to train"
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
    if not leaves_one_alone(len(samples.train), config.batch_size, exchange.world_size()):
        return
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


def bytes_of_checkpoints(network: nn.Module, method: Method) -> int:
    """Most that checkpoints take on disk: each holds weights, momentum, best weights and the method's own state."""
    weights: int = sum(t.nbytes for t in network.state_dict().values())
    return checkpoint.AT_ONCE * (3 * weights + method.bytes_changing()) + method.bytes_written_once()


def refuse_full_disk(root: Path, network: nn.Module, method: Method) -> None:
    """Reject a run, before it starts or resumes, if the disk of its checkpoint folder ``root`` is too small for it."""
    needed = bytes_of_checkpoints(network, method)
    path = root.parent if checkpoint.is_in_checkpoint_dir(root) else root
    path.mkdir(parents=True, exist_ok=True)
    free, held = shutil.disk_usage(path).free, checkpoints_size(root)
    if needed - held > free:
        may_need = f"{path} has {readable(free)} free, but checkpoints of this run may need {readable(needed - held)}"
        if held:  # a run that goes on does so as it began: no option can change now
            raise OSError(f"{may_need} more: make room there, or move the folder to a larger disk and resume it there")
        raise OSError(f"{may_need}{method.advice_for_less_room()}")
