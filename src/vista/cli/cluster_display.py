"""Progress of a grid on a cluster: a line per GPU, the totals, and the nodes that were lost."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from rich.live import Live
from rich.text import Text

from vista.cli import terminal
from vista.cli.terminal import Display, RunProgress, visible
from vista.training.events import EpochEnded, Event, Finished, Lost, Placed, Started
from vista.training.scheduler import Job

SECONDS_BETWEEN_REPORTS = 30.0


class GridDisplay(Display):
    """Print a line when a run starts, ends or is lost, and a report to stderr every half minute."""

    def __init__(self, jobs: list[Job], out: TextIO) -> None:
        super().__init__(jobs)
        self.out = out
        self.places: dict[Path, tuple[str, str]] = {}
        self.lost: list[str] = []
        self.last_report = time.monotonic()

    def __call__(self, job: Job, event: Event) -> None:
        match event:
            case Placed():
                self.places[job.out] = (event.host, event.device)
            case Lost():
                self.places.pop(job.out, None)
                self.running.pop(job.out, None)
                if event.host not in self.lost:
                    self.lost.append(event.host)
                self.say(f"{event.host} ({event.device}) was lost, {event.reason}: {job.out.name} returns to the queue")
            case _:
                super().__call__(job, event)
        self.report()

    def say(self, text: str, style: str = "") -> None:
        terminal.say(text, self.out)

    def started(self, job: Job, run: RunProgress, event: Started) -> None:
        verb = "starts" if event.epoch == 1 else f"resumes at epoch {event.epoch}"
        self.say(f"{run.name} {verb} on {self.place(job)}")

    def ended(self, job: Job, run: RunProgress, event: EpochEnded) -> None:
        run.reach(event.line["epoch"], run.samples)

    def finished(self, job: Job, event: Finished) -> None:
        if event.role is None:
            best, last = (100 * event.metrics[which]["test"]["top1"] for which in ("best", "last"))
            self.say(f"{job.out.name} finished on {self.place(job)}: best epoch {best:.2f} %, last {last:.2f} %")
            self.places.pop(job.out, None)

    def place(self, job: Job) -> str:
        host, device = self.places.get(job.out, ("another node", ""))
        return f"{host} ({device})" if device else host

    def report(self) -> None:
        """Print the lines from time to time."""
        if time.monotonic() - self.last_report >= SECONDS_BETWEEN_REPORTS:
            self.last_report = time.monotonic()
            for line in self.lines():
                terminal.say(line, sys.stderr)

    def lines(self) -> list[str]:
        """A line for each GPU, and one for all."""
        failed = [job for job in self.jobs if job.error is not None]
        for job in failed:
            self.places.pop(job.out, None)
            self.running.pop(job.out, None)
        found: dict[tuple[str, str], list[Path]] = {}
        for out, place in self.places.items():
            found.setdefault(place, []).append(out)
        lines = []
        for host, device in sorted(found):
            outs = found[host, device]
            speed = sum(self.running[out].speed for out in outs if out in self.running)
            runs = ", ".join(self.position(out) for out in outs)
            lines.append(f"{host}  {device}  {runs}" + (f"  {speed:,.0f} images/s" if speed else ""))
        return [*lines, self.total(len(failed))]

    def position(self, out: Path) -> str:
        run = self.running.get(out)
        return f"{run.name} {run.epoch}/{run.epochs}" if run else f"{out.name} starting"

    def total(self, failed: int) -> str:
        """Runs and epochs done, speed, hours left, failures and lost nodes."""
        over = [job for job in self.jobs if job.metrics is not None or job.error is not None]
        epochs = sum(job.config.epochs for job in self.jobs)
        done = sum(job.config.epochs for job in over)
        partly = sum(run.done / run.samples for run in self.running.values())
        speed = sum(run.speed for run in self.running.values())
        text = f"{len(over)} of {len(self.jobs)} runs, {done + partly:.0f} of {epochs} epochs"
        if speed:
            left = epochs - done - partly
            samples = max(run.samples for run in self.running.values())
            text += f", {speed:,.0f} images/s, {terminal.duration(left * samples / speed)} left"
        text += f"; {failed} failed" if failed else ""
        return text + (f"; lost: {', '.join(self.lost)}" if self.lost else "")


class LiveGrid(GridDisplay):
    """Show the lines below the messages, and refresh them."""

    def __init__(self, jobs: list[Job], out: TextIO) -> None:
        super().__init__(jobs, out)
        self.live = Live(
            get_renderable=lambda: Text(visible("\n".join(self.lines()))),
            console=terminal.console(out),
            transient=True,
            refresh_per_second=2,
        )

    def __enter__(self) -> LiveGrid:
        self.live.start()
        return self

    def __exit__(self, *ending: Any) -> None:
        with suppress(OSError):  # the terminal may be closed
            self.live.stop()

    def say(self, text: str, style: str = "") -> None:
        self.live.console.print(Text(visible(text), style=style), soft_wrap=True)

    def report(self) -> None:
        """Print nothing: the live display refreshes its lines."""


def display(jobs: list[Job], *, quiet: bool, json: bool) -> Display:
    """The display for the output: live on a terminal, plain lines elsewhere, nothing if ``quiet``."""
    if quiet:
        return Display(jobs)
    out = sys.stderr if json else sys.stdout
    kind: Callable[[list[Job], TextIO], Display] = LiveGrid if out.isatty() else GridDisplay
    return kind(jobs, out)
