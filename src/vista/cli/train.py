"""``vista train --data digits --noise symmetric:0.4 --method vista --tau 0.01``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from vista.cli.arguments import (
    Output,
    Preset,
    TrainingFlags,
    method_flags,
    method_name,
    parse,
    peek,
    place_name,
    preset_values,
    train_config,
)
from vista.cli.execute import execute, print_result
from vista.methods import choose
from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.training.resolve import choose_method, resolve
from vista.training.scheduler import Job

HELP = "train one network, or go on with a run that was stopped"
ABOUT = """Train one network. Stopped by Ctrl-C, the same command goes on where it was.

Options of the method are flags too: `vista train --method elr --help` shows those of ELR."""


@dataclass(frozen=True)
class RunFlags(Output):
    """Where a run lies and which protocol it follows."""

    preset: Preset = "auto"
    """Values for all options not given: auto takes digits for the digits, otherwise the paper's clean or noisy."""
    out: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder of the run; runs/DATA-NOISE-METHOD-seedSEED if not given."""


def run(argv: list[str]) -> int:
    flags, config = read(argv)
    chosen = choose_method(config)
    name = f"{place_name(config.data, config.noise)}-{method_name(chosen)}-seed{config.seed}"
    job = Job(config, Path(flags.out or Path("runs") / name).expanduser())
    execute([job], flags)
    if job.error is not None:
        raise job.error
    assert job.metrics is not None
    print_result(RunFolder(job.out), resolve(config).config, job.metrics, flags.json)
    return 0


def read(argv: list[str]) -> tuple[RunFlags, TrainConfig]:
    """Options of the run, of the training and of its method."""
    chosen = choose(peek(argv, "method", TrainConfig.method))
    own = method_flags(chosen)
    group = chosen.method.name.replace("-", "_")
    training = TrainingFlags(**preset_values(argv))
    fields: list[Any] = [
        ("run", RunFlags, RunFlags()),
        ("training", TrainingFlags, training),
        (group, type(own), dataclasses.field(default=own)),
    ]
    read: Any = parse(dataclasses.make_dataclass("Train", fields), argv, "train", ABOUT)
    config = train_config(read.training, method=chosen.name, options=dataclasses.asdict(getattr(read, group)))
    return read.run, dataclasses.replace(config, options=choose_method(config).options)
