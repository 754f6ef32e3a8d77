"""What ``auto`` recommends for custom data: method, network and number of epochs, with the reason in one line.

Nothing is downloaded, timed or trained for it: the choice depends on the number and size of the samples, the network
and the device alone. It is stored in ``config.json``, and a resumed run takes it from there.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from vista import models
from vista.data import folder, source
from vista.runs import config as run_config
from vista.runs.config import TrainConfig
from vista.runs.folder import CONFIG, RunFolder
from vista.training.build import is_small
from vista.training.resolve import device_name, resolve_image_size
from vista.training.samples import load_source
from vista.training.scheduler import Job

WEIGHABLE = 200  # validation samples from which on the coverage of epochs is more than chance
SMALL = 5_000  # training samples up to which small batches are worth their time
SECONDS = 600  # that a training should take
PER_CORE, PER_GPU = 4e10, 2e13  # operations per second that a training reaches, on a CPU core and on a GPU
FEWEST, MOST = 10, 100  # epochs
UNKNOWN = 30  # epochs for a network whose operations are not counted, because it is custom code
# Pretrained weights need few, small steps: with the large ones of training from scratch they would be forgotten.
FINE_TUNING: dict[str, Any] = {
    **run_config.ADAMW, "optimizer": "adamw", "lr": 5e-4, "backbone_lr": 5e-5, "warmup_epochs": 1.0, "epochs": 10,
}  # fmt: skip
DEFAULT_SIZE = folder.PHOTO_SIZE
# Fields that differ between the defaults of today and those with which a run may have been trained.
CHOSEN = (
    "method", "network", "epochs", "batch_size", "optimizer", "lr", "backbone_lr", "weight_decay", "warmup_epochs",
    "lr_schedule", "restart_epochs",
)  # fmt: skip


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


def complete(config: TrainConfig, preset: str, given: Collection[str]) -> TrainConfig:
    """Choose what a preset leaves open: only ``recommended`` does, which ``auto`` is for custom data.

    Args:
        config: The configuration with the fields of the preset and those that were given.
        preset: The name of the preset.
        given: Names of the fields that were given. They are never changed.

    Returns:
        The configuration, with ``choice`` explaining in one line what was chosen.
    """
    if run_config.preset_name(preset, config.data) != "recommended":
        return config
    values, reason = recommend({name: getattr(config, name) for name in given if name != "choice"})
    if "method" in values:
        values["options"] = {}
    return dataclasses.replace(config, **values, choice=reason)


def recommend(fields: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The values of the preset ``recommended``, and the line that explains them.

    Args:
        fields: Fields of :class:`vista.runs.config.TrainConfig` that were given. They are not recommended, but the
            number of epochs depends on some of them.

    Returns:
        Fields for :class:`vista.runs.config.TrainConfig`, and one line of text.

    Example:
        >>> values, reason = recommend({"data": "digits", "device": "cpu", "epochs": 40})
        >>> values["method"], values["network"]
        ('label-smoothing', 'small-cnn')
        >>> reason.partition(" (")[0]
        'auto: 1,347 images, 135 of them for validation: label-smoothing'
    """
    size = measure(TrainConfig(**{**run_config.preset("recommended"), **fields}))
    small = size.train < SMALL
    device = device_name(fields.get("device", TrainConfig.device)).partition(":")[0]
    optimizer = fields.get("optimizer", TrainConfig.optimizer)
    values = {
        "lr": 0.05 if small else 0.1,
        **run_config.preset("recommended", optimizer=optimizer),
        "method": choose_method(size, is_text="text_column" in fields),
        "network": choose_network(size.shape, device),
        "batch_size": 32 if small else 64,
        **(FINE_TUNING if _fine_tunes(fields) else {}),
    }
    if "lr" in fields or fields.get("freeze") == "backbone":  # one rate for all that is trained
        values.pop("backbone_lr", None)
    if "warmup_epochs" in values and fields.get("epochs", FINE_TUNING["epochs"]) <= 3:
        del values["warmup_epochs"]
    values = {name: value for name, value in values.items() if name not in fields}
    if "epochs" not in {**fields, **values}:
        values["epochs"] = choose_epochs(TrainConfig(**{**values, **fields}), size, device)
    return values, _explain(values, TrainConfig(**{**values, **fields}), size, device)


def _fine_tunes(fields: dict[str, Any]) -> bool:
    """Whether pretrained weights are the start; SGD is left to those who ask for it."""
    pretrained = fields.get("pretrained", TrainConfig.pretrained) and models.is_backbone(fields.get("network", ""))
    return bool(pretrained and fields.get("optimizer", "adamw") == "adamw")


def measure(config: TrainConfig) -> DataSize:
    """Count the samples of a data set; a folder of images is listed, not decoded."""
    custom = source.path_of(config.data, config.root)
    if custom is not None and custom[0] == "folder":
        classes, train, own, has_test = folder.count(custom[1], config.own_validation)
        size = resolve_image_size(config) or DEFAULT_SIZE
        shape: tuple[int, ...] = (3, size, size)
    else:
        data = load_source(config, config.root)
        classes, train, has_test = data.num_classes, len(data.train_ids), True
        own = 0 if data.validation is None else len(data.validation)
        sample = data.inputs.shape[1:]
        shape = (sample[2], sample[0], sample[1]) if data.is_image else tuple(sample)
        if data.image_size is not None:  # crops of the stored squares
            shape = (sample[2], data.image_size, data.image_size)
    if not has_test:
        train = round(train * (1 - source.TEST_FRACTION))
    held_out = own or int(config.validation if config.validation >= 1 else np.ceil(config.validation * train))
    held_out = held_out if own else min(held_out, train - 1)  # more cannot be held out, which the split reports
    return DataSize(train if own else max(train - held_out, 1), held_out, shape, classes)


def choose_method(size: DataSize, is_text: bool = False) -> str:
    """Label smoothing for images and texts with a validation set too small to weigh epochs, otherwise vista-light.

    A network for tables memorises wrong labels so fast that even a poorly weighed teacher helps, and label smoothing
    does not: see results/noisy_table.json.
    """
    is_table = len(size.shape) != 3 and not is_text
    weighable = is_table or size.validation >= WEIGHABLE
    return "vista-light" if weighable else "label-smoothing"


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


def keep_choices(jobs: Sequence[Job], given: Collection[str]) -> None:
    """Keep what was chosen for the first of these runs that exists, perhaps on another machine or by other defaults.

    All runs of a comparison then train alike.

    Args:
        jobs: The runs, changed in place; ``choice`` then names what is kept.
        given: Fields that the command names; these are not taken from the run.
    """
    found = next((job.out for job in jobs if job.config.choice and (job.out / CONFIG).exists()), None)
    if found is None:
        return
    stored = RunFolder(found).config()
    kept = {name: getattr(stored, name) for name in CHOSEN if name not in given}
    if "method" in kept:
        kept["options"] = stored.options
    words = ", ".join(text for name, text in _in_words(stored).items() if name in kept and text != "auto")
    choice = f"auto: as in the run {found}: {words or 'all given'}"
    for job in jobs:
        job.config = dataclasses.replace(job.config, **kept, choice=choice)


def _in_words(config: TrainConfig) -> dict[str, str]:
    """What can be chosen, in words, by field."""
    slower = "" if config.backbone_lr is None else f" ({config.backbone_lr:g} for the pretrained layers)"
    return {
        "method": config.method,
        "network": config.network,
        "epochs": f"{config.epochs} epochs",
        "batch_size": f"batch size {config.batch_size}",
        **({"optimizer": "AdamW"} if config.optimizer == "adamw" else {}),
        "lr": f"learning rate {config.lr:g}{slower}",
    }


def _explain(values: dict[str, Any], config: TrainConfig, size: DataSize, device: str) -> str:
    """One line with the reasons of what was chosen; what was given is not repeated, and empty if all of it was."""
    is_image, where = len(size.shape) == 3, "a GPU" if device == "cuda" else "the CPU"
    rate = samples_per_second(config, size, device)
    time = "" if rate is None else f" ({_minutes(config.epochs * size.train / rate)} by estimate)"
    needs = f" (vista-light needs {WEIGHABLE} validation samples)" if config.method == "label-smoothing" else ""
    up_to = "up to " if config.image_size is None and config.data.startswith("folder:") else ""  # if all are smaller
    pixels = f" at {up_to}{min(size.shape[1:])} px" if is_image else ""
    words = _in_words(config)
    parts = {
        **words,
        "method": f"{words['method']}{needs}",
        "network": f"{words['network']}{pixels} for {where}",
        "epochs": f"{words['epochs']}{time}",
    }
    total, what = size.train + size.validation, "images" if is_image else "samples"
    chosen = ", ".join(text for name, text in parts.items() if name in values)
    return f"auto: {total:,} {what}, {size.validation:,} of them for validation: {chosen}" if chosen else ""


def _minutes(seconds: float) -> str:
    if seconds < 90:
        return "about a minute or less"
    return f"about {round(seconds / 60)} minutes" if seconds < 5400 else f"about {seconds / 3600:.1f} hours"
