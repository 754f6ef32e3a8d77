"""Drive one or several trainings in one process, side by side on one card, each a stream of its own.

On the CPU runs go side by side in processes: see ``processes.py``.
"""

from __future__ import annotations

import math
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from vista import exchange
from vista.data import source
from vista.training import run_folder
from vista.training.config import TrainConfig
from vista.training.events import Event, Finished, Interrupted, NobodyReads, Stop, Waiting
from vista.training.loop import train
from vista.training.run_folder import RunFolder
from vista.training.signals import handled

AT_ONCE_ON_A_CARD = 5
SMALL_BATCH = 2**14  # numbers in a batch of inputs


@dataclass
class Job:
    """A run to be made, and how it ended."""

    config: TrainConfig
    out: Path
    metrics: dict[str, Any] | None = None
    error: Exception | None = None

    def __post_init__(self) -> None:
        self.out = Path(self.out)


def drive(jobs: list[Job], show: Callable[[Job, Event], None], at_once: int | None = None) -> None:
    """Run all jobs, at most ``at_once`` side by side. One that fails keeps its error and does not stop the others.

    Of several processes one that fails stops here, and raises what it was: the others are still in that run, and would
    take what this one sends in the next for a part of it. A signal stops them all, each with a checkpoint in place, and
    is raised as :class:`Interrupted`; so does :class:`NobodyReads` out of ``show``, as SIGPIPE.
    """
    limit = at_once or (AT_ONCE_ON_A_CARD if on_card(jobs) else 1)
    waiting, running = deque(jobs), deque[tuple[Job, Iterator[Event]]]()
    interrupted: Interrupted | None = None
    exact = any(job.config.deterministic for job in jobs)
    with stop_on_signals() as stop, deterministic(exact):
        while running or (waiting and not stop.signal):
            while waiting and len(running) < limit and not stop.signal:
                job = waiting.popleft()
                running.append((job, _events(job, stop)))
            for _ in range(len(running)):
                job, events = running.popleft()
                try:
                    event = _next_event(events, alone=len(running) == 0)
                except StopIteration:
                    continue
                except Interrupted as error:
                    interrupted = error
                    continue
                except Exception as error:
                    job.error = error
                    if exchange.active():
                        raise
                    _forget_frames(error)
                    continue
                if isinstance(event, Finished) and event.role is None:
                    job.metrics = event.metrics
                show_or_stop(show, job, event, stop)
                running.append((job, events))
    if interrupted is None and waiting:  # the signal came when the last running job had no step left to stop at
        interrupted = Interrupted(waiting[0].out, stop.signal)
    if interrupted is not None:
        raise interrupted


def show_or_stop(show: Callable[[Job, Event], None], job: Job, event: Event, stop: Stop) -> None:
    """Show it; where nobody reads it any more, the wish to stop is all that follows: there is a checkpoint to take."""
    try:
        show(job, event)
    except NobodyReads:
        stop.signal = stop.signal or signal.SIGPIPE


def _events(job: Job, stop: Stop) -> Iterator[Event]:
    """What happens in the run, on the CPU with the threads that suit it: they decide the last bits of its result."""
    count = None if on_card([job]) else suited_threads(job)
    events = train(job.config, job.out, stop)
    while True:
        with threads(count):
            event = next(events, None)
        if event is None:
            return
        yield event


def _forget_frames(error: BaseException | None) -> None:
    """Take the tracebacks off an error and what led to it: they would keep the failed run's tensors alive."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _next_event(events: Iterator[Event], alone: bool) -> Event:
    """The next thing that happened; a run that has the card to itself may wait for it."""
    event = next(events)
    while alone and isinstance(event, Waiting):
        event.event.synchronize()
        event = next(events)
    return event


def on_card(jobs: list[Job]) -> bool:
    return any(job.config.resolved().device.startswith("cuda") for job in jobs)


def suited_threads(job: Job) -> int | None:
    """CPU threads for the run: what it began with, so that it ends with the same bytes; ``None`` if all are welcome."""
    began = job.out / run_folder.ENVIRONMENT
    if began.exists():
        threads = RunFolder(job.out).environment().get("threads")
        return threads if isinstance(threads, int) else None
    return 1 if is_small(job.config) else None


def is_small(config: TrainConfig) -> bool:
    """Whether sharing a batch out among threads costs more than it saves: two took thrice as long on the digits."""
    try:
        return config.batch_size * _sample_size(config.data, config.root, config.own_validation) < SMALL_BATCH
    except (OSError, ValueError):  # the run itself says what is wrong
        return False


@lru_cache(maxsize=8)
def _sample_size(data: str, root: str | None, own_validation: bool) -> int:
    """Numbers in a sample; the data set is read for it, so once is enough."""
    return math.prod(source.load(data, root, own_validation).inputs.shape[1:])


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """So many threads for an operation on the CPU; ``None`` leaves what is."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Ctrl-C, SIGTERM and the end of the terminal ask for a checkpoint; a second Ctrl-C stops at once."""
    stop = Stop()

    def ask(number: int, _frame: FrameType | None) -> None:
        if stop.signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.signal = number

    with handled((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), ask):
        yield stop


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Only kernels that give the same bits every time; otherwise the fastest, found by trying."""
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    enabled, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark = torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(wanted)
    torch.backends.cudnn.benchmark = not wanted
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=warns)
        torch.backends.cudnn.benchmark = benchmark
