"""``vista evaluate runs/digits-none-vista-seed0 --which best``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from vista.cli import terminal
from vista.cli.arguments import parse
from vista.cli.execute import SHOWN, report_table
from vista.cli.fusion_note import note_fusion
from vista.runs.config import check_device
from vista.runs.folder import RunFolder, Which
from vista.training.evaluate import evaluate

HELP = "compute the metrics of a run's saved weights again"


@dataclass(frozen=True)
class Evaluate:
    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run."""
    which: Literal["both", "best", "last"] = "both"
    """Weights of the best-validation epoch, of the last, or both."""
    network: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The run's network, where it is one of your own (package.module:function): its code runs only if you name it."""
    root: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder that holds the data sets, if it is another one now."""
    device: str = "auto"
    """cpu, cuda, cuda:1 ...; auto takes CUDA where there is one."""
    json: bool = False
    """Print one JSON object to stdout."""


def run(argv: list[str]) -> int:
    flags = parse(Evaluate, argv, "evaluate", "Compute a run's metrics on its validation and test samples again.")
    check_device(flags.device)
    folder = RunFolder.open(flags.run)
    config, finished = folder.config(), folder.metrics()
    folder.check_metrics(finished, SHOWN)
    chosen: tuple[Which, ...] = ("best", "last") if flags.which == "both" else (flags.which,)
    found: dict[str, Any] = {
        which: {"epoch": finished[which]["epoch"], **evaluate(folder, which, flags.root, flags.device, flags.network)}
        for which in chosen
    }
    note_fusion(config)
    if flags.json:
        print(json.dumps({"run": str(folder.path), **found}))
        return 0
    out = terminal.console()
    out.print(report_table(f"{config.method} on {config.data}, noise {config.noise}, seed {config.seed}", found))
    return 0
