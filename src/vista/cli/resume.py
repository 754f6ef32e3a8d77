"""``vista resume runs/digits-none-vista-seed0``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vista.cli import terminal
from vista.cli.arguments import Output, parse
from vista.cli.execute import execute, print_result
from vista.runs.folder import CONFIG, RunFolder, replaced_path
from vista.training import distributed
from vista.training.api import result_of
from vista.training.network import check_code_is_trusted
from vista.training.replace import describe_set_aside
from vista.training.scheduler import Job


@dataclass(frozen=True)
class Resume:
    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Run folder."""
    root: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder that contains the data sets, if it has moved."""
    device: Annotated[str | None, tyro.conf.arg(metavar="DEVICE", help_behavior_hint="")] = None
    """Another device: cpu, cuda, cuda:1 ...; on another kind of device the random draws differ from there on."""
    checkpoint_dir: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """The run's --checkpoint-dir, if it has moved."""
    network: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """The run's network, required for custom code (package.module:function), which runs only if you name it."""
    quiet: bool = False
    """Print the result only."""
    json: bool = False
    """Print one JSON object to stdout; progress goes to stderr."""


def run(argv: list[str]) -> int:
    flags = parse(Resume, argv, "resume", "Resume a run from its newest checkpoint, as if it had never stopped.")
    _mention_replaced_run(RunFolder(Path(flags.run)))
    folder = RunFolder.open(flags.run)
    config, output = folder.config(), Output(quiet=flags.quiet, json=flags.json)
    given = {name: getattr(flags, name) for name in ("root", "device", "checkpoint_dir")}
    changes = {name: value for name, value in given.items() if value is not None}
    job = Job(dataclasses.replace(config, **changes), folder.path)
    if folder.is_finished():
        metrics = folder.metrics()
        if not (flags.json or flags.quiet) and distributed.is_first_process():
            terminal.say(f"{folder.path} has already finished")
        print_result(folder, config, metrics, output)
        return 0
    check_code_is_trusted(config, flags.network)
    execute([job], output)
    print_result(folder, config, result_of(job).metrics, output)
    return 0


def _mention_replaced_run(folder: RunFolder) -> None:
    """Report a run that is missing because a killed ``--fresh`` has set it aside."""
    aside = replaced_path(folder.path)
    if (aside / CONFIG).is_file() and not (folder.path / CONFIG).exists():
        raise FileNotFoundError(describe_set_aside(aside))
