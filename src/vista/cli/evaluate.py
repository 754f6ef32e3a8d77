"""``vista evaluate runs/digits-none-vista-seed0 --which best``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from vista.cli import terminal
from vista.cli.arguments import parse
from vista.cli.execute import SHOWN, note_fusion, report_table
from vista.runs.config import check_device
from vista.runs.folder import RunFolder, Which
from vista.training.evaluate import evaluate


@dataclass(frozen=True)
class Evaluate:
    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run."""
    which: Literal["both", "best", "last"] = "both"
    """Weights of the best-validation epoch, of the last, or both."""
    network: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """The run's network, required for custom code (package.module:function), which runs only if you name it."""
    root: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder that contains the data sets, if it has moved."""
    device: str = "auto"
    """cpu, cuda, cuda:1 ...; auto selects CUDA if it is available."""
    json: bool = False
    """Print one JSON object to stdout."""


def run(argv: list[str]) -> int:
    flags = parse(
        Evaluate, argv, "evaluate", "Recompute the metrics of a run's saved weights on its validation and test samples."
    )
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
    out.print(report_table(config, found, len(folder.data().classes)))
    terminal.say_next("vista", "report", folder.path, "--open")
    return 0
