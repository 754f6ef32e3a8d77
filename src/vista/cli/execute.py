"""Runs as the command line makes them: over all processes of ``torchrun``, shown, and followed by TensorBoard."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from rich.table import Table

from vista.cli import terminal
from vista.cli.arguments import Output
from vista.cli.decoding_progress import decoding_shown
from vista.cli.removal import Replaced, put_back_left_aside
from vista.cli.scalars import Scalars
from vista.core import collectives
from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.training import distributed
from vista.training.events import Event, Finished, Interrupted, Started, closed_output_detected
from vista.training.resolve import device_name
from vista.training.scheduler import Job, on_gpu, run_jobs
from vista.training.workers import at_once_on_cpu, run_jobs_in_processes

REPORTED = {"top1": "accuracy %", "top5": "top-5 %", "nll": "NLL", "ece": "ECE %", "aurc": "AURC %"}
OF_WEIGHTS = [
    *(f"{which}.epoch" for which in ("best", "last")),
    *(f"{which}.{part}.{name}" for which in ("best", "last") for part in ("val", "test") for name in REPORTED),
]
SHOWN, OF_NETWORK = ["deviation_gap.val_given", *OF_WEIGHTS], [f"network.{place}" for place in OF_WEIGHTS]


def execute(
    jobs: list[Job],
    output: Output,
    at_once: int | None = None,
    finished: Callable[[Job], None] = lambda _job: None,
) -> None:
    """Make the runs; each job then holds its metrics or its error. A signal is raised as ``Interrupted``.

    ``finished`` hears of each run that is done, while others may still go on.
    """
    first = distributed.is_first_process()
    for job in jobs:
        job.config = dataclasses.replace(job.config, device=distributed.own_device(job.config.device))
    with ExitStack() as stack:
        scalars = stack.enter_context(Scalars()) if output.tensorboard and first else None
        stack.enter_context(distributed.process_group(device_name(jobs[0].config.device)))
        put_back_left_aside(jobs)
        replaced = stack.enter_context(Replaced(jobs)) if output.fresh else None
        shown = terminal.display(jobs, quiet=output.quiet or not first, json=output.json)
        stack.enter_context(shown)
        if first and not output.quiet:
            stack.enter_context(decoding_shown(shown.progress if isinstance(shown, terminal.Live) else None))

        def show(job: Job, event: Event) -> None:
            if scalars is not None:
                scalars(job, event)
            if replaced is not None and isinstance(event, Started):
                replaced.began(job)
            if first and isinstance(event, Finished) and event.role is None:
                finished(job)
            with closed_output_detected():  # last: where nobody does, all else is done
                shown(job, event)

        try:
            _drive(jobs, show, at_once)
        except Interrupted as error:  # maybe in a run that another one needed first: it is told by its own name
            raise Interrupted(jobs[0].out, error.signal) from error


def _drive(jobs: list[Job], show: Callable[[Job, Event], None], at_once: int | None) -> None:
    """On a card in one process, on the CPU in as many as there are runs side by side."""
    if collectives.active():
        run_jobs(jobs, show, 1)
    elif on_gpu(jobs):
        run_jobs(jobs, show, at_once)
    elif (beside := min(len(jobs), at_once or at_once_on_cpu(jobs))) > 1:
        run_jobs_in_processes(jobs, show, beside)
    else:
        run_jobs(jobs, show, 1)


def print_result(folder: RunFolder, config: TrainConfig, metrics: dict[str, Any], as_json: bool) -> None:
    """What a run came to."""
    if not distributed.is_first_process():
        return
    folder.check_metrics(metrics, [*SHOWN, *(OF_NETWORK if "network" in metrics else ())])
    taken = folder.seconds()
    if as_json:
        print(json.dumps({"run": str(folder.path), "config": config.to_json(), "metrics": metrics, "seconds": taken}))
        return
    out = terminal.console()
    out.print(report_table(f"{config.method} on {config.data}, noise {config.noise}, seed {config.seed}", metrics))
    gap = f"mean deviation gap {100 * metrics['deviation_gap']['val_given']:.2f} % (given validation labels)"
    most = metrics.get("anchors_max")
    anchors = f", at most {most} anchor{'' if most == 1 else 's'}" if most is not None else ""
    time = f", {terminal.duration(taken)} of training" if taken else ""  # a restored run has forgotten it
    out.print(f"{gap}{anchors}{time}", soft_wrap=True)
    out.print(f"saved in {folder.path}", soft_wrap=True)


def report_table(title: str, metrics: dict[str, Any]) -> Table:
    """Metrics of the best-validation and the last weights, on validation and test; first of what was fused."""
    table = Table(title=title, title_justify="left")
    table.add_column("weights, samples", overflow="fold")
    for name in REPORTED.values():
        table.add_column(name, justify="right", overflow="fold")
    alone = metrics.get("network", metrics)
    reports = {f"{which} (epoch {alone[which]['epoch']})": alone[which] for which in ("best", "last") if which in alone}
    if "network" in metrics:
        reports = {"fused": metrics["last"]} | reports
    for name, report in reports.items():
        for part in ("val", "test"):
            cells = [f"{report[part][k]:.4f}" if k == "nll" else f"{100 * report[part][k]:.2f}" for k in REPORTED]
            table.add_row(f"{name}, {part}", *cells)
    return table
