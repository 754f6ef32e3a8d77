"""``vista train --data digits --noise symmetric:0.4 --method vista --tau 0.01``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from vista.cli import dry_run
from vista.cli.arguments import (
    Output,
    Preset,
    given_fields,
    method_flags,
    parse,
    peek,
    train_config,
    training_flags,
)
from vista.cli.execute import execute, print_result, show_choice
from vista.methods import choose
from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.training.api import new_job, result_of
from vista.training.recommend import complete, keep_choices
from vista.training.resolve import choose_method

ABOUT = """Train one network. After Ctrl-C the same command resumes the run.

The options of the method are flags too: `vista train --method elr --help` shows those of ELR."""


@dataclass(frozen=True)
class RunFlags(Output):
    """Run folder, preset and output."""

    preset: Preset = "auto"
    """Defaults of the other options. auto is recommended for custom data, digits for the digits, otherwise clean or
    noisy by --noise; paper is clean or noisy with 2 % of the samples for validation."""
    out: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Run folder; default: runs/DATA-NOISE-METHOD-seedSEED."""
    dry_run: bool = False
    """Print what the run needs here and on 8 x 8 GPUs (memory, disk, network, time), and train nothing."""


def run(argv: list[str]) -> int:
    flags, config = read(argv)
    given = given_fields(argv)
    if "method" in given or config.options != choose(TrainConfig.method).options:  # its options choose a method
        given |= {"method", "options"}
    config = complete(config, flags.preset, given)
    job = new_job(dataclasses.replace(config, options=choose_method(config).options), flags.out)
    if not flags.fresh:
        keep_choices([job], given)
    show_choice(job.config, flags)
    if flags.dry_run:
        return dry_run.show(job.config, job.out, flags.json, [word for word in argv if word != "--dry-run"])
    execute([job], flags)
    result = result_of(job)
    print_result(RunFolder(result.folder), result.config, result.metrics, flags)
    return 0


def read(argv: list[str]) -> tuple[RunFlags, TrainConfig]:
    """Options of the run, of the training and of its method, before anything is chosen for the data."""
    chosen = choose(peek(argv, "method", TrainConfig.method))
    own = method_flags(chosen)
    group = chosen.method.name.replace("-", "_")
    fields: list[Any] = [
        *training_flags(argv),
        (group, type(own), dataclasses.field(default=own)),
        ("run", RunFlags, RunFlags()),
    ]
    read: Any = parse(dataclasses.make_dataclass("Train", fields), argv, "train", ABOUT)
    config = train_config(read, method=chosen.name, options=dataclasses.asdict(getattr(read, group)))
    return read.run, dataclasses.replace(config, options=choose_method(config).options)
