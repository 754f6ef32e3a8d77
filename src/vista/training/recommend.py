"""What ``auto`` recommends for custom data: method, network and number of epochs, with the reason in one line.

Nothing is downloaded, timed or trained for it: the choice depends on the number and size of the samples, the network
and the device alone. It is stored in ``config.json``, and a resumed run takes it from there.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from vista import models
from vista.data import folder, source
from vista.runs.config import TrainConfig, preset
from vista.runs.folder import CONFIG, RunFolder
from vista.training.build import is_small
from vista.training.resolve import device_name
from vista.training.samples import load_source
from vista.training.scheduler import Job

WEIGHABLE = 200  # validation samples from which on the coverage of epochs is more than chance
SMALL = 5_000  # training samples up to which small batches are worth their time
SECONDS = 600  # that a training should take
PER_CORE, PER_GPU = 4e10, 2e13  # operations per second that a training reaches, on a CPU core and on a GPU
FEWEST, MOST = 10, 100  # epochs
UNKNOWN = 30  # epochs for a network whose operations are not counted, because it is custom code
DEFAULT_SIZE = folder.PHOTO_SIZE


@dataclass(frozen=True)
class DataSize:
    """What the recommendation needs to know about the data.

    Attributes:
        train: Number of training samples, without those for validation.
        validation: Number of validation samples.
        shape: Shape of a sample: ``(channels, height, width)`` of images.
        classes: Number of classes.
    """

    train: int
    validation: int
    shape: tuple[int, ...]
    classes: int


def recommend(fields: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The values of the preset ``recommended``, and the line that explains them.

    Args:
        fields: Fields of :class:`vista.runs.config.TrainConfig` that were given; they are not recommended, but the
            number of epochs depends on some of them.

    Returns:
        Fields for :class:`vista.runs.config.TrainConfig`, and one line of text.

    Example:
        >>> values, reason = recommend({"data": "digits", "device": "cpu"})
        >>> values["method"], values["network"], values["epochs"]
        ('label-smoothing', 'small-cnn', 100)
    """
    config = TrainConfig(**{**preset("recommended"), **fields})
    size = measure(config)
    small = size.train < SMALL
    values = {**preset("recommended"), "batch_size": 32 if small else 64, "lr": 0.05 if small else 0.1}
    values["method"] = "vista-light" if size.validation >= WEIGHABLE else "label-smoothing"
    device = device_name(config.device).partition(":")[0]
    values["network"] = choose_network(size.shape, device)
    chosen = {**values, **fields}
    values["epochs"] = choose_epochs(TrainConfig(**{**chosen, "epochs": MOST}), size, device)
    return values, _explain({**values, **fields}, size, device)


def measure(config: TrainConfig) -> DataSize:
    """Count the samples of a data set; a folder of images is listed, not decoded."""
    custom = source.path_of(config.data, config.root)
    if custom is not None and custom[0] == "folder":
        classes, train, own, has_test = folder.count(custom[1], config.own_validation)
        size = config.image_size or DEFAULT_SIZE
        shape: tuple[int, ...] = (3, size, size)
    else:
        data = load_source(config, config.root)
        classes, train, has_test = data.num_classes, len(data.for_training), True
        own = 0 if data.validation is None else len(data.validation)
        sample = data.inputs.shape[1:]
        shape = (sample[2], sample[0], sample[1]) if data.is_image else tuple(sample)
    if not has_test:
        train = round(train * (1 - source.TEST_FRACTION))
    held_out = own or int(config.validation if config.validation >= 1 else np.ceil(config.validation * train))
    return DataSize(train if own else max(train - held_out, 1), held_out, shape, classes)


def choose_network(shape: tuple[int, ...], device: str) -> str:
    """A network that trains from scratch on this device; ``mlp`` for samples that are no images."""
    if len(shape) != 3:
        return "mlp"
    return "small-cnn" if device == "cpu" or min(shape[1:]) < 24 else "resnet18"


def choose_epochs(config: TrainConfig, size: DataSize, device: str) -> int:
    """As many epochs as take about ten minutes, between 10 and 100."""
    rate = samples_per_second(config, size, device)
    if rate is None:
        return UNKNOWN
    return int(np.clip(SECONDS * rate / size.train, FEWEST, MOST))


def samples_per_second(config: TrainConfig, size: DataSize, device: str) -> float | None:
    """Estimated training speed: counted operations of a forward pass, times 3 for a step, at a typical speed.

    ``None`` for networks outside the package, which are not built twice.
    """
    if config.network not in models.names():
        return None
    image = len(size.shape) == 3 and config.network != "mlp"
    channels, side = (size.shape[0], min(size.shape[1:])) if image else (int(np.prod(size.shape)), 1)
    with torch.device("meta"):
        network = models.available()[config.network].factory(
            num_classes=size.classes, in_channels=channels, image_size=side
        )
        counter = FlopCounterMode(display=False)
        with counter, torch.no_grad():
            network.eval()(torch.zeros(1, *size.shape))
    cores = 1 if is_small(config, size.shape) else os.cpu_count() or 1
    return (PER_GPU if device == "cuda" else PER_CORE * cores) / (3 * max(counter.get_total_flops(), 10_000))


def add_recommendation(config: TrainConfig, given: set[str]) -> TrainConfig:
    """The configuration with the recommended values, except for the fields that were given."""
    values, reason = recommend({name: getattr(config, name) for name in given - {"choice"}})
    return dataclasses.replace(config, **{k: v for k, v in values.items() if k not in given}, choice=reason)


def keep_choices(jobs: Sequence[Job], given: set[str]) -> None:
    """Keep network and number of epochs of recommended runs that exist already, perhaps from another machine.

    Args:
        jobs: The runs, changed in place.
        given: Fields that the command names; these are not taken from the run.
    """
    for job in jobs:
        if job.config.choice and (job.out / CONFIG).exists() and (stored := RunFolder(job.out).config()).choice:
            kept = {name: getattr(stored, name) for name in ("network", "epochs") if name not in given}
            job.config = dataclasses.replace(job.config, **kept, choice=stored.choice)


def _explain(values: dict[str, Any], size: DataSize, device: str) -> str:
    config = TrainConfig(**values)
    what = "images" if len(size.shape) == 3 else "samples"
    why = f"{size.validation:,} of them for validation"
    if config.method == "label-smoothing":
        why += f", too few to weigh epochs (vista-light needs {WEIGHABLE})"
    pixels = f" at up to {size.shape[1]} px" if len(size.shape) == 3 else ""
    rate = samples_per_second(config, size, device)
    minutes = "" if rate is None else f", {_minutes(config.epochs * size.train / rate)} by estimate"
    return (
        f"auto chose {config.method} for {size.train + size.validation:,} {what}, {why}; {config.network}{pixels} "
        f"on {'a GPU' if device == 'cuda' else 'the CPU'}; {config.epochs} epochs{minutes}"
    )


def _minutes(seconds: float) -> str:
    if seconds < 90:
        return "about a minute or less"
    return f"about {round(seconds / 60)} minutes" if seconds < 5400 else f"about {seconds / 3600:.1f} hours"
