"""``vista resume runs/digits-none-vista-seed0``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated

import tyro

from vista.cli import terminal
from vista.cli.arguments import Output, parse
from vista.cli.execute import execute, print_result
from vista.runs.folder import RunFolder
from vista.training import distributed
from vista.training.network import check_code_is_trusted
from vista.training.scheduler import Job

HELP = "go on with a run that was stopped"


@dataclass(frozen=True)
class Resume:
    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""
    root: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder that holds the data sets, if it is another one now."""
    device: str | None = None
    """Another device than before: cpu, cuda, cuda:1 ...; on one of another kind random draws go on anew."""
    checkpoint_dir: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """The run's --checkpoint-dir, if it was moved."""
    network: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The run's network, where it is one of your own (package.module:function): its code runs only if you name it."""
    quiet: bool = False
    """Print the result only."""
    json: bool = False
    """Print one JSON object to stdout; progress goes to stderr."""


def run(argv: list[str]) -> int:
    flags = parse(Resume, argv, "resume", "Go on with a run from its newest checkpoint, as if it had never stopped.")
    folder = RunFolder.open(flags.run)
    config = folder.config()
    given = {name: getattr(flags, name) for name in ("root", "device", "checkpoint_dir")}
    changes = {name: value for name, value in given.items() if value is not None}
    job = Job(dataclasses.replace(config, **changes), folder.path)
    if folder.is_finished():
        metrics = folder.metrics()
        if not (flags.json or flags.quiet) and distributed.is_first_process():
            terminal.say(f"{folder.path} has finished: there is nothing left to do")
        print_result(folder, config, metrics, flags.json)
        return 0
    check_code_is_trusted(config, flags.network)
    execute([job], Output(quiet=flags.quiet, json=flags.json))
    if job.error is not None:
        raise job.error
    assert job.metrics is not None
    print_result(folder, config, job.metrics, flags.json)
    return 0
