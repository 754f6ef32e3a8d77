"""Checks before the first step: a run that cannot succeed stops here, before anything is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from vista import models
from vista.core import collectives
from vista.core.store import readable
from vista.files import atomic
from vista.methods import Method
from vista.runs import checkpoint
from vista.runs.config import TrainConfig
from vista.runs.description import HASHES, DataDescription
from vista.runs.environment import versions
from vista.runs.folder import CONFIG, METRICS, RunFolder, checkpoints_size
from vista.training.network import does_not_take, in_words, initial_network, network_name
from vista.training.resolve import choose_method, differences
from vista.training.samples import Samples


def check_same_run(config: TrainConfig, folder: RunFolder) -> None:
    """A folder holds one run: it must be empty, or hold this very run."""
    has_config = (folder.path / CONFIG).exists()
    if folder.is_finished() and not has_config:
        raise ValueError(
            f"{folder.path} has {METRICS} but no {CONFIG}, so it is unclear which run it holds: restore {CONFIG}, "
            "delete the rest of that run, or choose another --out"
        )
    found = differences(folder.config(), config) if has_config else []
    if found:
        _check_built_in(config)  # a misspelt network is an error of its own, not another run
        name, theirs, ours = found[0]
        raise ValueError(
            f"{folder.path} holds another run, with {name}={theirs!r} instead of {ours!r}: "
            "choose another --out, or replace it with --fresh"
        )


def check_processes_agree(samples: Samples) -> None:
    """The processes of a training must have the versions and the data of rank 0."""
    if not collectives.active():
        return
    hashes = [getattr(samples.description, name) for name in HASHES]
    gathered = collectives.gather_strings(json.dumps([collectives.here(), versions(), hashes]))
    (first, ours, of_first), *others = map(json.loads, gathered)
    for other, theirs, of_other in others:
        for name, version in ours.items():
            if theirs[name] != version:
                raise ValueError(
                    f"{other} has {name} {theirs[name]}, but {first} has {version}: install the same version everywhere"
                )
        if of_other != of_first:
            raise ValueError(f"{other} reads other data or labels than {first}: give all processes the same files")


def check_cutmix(config: TrainConfig) -> None:
    """CutMix needs a method that supports it."""
    chosen = choose_method(config)
    if config.cutmix and not chosen.method.composes_with_cutmix:
        raise ValueError(f"method {chosen.name!r} does not support CutMix: use --cutmix 0")
    if config.cutmix == 1 and chosen.method.needs_unmixed:
        raise ValueError(f"method {chosen.name!r} learns from unmixed batches: use --cutmix 0.5, or another share")


def check_augmentation(config: TrainConfig, samples: Samples) -> None:
    """All augmentation needs images."""
    check_cutmix(config)
    for name in ("cutmix", "padding", "flip", "rotation", "color_jitter", "augment"):
        value = getattr(config, name)
        if value and value != "none" and not samples.train.is_image:
            raise ValueError(
                f"{name} is {value}, but {config.data} has no images: leave out --{name.replace('_', '-')}"
            )
    if config.padding and samples.description.image_size is not None:
        raise ValueError(
            f"padding is {config.padding}, but photos are cropped at random instead of shifted: use --crop-scale"
        )


def check_channels_first(config: TrainConfig, samples: Samples) -> None:
    """Float arrays that look like images [H, W, C] would be read as H channels by our networks."""
    shape, name = samples.val.sample_shape, network_name(config, samples.val.sample_shape)
    if len(shape) != 3 or name == "mlp" or models.is_third_party(name):
        return
    height, width, channels = shape
    if min(height, width) > 4 and (channels == 3 or (channels == 1 and height == width)):
        raise ValueError(
            f"network {name!r} expects channels first, but a sample has shape {in_words(shape)}: store images as "
            "uint8 [N, H, W, C], or floats as numpy.moveaxis(x, -1, 1)"
        )


def check_backbone(config: TrainConfig) -> None:
    """A network must exist, fit its weights and accept photos: known before they are decoded."""
    _check_built_in(config)
    if not models.is_backbone(config.network) or config.image_size is None:
        return
    shape = (3, config.image_size, config.image_size)
    described = DataDescription(
        config.data, ("0", "1"), shape, mean=(0.0,) * 3, std=(1.0,) * 3,
        backbone=models.read_backbone(config.network).to_json(),
    )  # fmt: skip
    network = initial_network(config, described).eval()
    try:
        with torch.no_grad():
            network(torch.zeros(1, *shape, dtype=next(network.parameters()).dtype))
    except Exception as error:
        raise does_not_take(config, shape, error) from error


def _check_built_in(config: TrainConfig) -> None:
    """A name of a network must be known, and the network must fit the image size."""
    if models.is_third_party(config.network) or config.network == "auto":
        return
    try:
        models.count_parameters(config.network, image_size=config.image_size or 32)
    except ValueError as error:
        if config.image_size is None or config.network not in models.names():
            raise
        raise ValueError(f"network {config.network!r} and --image-size {config.image_size}: {error}") from error


def check_network(config: TrainConfig, samples: Samples, network: nn.Module) -> None:
    """The network must accept these samples, return one logit per class, and have weights to train."""
    sample = samples.val.clean(torch.arange(1, device=samples.val.device))
    _check_output(config, samples, network.eval(), sample)
    if models.is_third_party(config.network):  # its output may differ in training mode
        with _state_restored(network, sample.device):
            _check_output(config, samples, network.train(), sample.repeat(2, *(1 for _ in sample.shape[1:])))
    if not any(weight.requires_grad for weight in network.parameters()):
        raise ValueError(f"network {config.network!r} has no parameter that requires a gradient: nothing to train")


def _check_output(config: TrainConfig, samples: Samples, network: nn.Module, x: Tensor) -> None:
    count, classes = len(x), len(samples.description.classes)
    try:
        with torch.set_grad_enabled(network.training):
            logits: object = network(x)
    except Exception as error:
        raise does_not_take(config, samples.val.sample_shape, error) from error
    if not isinstance(logits, Tensor) or logits.shape != (count, classes):
        found = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
        given = "two samples in training mode" if network.training else "one sample"
        raise ValueError(
            f"network {config.network!r} returns {found} for {given} of shape {in_words(samples.val.sample_shape)}, "
            f"but logits of shape ({count}, {classes}) are needed, one for each class: give the last layer num_classes "
            f"outputs, which are {classes} here"
        )
    if network.training and not logits.requires_grad and any(weight.requires_grad for weight in network.parameters()):
        raise ValueError(
            f"network {config.network!r} returns logits without a gradient, but it has weights to train: "
            "look for detach() or torch.no_grad() in its forward method"
        )


@contextmanager
def _state_restored(network: nn.Module, device: torch.device) -> Iterator[None]:
    """Restore buffers such as BatchNorm statistics, and torch's generators, after a pass in training mode."""
    before = [(buffer, buffer.clone()) for buffer in network.buffers()]
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        for buffer, value in before:
            buffer.copy_(value)


def bytes_of_checkpoints(network: nn.Module, method: Method, evidence: int, further: int = 0) -> int:
    """Upper bound on disk space: each checkpoint holds weights, momentum, best weights and the method's state.

    ``further`` counts additional copies of the weights, such as an average.
    """
    weights: int = sum(t.nbytes for t in network.state_dict().values())
    return (
        checkpoint.AT_ONCE * ((3 + further) * weights + method.bytes_changing() + evidence)
        + method.bytes_written_once()
    )


def check_disk_space(root: Path, needed: int, method: Method) -> None:
    """The disk of the checkpoint folder ``root`` must have space for the checkpoints at the end of the run."""
    path = root.parent if checkpoint.is_in_checkpoint_dir(root) else root
    if path == root:
        path.mkdir(parents=True, exist_ok=True)
    else:
        atomic.make_folder(path)
    free, held = shutil.disk_usage(path).free, checkpoints_size(root)
    if needed - held > free:
        may_need = f"{path} has {readable(free)} free, but checkpoints of this run may need {readable(needed - held)}"
        if held:  # the options of a resumed run cannot change
            raise OSError(f"{may_need} more: free disk space, or move the folder to a larger disk and resume it there")
        raise OSError(f"{may_need}{method.advice_for_less_disk_space()}")
