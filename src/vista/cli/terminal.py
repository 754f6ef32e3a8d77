"""What a person sees of trainings in progress: a row per epoch, and how far each run is.

On a terminal progress is live and the best epoch so far in colour. Anywhere else rows are plain text, and progress goes
to stderr every few seconds.
"""

from __future__ import annotations

import errno
import os
import sys
import time
import unicodedata
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from vista.training.events import EpochEnded, Event, Finished, Started, Stepped
from vista.training.scheduler import Job

SECONDS_BETWEEN_LINES = 5.0
SECONDS_OF_PACE = 60.0  # a pace is that of the last minute: a run begins with compilation, and others come and go
WIDTH_WITHOUT_TERMINAL = 120
HEADER = f"{'epoch':>5}  {'lr':>8}  {'train loss':>10}  {'val acc':>7}  {'test acc':>8}  {'beta':>5}  {'anchors':>7}"


TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # these let text run the other way


def visible(text: str) -> str:
    """Text from outside (a path, the name of a class) as it may reach a terminal: what would command it is escaped."""
    return "".join(c if c == "\n" or not _commands(c) else c.encode("unicode_escape").decode() for c in text)


def _commands(c: str) -> bool:
    return c in TURNING or unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")


def say(text: str, file: TextIO | None = None, end: str = "\n") -> None:
    """Print a line of text."""
    print(visible(text), file=file or sys.stdout, end=end, flush=True)


class PlainConsole(Console):
    """Takes text as it is: square brackets are no markup, colons no emoji, and control characters are shown."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)

    def on_broken_pipe(self) -> None:
        """Leave it to whoever called: rich would end the process as if the command had failed."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def console(file: TextIO | None = None) -> Console:
    """Where tables go: as wide as the terminal, and of a fixed width where there is none."""
    out = file or sys.stdout
    fixed = None if out.isatty() or os.environ.get("COLUMNS") else WIDTH_WITHOUT_TERMINAL
    return PlainConsole(file=out, width=fixed, markup=False, emoji=False, highlight=False, soft_wrap=False)


def epoch_row(line: dict[str, Any]) -> str:
    """An epoch as a row under :data:`HEADER`; a star marks the best validation accuracy so far."""
    beta = f"{line['beta']:.3f}" if "beta" in line else ""
    return (
        f"{line['epoch']:>5}  {line['lr']:>8.4g}  {line['train_loss']:>10.4f}  {100 * line['val_accuracy']:>7.2f}  "
        f"{100 * line['test_accuracy']:>8.2f}  {beta:>5}  {line.get('anchors', ''):>7}{' *' if line['best'] else ''}"
    ).rstrip()


def duration(seconds: float) -> str:
    """``1:02:03`` or ``2:03``."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


@dataclass
class Way:
    """How far a run is."""

    name: str
    epochs: int
    samples: int  # per epoch
    epoch: int
    done: int
    marks: deque[tuple[float, int]] = field(default_factory=deque)  # when how many samples were done, lately

    @property
    def total(self) -> int:
        return self.epochs * self.samples

    def reach(self, epoch: int, samples: int) -> None:
        """The run is in this epoch, with so many of its samples done."""
        self.epoch, self.done = epoch, (epoch - 1) * self.samples + samples
        now = time.monotonic()
        self.marks.append((now, self.done))
        while now - self.marks[0][0] > SECONDS_OF_PACE:
            self.marks.popleft()

    @property
    def pace(self) -> str:
        """Images per second and what is left, as text; nothing as long as there is nothing to tell it by."""
        (began, before), (now, done) = self.marks[0], self.marks[-1]
        if done == before:
            return ""
        speed = (done - before) / max(now - began, 1e-9)
        return f", {speed:,.0f} images/s, {duration((self.total - done) / speed)} left"


class Display:
    """Follows runs and says nothing: what ``--quiet`` shows, and what the other displays are made from."""

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs = jobs
        self.ways: dict[Path, Way] = {}
        self.width = max(len(job.out.name) for job in jobs) if len(jobs) > 1 else 0

    def __enter__(self) -> Display:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Nothing to put away."""

    def __call__(self, job: Job, event: Event) -> None:
        """Take note of an event."""
        match event:
            case Started():
                name = self.name(job, event.role)
                before = (event.epoch - 1) * event.samples
                way = Way(name, event.config.epochs, event.samples, event.epoch, before)
                self.ways[job.out] = way
                self.started(job, way, event)
            case Stepped() if job.out in self.ways:
                way = self.ways[job.out]
                way.reach(event.epoch, event.samples)
                self.stepped(job, way)
            case EpochEnded():
                self.ended(job, self.ways[job.out], event)
            case Finished():
                if self.ways.pop(job.out, None) is None:
                    self.say(f"{self.name(job, event.role)} had finished before: its results are used")
                self.finished(job, event)

    def name(self, job: Job, role: str | None) -> str:
        return f"{job.out.name} ({role})" if role else job.out.name

    # ------------------------------------------------------------ what a display may show

    def say(self, text: str, style: str = "") -> None:
        """A line of text."""

    def started(self, job: Job, way: Way, event: Started) -> None:
        """A run begins or goes on."""

    def stepped(self, job: Job, way: Way) -> None:
        """A run has come further."""

    def ended(self, job: Job, way: Way, event: EpochEnded) -> None:
        """An epoch is over."""

    def finished(self, job: Job, event: Finished) -> None:
        """A run is over."""


class Rows(Display):
    """A row per epoch as plain text, and progress on stderr now and then."""

    def __init__(self, jobs: list[Job], out: TextIO) -> None:
        super().__init__(jobs)
        self.out = out
        self.has_header = False
        self.last_progress = time.monotonic()

    def say(self, text: str, style: str = "") -> None:
        say(text, self.out)

    def started(self, job: Job, way: Way, event: Started) -> None:
        fresh = "starts" if event.epoch == 1 else f"goes on at epoch {event.epoch}"
        self.say(f"{way.name} {fresh}: {event.samples:,} training samples, {way.epochs} epochs, in {event.folder}")
        if not self.has_header:
            self.say(self.prefixed("", HEADER), "bold")
            self.has_header = True

    def ended(self, job: Job, way: Way, event: EpochEnded) -> None:
        self.say(self.prefixed(way.name, epoch_row(event.line)), "bold green" if event.line["best"] else "")
        if "event" in event.line:
            self.say(self.prefixed(way.name, f"epoch {event.line['epoch']}: {event.line['event']}"))

    def prefixed(self, name: str, text: str) -> str:
        """Rows of several runs begin with the run's name."""
        return f"{name:<{self.width}}  {text}" if self.width else text

    def stepped(self, job: Job, way: Way) -> None:
        if time.monotonic() - self.last_progress < SECONDS_BETWEEN_LINES:
            return
        self.last_progress = time.monotonic()
        say(f"{way.name}: epoch {way.epoch} of {way.epochs}{way.pace}", sys.stderr)


class Speed(ProgressColumn):
    """Images per second."""

    def render(self, task: Task) -> Text:
        speed = task.fields["images"] and (task.finished_speed or task.speed)
        return Text(f"{speed:,.0f} images/s" if speed else "", style="progress.data.speed", justify="right")


class Live(Rows):
    """A line of progress per running run below the rows, and one for all of several runs."""

    def __init__(self, jobs: list[Job], out: TextIO) -> None:
        super().__init__(jobs, out)
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[place]}"),
            Speed(),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console(out),
            transient=True,
            refresh_per_second=5,
            speed_estimate_period=SECONDS_OF_PACE,
        )
        self.lines: dict[Path, Any] = {}
        epochs = sum(job.config.epochs for job in jobs)
        several = len(jobs) > 1
        self.whole = self.progress.add_task("all runs", total=epochs, place="", images=False) if several else None

    def __enter__(self) -> Live:
        self.progress.start()
        return self

    def __exit__(self, *ending: Any) -> None:
        with suppress(OSError):  # a terminal that is gone needs no tidying
            self.progress.stop()

    def say(self, text: str, style: str = "") -> None:
        self.progress.console.print(Text(visible(text), style=style), soft_wrap=True)

    def started(self, job: Job, way: Way, event: Started) -> None:
        super().started(job, way, event)
        place = f"epoch {way.epoch}/{way.epochs}"
        line = self.progress.add_task(visible(way.name), total=way.total, completed=way.done, place=place, images=True)
        self.lines[job.out] = line
        self.show_whole()

    def stepped(self, job: Job, way: Way) -> None:
        place = f"epoch {way.epoch}/{way.epochs}"
        self.progress.update(self.lines[job.out], completed=way.done, place=place)
        self.show_whole()

    def finished(self, job: Job, event: Finished) -> None:
        if job.out in self.lines:
            self.progress.remove_task(self.lines.pop(job.out))
        self.show_whole()

    def show_whole(self) -> None:
        """All runs together, in epochs; a run that failed leaves the picture."""
        for job in self.jobs:
            if job.error is not None and job.out in self.lines:
                self.progress.remove_task(self.lines.pop(job.out))
        if self.whole is None:
            return
        over = [job for job in self.jobs if job.metrics is not None or job.error is not None]
        done = float(sum(job.config.epochs for job in over))
        done += sum(w.done / w.samples for out, w in self.ways.items() if out in self.lines)
        self.progress.update(self.whole, completed=done, place=f"{len(over)}/{len(self.jobs)} runs")


def display(jobs: list[Job], *, quiet: bool, json: bool) -> Display:
    """What suits the place: live on a terminal, plain rows elsewhere, nothing if so wished."""
    if quiet:
        return Display(jobs)
    out = sys.stderr if json else sys.stdout
    kind: Callable[[list[Job], TextIO], Display] = Live if out.isatty() else Rows
    return kind(jobs, out)
