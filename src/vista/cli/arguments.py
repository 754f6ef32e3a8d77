"""Options from dataclasses: those of a training, with the preset's values as defaults, and the method's own."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from vista.methods import Chosen
from vista.runs.config import PRESETS, TrainConfig, preset

Preset = Literal["auto", "digits", "clean", "noisy"]
T = TypeVar("T")


@dataclass(frozen=True)
class TrainingFlags(TrainConfig):
    """Data and their noise, network, optimiser, machine."""

    options: Annotated[dict[str, Any], tyro.conf.Suppress, tyro.conf.Fixed] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Nothing: values are checked once they are all known, not flag by flag; see :func:`train_config`."""


@dataclass(frozen=True)
class SharedFlags(TrainingFlags):
    """What several runs that differ in method and seed have in common."""

    method: Annotated[str, tyro.conf.Suppress, tyro.conf.Fixed] = "vista"
    seed: Annotated[int, tyro.conf.Suppress, tyro.conf.Fixed] = 0


@dataclass(frozen=True)
class Output:
    """What is said and written on the way."""

    quiet: bool = False
    """Print the result only."""
    json: bool = False
    """Print one JSON object to stdout; progress goes to stderr."""
    fresh: bool = False
    """Replace runs that lie in the same place, instead of going on with them; an old one goes once the new one runs."""
    tensorboard: bool = False
    """Write scalars per epoch for TensorBoard, to the folder tensorboard/ of each run."""


def parse(kind: type[T], argv: Sequence[str], command: str, about: str, default: T | None = None) -> T:
    """Read ``argv`` into the dataclass; help and bad options end here, by SystemExit."""
    given: dict[str, Any] = {} if default is None else {"default": default}
    marks = (tyro.conf.OmitArgPrefixes,)
    read: T = tyro.cli(kind, args=list(argv), prog=f"vista {command}", description=about, config=marks, **given)
    return read


def peek(argv: Sequence[str], name: str, default: str) -> str:
    """The value of an option, before the options are known that depend on it."""
    value = default
    for place, word in enumerate(argv):
        if word == f"--{name}" and place + 1 < len(argv):
            value = argv[place + 1]
        elif word.startswith(f"--{name}="):
            value = word.partition("=")[2]
    return value


def preset_values(argv: Sequence[str]) -> dict[str, Any]:
    """The values of the preset that ``argv`` asks for or that suits its data and noise."""
    name = peek(argv, "preset", "auto")
    known = name if name in PRESETS else "auto"  # an unknown one is refused by the parser
    return preset(known, peek(argv, "data", TrainConfig.data), peek(argv, "noise", TrainConfig.noise))


def train_config(flags: TrainingFlags, **changes: Any) -> TrainConfig:
    """The checked configuration."""
    values = {f.name: getattr(flags, f.name) for f in dataclasses.fields(TrainConfig)}
    return TrainConfig(**{**values, **changes})


def method_flags(chosen: Chosen) -> Any:
    """The method's options as a dataclass of flags; a default that depends on another option is left open."""
    config = chosen.method.Config
    hints = typing.get_type_hints(config, include_extras=True)
    renamed = [
        (f.name, Annotated[hints[f.name], tyro.conf.arg(name=method_flag(chosen, f.name))], f)
        for f in dataclasses.fields(config)
        if method_flag(chosen, f.name) != f.name.replace("_", "-")
    ]
    unchecked = {"__post_init__": lambda self: None}  # the choice itself checks, with a message of our own
    kind = dataclasses.make_dataclass("MethodFlags", renamed, bases=(config,), frozen=True, namespace=unchecked)
    return kind(**chosen.given)


def method_flag(chosen: Chosen, option: str) -> str:
    """``tau``; an option that shares its name with one of the training gets the method's first: ``elr-momentum``."""
    taken = {f.name for kind in (TrainConfig, Output) for f in dataclasses.fields(kind)} | {"preset", "out"}
    flag = option.replace("_", "-")
    return f"{chosen.method.name}-{flag}" if option in taken else flag


def safe_name(text: str) -> str:
    """Text as part of a file name: letters, digits, dot, dash and underscore."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "x"


def place_name(data: str, noise: str) -> str:
    """``digits-symmetric-0.4``; of a path only the last part."""
    parts = []
    for text in (data, noise):
        kind, _, value = text.partition(":")
        parts.append(safe_name(f"{kind}-{Path(value).name}" if kind in ("folder", "npz", "file") else text))
    return "-".join(parts)


def method_name(chosen: Chosen) -> str:
    """``vista-tau0.01``: the method and those of its options that are not as its name says."""
    usual = dataclasses.asdict(chosen.method.Config(**chosen.method.variants.get(chosen.name, {})))
    changed = {key: value for key, value in chosen.options.items() if value != usual[key]}
    return safe_name("-".join([chosen.name, *(f"{key}{value}" for key, value in changed.items())]))
