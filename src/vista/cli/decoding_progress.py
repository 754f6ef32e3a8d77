"""Progress of decoding photos, on stderr or as a line of the live display."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from vista.cli import terminal
from vista.data import pixel_file


@contextmanager
def decoding_shown(live: Progress | None = None) -> Iterator[None]:
    """Show how many photos are decoded while the body runs: a bar on a terminal, otherwise a line every few seconds.

    Args:
        live: A running progress display to add the bar to.
    """
    own = None
    if live is None and sys.stderr.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        own = live = Progress(*columns, console=terminal.console(sys.stderr), transient=True)
        own.start()
    before, pixel_file.on_progress = pixel_file.on_progress, _Bar(live) if live is not None else _Lines()
    try:
        yield
    finally:
        pixel_file.on_progress = before
        if own is not None:
            own.stop()


class _Bar:
    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.task: TaskID | None = None

    def __call__(self, done: int, total: int) -> None:
        if self.task is None:
            self.task = self.progress.add_task("decoding photos", total=total, position="", images=True)
        self.progress.update(self.task, completed=done, position=f"{done:,} of {total:,}")
        if done == total:
            self.progress.remove_task(self.task)
            self.task = None


class _Lines:
    def __init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() - self.last >= terminal.SECONDS_BETWEEN_LINES:
            self.last = time.monotonic()
            terminal.say(f"decoding photos: {done:,} of {total:,}", sys.stderr)
