"""Terminal output: text, tables, and the progress of runs with one row per epoch.

On a terminal, progress is live and the best epoch so far is coloured. Elsewhere rows are plain text, and progress goes
to stderr every few seconds.
"""

from __future__ import annotations

import errno
import os
import sys
import textwrap
import time
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from vista.files import shell
from vista.training.events import EpochEnded, Event, Finished, Started, Stepped
from vista.training.scheduler import Job

SECONDS_BETWEEN_LINES = 5.0
SECONDS_OF_PACE = 60.0  # speed is measured over the last minute: it changes after compilation and with other runs
WIDTH_WITHOUT_TERMINAL = 120
HEADER = f"{'epoch':>5}  {'lr':>8}  {'loss':>7}  {'val acc':>7}  {'test acc':>8}"
TEACHER_HEADER = f"{HEADER}  {'beta':>5}  {'anchors':>7}"
RECONSTRUCTED = "† reconstructed from a description: the source gives no formula or code"
NO_BREAK = "\u00a0"
UNLIMITED = 10_000  # columns: wider than any table
TEXT_DIRECTION = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # characters that reverse text


def visible(text: str) -> str:
    """Text from files or paths with control characters escaped, so that it cannot control the terminal."""
    return "".join(c if c == "\n" or not _is_control(c) else c.encode("unicode_escape").decode() for c in text)


def _is_control(c: str) -> bool:
    return c in TEXT_DIRECTION or unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")


def say(text: str, file: TextIO | None = None, end: str = "\n") -> None:
    """Print a line of text."""
    print(visible(text), file=file or sys.stdout, end=end, flush=True)


def say_next(*words: str | Path) -> None:
    """Print the command that usually comes next, quoted for a shell."""
    say(f"Next: {shell.command(*words)}")


class PlainConsole(Console):
    """A console without markup and emoji that escapes control characters."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)

    def on_broken_pipe(self) -> None:
        """Raise, where rich would end the process with the exit code of a failure."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def console(file: TextIO | None = None) -> Console:
    """A console for tables, as wide as the terminal, or of a fixed width if the output is not a terminal."""
    out = file or sys.stdout
    fixed = None if out.isatty() or os.environ.get("COLUMNS") else WIDTH_WITHOUT_TERMINAL
    return PlainConsole(file=out, width=fixed, markup=False, emoji=False, highlight=False, soft_wrap=False)


def fits(out: Console, table: Table) -> bool:
    """Whether the table fits the console without breaking a cell."""
    return Measurement.get(out, out.options.update(max_width=UNLIMITED), table).maximum <= out.width


def narrow_table(title: str, first: str, numbers: Iterable[str]) -> Table:
    """A table with a column of text and columns of numbers, whose words and numbers are whole at 60 columns."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column(first, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", min_width=max(6, *map(len, name.split())))
    return table


def print_rows(
    out: Console, names: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = (), title: str = ""
) -> None:
    """Print a table if it fits the console, otherwise one paragraph per row: no word or number is broken.

    Args:
        out: The console.
        names: The column names; the first column identifies a row.
        rows: The cells.
        right: Columns to align to the right.
        title: A line above the table.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(name, justify="right" if name in right else "left")
    for row in rows:
        table.add_row(*row)
    if title:
        out.print(title, soft_wrap=True)
    if fits(out, table):
        out.print(table)
        return
    for first, *others in rows:
        out.print(first, soft_wrap=True)
        values = [
            f"{name} {value}".replace(" ", NO_BREAK) for name, value in zip(names[1:], others, strict=True) if value
        ]
        lines = textwrap.wrap(visible(", ".join(values)), out.width - 2, break_long_words=False, break_on_hyphens=False)
        for line in lines:
            out.print(f"  {line.replace(NO_BREAK, ' ')}", soft_wrap=True)


def epoch_row(line: dict[str, Any]) -> str:
    """An epoch as a row below its header; a star marks the best validation accuracy so far."""
    row = (
        f"{line['epoch']:>5}  {line['lr']:>8.3g}  {line['train_loss']:>7.4f}  {100 * line['val_accuracy']:>7.2f}  "
        f"{100 * line['test_accuracy']:>8.2f}"
    )
    if has_teacher(line):
        row += f"  {line['beta']:>5.3f}  {line['anchors']:>7}"
    return f"{row}{' *' if line['best'] else ''}"


def has_teacher(line: dict[str, Any]) -> bool:
    """Whether an epoch has the columns of a method with a teacher."""
    return "beta" in line and "anchors" in line


def duration(seconds: float) -> str:
    """``1:02:03`` or ``2:03``."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


@dataclass
class RunProgress:
    """The progress of a run."""

    name: str
    epochs: int
    samples: int  # per epoch
    epoch: int
    done: int
    marks: deque[tuple[float, int]] = field(default_factory=deque)  # recent (time, samples done)

    @property
    def total(self) -> int:
        return self.epochs * self.samples

    def reach(self, epoch: int, samples: int) -> None:
        """Record that ``samples`` of this epoch are done."""
        self.epoch, self.done = epoch, (epoch - 1) * self.samples + samples
        now = time.monotonic()
        self.marks.append((now, self.done))
        while now - self.marks[0][0] > SECONDS_OF_PACE:
            self.marks.popleft()

    @property
    def speed(self) -> float:
        """Images per second; 0 until it can be estimated."""
        if len(self.marks) < 2:
            return 0.0
        (began, before), (now, done) = self.marks[0], self.marks[-1]
        return (done - before) / max(now - began, 1e-9)

    @property
    def pace(self) -> str:
        """Images per second and the time left, as text; empty until they can be estimated."""
        speed = self.speed
        if not speed:
            return ""
        return f", {speed:,.0f} images/s, {duration((self.total - self.done) / speed)} left"


class Display:
    """Follow runs without printing anything, for ``--quiet``; base class of the other displays."""

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs = jobs
        self.running: dict[Path, RunProgress] = {}
        self.width = max(len(job.out.name) for job in jobs) if len(jobs) > 1 else 0

    def __enter__(self) -> Display:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Nothing to clean up."""

    def __call__(self, job: Job, event: Event) -> None:
        """Handle an event."""
        match event:
            case Started():
                name = self.name(job, event.role)
                before = (event.epoch - 1) * event.samples
                run = RunProgress(name, event.config.epochs, event.samples, event.epoch, before)
                self.running[job.out] = run
                self.started(job, run, event)
            case Stepped() if job.out in self.running:
                run = self.running[job.out]
                run.reach(event.epoch, event.samples)
                self.stepped(job, run)
            case EpochEnded():
                self.ended(job, self.running[job.out], event)
            case Finished():
                if self.running.pop(job.out, None) is None:
                    self.say(f"{self.name(job, event.role)} has already finished: its results are reused")
                self.finished(job, event)

    def name(self, job: Job, role: str | None) -> str:
        return f"{job.out.name} ({role})" if role else job.out.name

    # ------------------------------------------------------------ overridden by other displays

    def say(self, text: str, style: str = "") -> None:
        """Print a line of text."""

    def started(self, job: Job, run: RunProgress, event: Started) -> None:
        """A run starts or resumes."""

    def stepped(self, job: Job, run: RunProgress) -> None:
        """A run has made progress."""

    def ended(self, job: Job, run: RunProgress, event: EpochEnded) -> None:
        """An epoch has ended."""

    def finished(self, job: Job, event: Finished) -> None:
        """A run has finished."""


class Rows(Display):
    """Print a row per epoch as plain text, and progress to stderr every few seconds."""

    def __init__(self, jobs: list[Job], out: TextIO) -> None:
        super().__init__(jobs)
        self.out = out
        self.header = ""  # as printed last
        self.last_progress = time.monotonic()

    def say(self, text: str, style: str = "") -> None:
        say(text, self.out)

    def started(self, job: Job, run: RunProgress, event: Started) -> None:
        verb = "starts" if event.epoch == 1 else f"resumes at epoch {event.epoch}"
        self.say(f"{run.name} {verb}: {event.samples:,} training samples, {run.epochs} epochs, in {event.folder}")

    def ended(self, job: Job, run: RunProgress, event: EpochEnded) -> None:
        header = TEACHER_HEADER if has_teacher(event.line) else HEADER
        if not self.header.startswith(header):
            self.header = header
            self.say(self.prefixed("", header), "bold")
        self.say(self.prefixed(run.name, epoch_row(event.line)), "bold green" if event.line["best"] else "")
        if "event" in event.line:
            self.say(self.prefixed(run.name, f"epoch {event.line['epoch']}: {event.line['event']}"))

    def prefixed(self, name: str, text: str) -> str:
        """The text after the run's name, if there are several runs."""
        return f"{name:<{self.width}}  {text}" if self.width else text

    def stepped(self, job: Job, run: RunProgress) -> None:
        if time.monotonic() - self.last_progress < SECONDS_BETWEEN_LINES:
            return
        self.last_progress = time.monotonic()
        say(f"{run.name}: epoch {run.epoch} of {run.epochs}{run.pace}", sys.stderr)


class Speed(ProgressColumn):
    """Images per second."""

    def render(self, task: Task) -> Text:
        speed = task.fields["images"] and (task.finished_speed or task.speed)
        return Text(f"{speed:,.0f} images/s" if speed else "", style="progress.data.speed", justify="right")


class Live(Rows):
    """Show a progress line per running run below the rows, and one for all runs together."""

    def __init__(self, jobs: list[Job], out: TextIO) -> None:
        super().__init__(jobs, out)
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[position]}"),
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
        self.whole = self.progress.add_task("all runs", total=epochs, position="", images=False) if several else None

    def __enter__(self) -> Live:
        self.progress.start()
        return self

    def __exit__(self, *ending: Any) -> None:
        with suppress(OSError):  # the terminal may be closed
            self.progress.stop()

    def say(self, text: str, style: str = "") -> None:
        self.progress.console.print(Text(visible(text), style=style), soft_wrap=True)

    def started(self, job: Job, run: RunProgress, event: Started) -> None:
        super().started(job, run, event)
        position = f"epoch {run.epoch}/{run.epochs}"
        line = self.progress.add_task(
            visible(run.name), total=run.total, completed=run.done, position=position, images=True
        )
        self.lines[job.out] = line
        self.show_whole()

    def stepped(self, job: Job, run: RunProgress) -> None:
        position = f"epoch {run.epoch}/{run.epochs}"
        self.progress.update(self.lines[job.out], completed=run.done, position=position)
        self.show_whole()

    def finished(self, job: Job, event: Finished) -> None:
        if job.out in self.lines:
            self.progress.remove_task(self.lines.pop(job.out))
        self.show_whole()

    def show_whole(self) -> None:
        """Update the line for all runs, in epochs, and remove the lines of failed runs."""
        for job in self.jobs:
            if job.error is not None and job.out in self.lines:
                self.progress.remove_task(self.lines.pop(job.out))
        if self.whole is None:
            return
        over = [job for job in self.jobs if job.metrics is not None or job.error is not None]
        done = float(sum(job.config.epochs for job in over))
        done += sum(run.done / run.samples for out, run in self.running.items() if out in self.lines)
        self.progress.update(self.whole, completed=done, position=f"{len(over)}/{len(self.jobs)} runs")


def display(jobs: list[Job], *, quiet: bool, json: bool) -> Display:
    """The display for the output: live on a terminal, plain rows elsewhere, nothing if ``quiet``."""
    if quiet:
        return Display(jobs)
    out = sys.stderr if json else sys.stdout
    kind: Callable[[list[Job], TextIO], Display] = Live if out.isatty() else Rows
    return kind(jobs, out)
