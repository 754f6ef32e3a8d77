"""Execute runs for a command: show their progress, write TensorBoard scalars, print their results."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.table import Table

from vista.cli import cluster_display, terminal
from vista.cli.arguments import Output
from vista.cli.decoding_progress import decoding_shown
from vista.core.calibration import SMALLEST
from vista.methods import Method, available
from vista.runs.config import TrainConfig
from vista.runs.folder import TENSORBOARD, RunFolder, Which
from vista.training import distributed
from vista.training.api import execute_jobs
from vista.training.events import EpochEnded, Event, Finished, Started, closed_output_detected
from vista.training.resolve import choose_method
from vista.training.scheduler import Job

REPORTED = {"top1": "accuracy %", "top5": "top-5 %", "nll": "NLL", "ece": "ECE %", "aurc": "AURC %"}
_WEIGHTS = [
    *(f"{which}.epoch" for which in ("best", "last")),
    *(f"{which}.{part}.{name}" for which in ("best", "last") for part in ("val", "test") for name in REPORTED),
]
SHOWN, _SHOWN_OF_NETWORK = ["deviation_gap.val_given", *_WEIGHTS], [f"network.{path}" for path in _WEIGHTS]


def execute(
    jobs: list[Job],
    output: Output,
    at_once: int | None = None,
    finished: Callable[[Job], None] = lambda _job: None,
    on: str | None = None,
) -> None:
    """Execute the runs as :func:`vista.training.api.execute_jobs` does, and show their progress.

    Args:
        jobs: The runs; each then holds its metrics or its error.
        output: What to show, and whether to replace existing runs.
        at_once: Concurrent runs.
        finished: Called with each run that finishes, while others may still be training.
        on: The cluster to execute them on; by default this machine.
    """
    first = distributed.is_first_process()
    with ExitStack() as stack:
        scalars = stack.enter_context(Scalars()) if output.tensorboard and first else None
        kind = terminal.display if on is None else cluster_display.display
        display = stack.enter_context(kind(jobs, quiet=output.quiet or not first, json=output.json))
        if first and not output.quiet and on is None:
            stack.enter_context(decoding_shown(display.progress if isinstance(display, terminal.Live) else None))

        def on_event(job: Job, event: Event) -> None:
            if scalars is not None:
                scalars(job, event)
            if first and isinstance(event, Finished) and event.role is None:
                finished(job)
            with closed_output_detected():  # last, so that nothing else is skipped when the output was closed
                display(job, event)

        execute_jobs(jobs, on_event, at_once, fresh=output.fresh, on=on)


class Scalars:
    """Write the numbers of each epoch for TensorBoard; a repeated epoch of a resumed run replaces the old numbers."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError(
                "--tensorboard needs the package tensorboard: pip install 'vista-distill[tensorboard]'"
            ) from error
        self._open: Any = SummaryWriter
        self._writers: dict[Path, Any] = {}

    def __enter__(self) -> Scalars:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()

    def __call__(self, job: Job, event: Event) -> None:
        match event:
            case Started(role=None):
                self._writers[job.out] = self._open(str(event.folder / TENSORBOARD), purge_step=event.epoch)
            case EpochEnded() if job.out in self._writers:  # not for runs that this one needs first
                for name, value in event.line.items():
                    if isinstance(value, int | float) and name not in ("epoch", "best"):
                        self._writers[job.out].add_scalar(name, value, event.line["epoch"])
                self._writers[job.out].flush()
            case Finished(role=None) if job.out in self._writers:
                self._writers.pop(job.out).close()


def show_choice(config: TrainConfig, output: Output) -> None:
    """Print what ``auto`` chose, and why; to stderr where stdout is one JSON object."""
    if config.choice and not output.quiet and distributed.is_first_process():
        terminal.say(config.choice, sys.stderr if output.json else None)


# ---------------------------------------------------------------- results


def print_result(folder: RunFolder, config: TrainConfig, metrics: dict[str, Any], output: Output) -> None:
    """Print the result of a run, as a table or as JSON."""
    if not distributed.is_first_process():
        return
    calibrated = calibrated_reports(metrics)
    of_calibration = [
        *(f"calibration.{name}.{value}" for name in calibrated for value in ("temperature", "noise_rate")),
        *(f"{report}.calibrated.test.ece" for report in calibrated.values()),
    ]
    folder.check_metrics(metrics, [*SHOWN, *(_SHOWN_OF_NETWORK if "network" in metrics else ()), *of_calibration])
    seconds = folder.seconds()
    if output.json:
        print(json.dumps({"run": str(folder.path), "config": config.to_json(), "metrics": metrics, "seconds": seconds}))
        return
    out = terminal.console()
    out.print(report_table(config, metrics, len(folder.data().classes)))
    for line in calibration_lines(metrics):
        out.print(line)
    gap = f"mean deviation gap {100 * metrics['deviation_gap']['val_given']:.2f} % (given validation labels)"
    most = metrics.get("anchors_max")
    anchors = f", at most {most} anchor{'' if most == 1 else 's'}" if most is not None else ""
    time = f", {terminal.duration(seconds)} of training" if seconds else ""  # a restored run has no timings
    out.print(f"{gap}{anchors}{time}")
    out.print(f"Saved in {folder.path}", soft_wrap=True)
    if not output.quiet:
        terminal.say_next("vista", "report", folder.path, "--open")


def report_table(config: TrainConfig, metrics: dict[str, Any], classes: int) -> Table:
    """Metrics of the best-validation and the last weights on validation and test; those of fused predictions first.

    The top-5 accuracy is left out where all classes are in the top 5.
    """
    shown = {name: head for name, head in REPORTED.items() if name != "top5" or classes > 5}
    title = f"{config.method} on {config.data}, noise {config.noise}, seed {config.seed}"
    table = terminal.narrow_table(title, "weights, samples", shown.values())
    alone = metrics.get("network", metrics)
    reports = {f"{which} (epoch {alone[which]['epoch']})": alone[which] for which in ("best", "last") if which in alone}
    if "network" in metrics:
        reports = {"fused": metrics["last"]} | reports
    for name, report in reports.items():
        for part in ("val", "test"):
            cells = [f"{report[part][k]:.4f}" if k == "nll" else f"{100 * report[part][k]:.2f}" for k in shown]
            table.add_row(f"{name}, {part}", *cells)
    return table


def calibrated_reports(metrics: dict[str, Any]) -> dict[str, str]:
    """Keys of the reports that were calibrated, such as ``network.best``, by ``fused``, ``best`` and ``last``."""
    found = metrics.get("calibration")
    reports = {"best": "best", "last": "last"}
    if "network" in metrics:
        reports = {"fused": "last", "best": "network.best", "last": "network.last"}
    return {name: report for name, report in reports.items() if isinstance(found, dict) and found.get(name) is not None}


def calibration_lines(metrics: dict[str, Any]) -> list[str]:
    """A line per calibrated report: the test ECE before and after, temperature and estimated noise rate."""
    lines = []
    for name, keys in calibrated_reports(metrics).items():
        fit, report = metrics["calibration"][name], metrics
        for key in keys.split("."):
            report = report[key]
        before, after = (100 * one["test"]["ece"] for one in (report, report["calibrated"]))
        noise = f"{100 * fit['noise_rate']:.0f} % {fit.get('noise', 'symmetric')} noise"
        if fit.get("gain") == 0.0:
            lines.append(f"{name}: test ECE {before:.2f} %; held-out labels fit T = 1 best ({noise})")
        else:
            lines.append(
                f"{name} calibrated: test ECE {before:.2f} -> {after:.2f} % (T = {fit['temperature']:.2f}, {noise})"
            )
    return lines


def calibration_to_apply(folder: RunFolder, which: Which, raw: bool) -> float | None:
    """The temperature to divide logits by: ``None`` with ``--raw``, or, noted on stderr, for a run without one."""
    temperature = None if raw else folder.temperature(which)
    if temperature is None and not raw:
        note_missing_calibration(folder)
    return temperature


def note_missing_calibration(folder: RunFolder) -> None:
    """Note on stderr that the run has no calibration, and why."""
    count = folder.data().samples.get("val")
    if not folder.is_finished():
        why = "it has not finished"
    elif count is None or "calibration" not in folder.metrics():
        why = "it is a run of an earlier version"
    elif count < SMALLEST:
        why = f"it has {count} validation labels, and {SMALLEST} are needed (a larger --validation, or more data)"
    else:
        why = f"no temperature can be fitted to its {count} validation labels"
    terminal.say(
        f"vista: note: {folder.path} has no calibration: {why}; the network's own logits are used, as with --raw",
        sys.stderr,
    )


def note_fusion(config: TrainConfig) -> None:
    """Note on stderr that the run reported fused predictions of several epochs, and that this is one network."""
    if config.method not in available():
        return  # a custom method that is not registered here
    if choose_method(config).method.fused_predictions is not Method.fused_predictions:
        terminal.say(
            f"vista: note: {config.method} fuses the predictions of several epochs; this is the network alone",
            sys.stderr,
        )
