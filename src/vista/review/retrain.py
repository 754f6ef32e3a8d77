"""The commands that turn decisions into labels and train again with the settings of the run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from vista.files import shell
from vista.runs.config import TrainConfig, preset, preset_name
from vista.runs.folder import RunFolder
from vista.training.resolve import choose_method

LABELS = "labels.csv"
LEFT_OUT = ("options", "noise", "noise_seed", "labels", "split_from", "fold", "device", "precision")
NO_FLAGS = ("method_version", "clean_validation", "choice")  # of `vista train`: the code and `auto` decide them
CHOSEN = ("network", "epochs", "batch_size", "lr")  # by `auto` for custom data, so that leaving one out may change it


def corrected_run(folder: RunFolder) -> Path:
    """The folder of the run on corrected labels: beside the first, with a name that is free."""
    for suffix in ("-corrected", *(f"-corrected-{number}" for number in range(2, 1000))):
        path = folder.path.with_name(f"{folder.path.resolve().name}{suffix}")
        if not path.exists():
            return path
    return folder.path.with_name(f"{folder.path.resolve().name}-corrected")


def train_command(
    folder: RunFolder, labels: str | Path | None, out: Path | None = None, data: str | None = None
) -> str:
    """The command that trains as the run did, on the labels of a file and with the run's split.

    Args:
        folder: The run.
        labels: The label file; None for the labels of the data.
        out: Folder of the new run; by default beside the run.
        data: The data; by default those of the run.
    """
    config = folder.config()
    words = ["vista", "train", "--data", data or config.data, *_settings(config)]
    words += [] if labels is None else ["--labels", str(labels)]
    words += ["--split-from", str(folder.path)]
    return shell.command(*words, "--out", out or corrected_run(folder))


def commands(folder: RunFolder, decisions: Path) -> list[str]:
    """What follows a review: write the labels, train on them, compare both runs."""
    out = corrected_run(folder)
    return [
        shell.command("vista", "labels", folder.path, "--decisions", decisions, "--clean", LABELS),
        train_command(folder, LABELS, out),
        shell.command("vista", "compare", folder.path, out),
    ]


def _settings(config: TrainConfig) -> list[str]:
    """Options in which the run differs from the defaults for its data, or that `auto` might choose differently."""
    usual = TrainConfig(**preset("auto", config.data, optimizer=config.optimizer))
    is_chosen = preset_name("auto", config.data) == "recommended"
    words = []
    for item in dataclasses.fields(TrainConfig):
        value = getattr(config, item.name)
        if item.name in ("data", "method", *LEFT_OUT, *NO_FLAGS):
            continue
        if value == getattr(usual, item.name) and not (is_chosen and item.name in CHOSEN):
            continue
        words += _option(item.name, value, can_be_none=item.default is None)
    chosen = choose_method(config)
    default = dataclasses.asdict(chosen.method.Config(**chosen.method.variants.get(chosen.name, {})))
    changed = [f"{key}={value}" for key, value in chosen.options.items() if value != default[key]]
    named = ":".join([chosen.name, *changed])
    return words if named == TrainConfig.method and not is_chosen else ["--method", named, *words]


def _option(name: str, value: Any, can_be_none: bool) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool) and not can_be_none:
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(value)]
