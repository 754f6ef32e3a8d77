"""Execute one or several runs in one process; on a GPU they interleave, each on its own CUDA stream.

On the CPU, concurrent runs use one process each: see ``workers.py``.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from vista.core import collectives
from vista.runs.config import TrainConfig
from vista.training.events import Event, Finished, Interrupted, OutputClosed, Stop, Waiting
from vista.training.loop import train
from vista.training.memory import OutOfMemory
from vista.training.resolve import device_name

RUNS_PER_GPU = 5
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@dataclass
class Job:
    """A run to execute, and its result: metrics or an error."""

    config: TrainConfig
    out: Path
    metrics: dict[str, Any] | None = None
    error: Exception | None = None

    def __post_init__(self) -> None:
        self.out = Path(self.out)


def run_jobs(jobs: list[Job], show: Callable[[Job, Event], None], at_once: int | None = None) -> None:
    """Execute all jobs, at most ``at_once`` concurrently. A failed job keeps its error; the others continue.

    With several processes per run, the first failure is raised instead: the other ranks are still inside that run, and
    would mix up its messages with those of the next one. A signal stops all runs, each with a checkpoint, and is
    raised as :class:`Interrupted`; :class:`OutputClosed` from ``show`` is treated as SIGPIPE.

    Args:
        jobs: The runs.
        show: Called with each progress event.
        at_once: Concurrent runs; by default 5 on a GPU and 1 on the CPU.
    """
    limit = at_once or (RUNS_PER_GPU if on_gpu(jobs) else 1)
    waiting = deque(jobs)
    with stop_on_signals() as stop, deterministic(any(job.config.deterministic for job in jobs)):
        runs = Interleaved(show, stop)
        while runs.jobs or (waiting and not stop.signal):
            while waiting and len(runs.jobs) < min(limit, runs.most) and not stop.signal:
                runs.start(waiting.popleft())
            runs.advance()
    if runs.interrupted is not None:
        raise runs.interrupted
    if waiting:  # the signal arrived when the last running job had no step left
        raise Interrupted(waiting[0].out, stop.signal)


class Interleaved:
    """Runs that take turns in this process.

    A run that needs more GPU memory than the others leave it is postponed: when one of them has ended, it resumes from
    its last checkpoint, and ``most`` limits the runs from then on.

    Args:
        show: Called with each progress event.
        stop: Its ``signal`` requests a checkpoint of every run; the first of them is then kept in ``interrupted``.
    """

    def __init__(self, show: Callable[[Job, Event], None], stop: Stop) -> None:
        self.show, self.stop = show, stop
        self.running = deque[tuple[Job, Iterator[Event]]]()
        self.postponed = deque[Job]()
        self.most = sys.maxsize
        self.interrupted: Interrupted | None = None

    @property
    def jobs(self) -> list[Job]:
        """The runs that have not ended."""
        return [*(job for job, _ in self.running), *self.postponed]

    def start(self, job: Job) -> None:
        """Add a run, which starts with the next :meth:`advance`."""
        self.running.append((job, train(job.config, job.out, self.stop)))

    def advance(self) -> None:
        """Advance each run by one event; one that ends leaves, and its job holds the metrics or the error."""
        if self.stop.signal and self.postponed:
            self.interrupted = self.interrupted or Interrupted(self.postponed[0].out, self.stop.signal)
            self.postponed.clear()
        while self.postponed and len(self.running) < self.most:
            self.start(self.postponed.popleft())
        for _ in range(len(self.running)):
            job, events = self.running.popleft()
            try:
                event = _next_event(events, alone=len(self.running) == 0)
            except StopIteration:
                continue
            except Interrupted as error:
                self.interrupted = self.interrupted or error
                continue
            except Exception as error:
                lacks_memory = isinstance(error, OutOfMemory | torch.OutOfMemoryError)
                if lacks_memory and self.running and not collectives.active():
                    self._postpone(job)
                else:
                    job.error = error
                    if collectives.active():
                        raise
                _drop_frames(error)
                continue
            if isinstance(event, Finished) and event.role is None:
                job.metrics = event.metrics
            show_or_stop(self.show, job, event, self.stop)
            self.running.append((job, events))

    def _postpone(self, job: Job) -> None:
        self.most = len(self.running)
        self.postponed.append(job)
        warnings.warn(
            f"the GPU has too little memory for {self.most + 1} runs at once: {job.out} resumes from its last "
            f"checkpoint when another run has ended; from now on at most {self.most} train at once",
            stacklevel=3,
        )


def show_or_stop(show: Callable[[Job, Event], None], job: Job, event: Event, stop: Stop) -> None:
    """Show an event. If the output was closed, request a stop, so that a checkpoint is taken first."""
    try:
        show(job, event)
    except OutputClosed:
        stop.signal = stop.signal or signal.SIGPIPE


def _drop_frames(error: BaseException | None) -> None:
    """Remove the tracebacks of an error and its causes: they would keep the failed run's tensors alive."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _next_event(events: Iterator[Event], alone: bool) -> Event:
    """The next event; a run that has the GPU to itself blocks until the GPU is done."""
    event = next(events)
    while alone and isinstance(event, Waiting):
        event.event.synchronize()
        event = next(events)
    return event


def on_gpu(jobs: list[Job]) -> bool:
    """Whether any of the jobs trains on a GPU."""
    return any(device_name(job.config.device).startswith("cuda") for job in jobs)


# ---------------------------------------------------------------- settings of the process


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Request a checkpoint and a stop on Ctrl-C, on SIGTERM, when the terminal closes, and on SIGUSR1 and SIGUSR2.

    Clusters send the latter two before they pre-empt a job. A second Ctrl-C stops immediately.
    """
    stop = Stop()

    def request(number: int, _frame: FrameType | None) -> None:
        if stop.signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.signal = number

    with handle_signals(STOP_SIGNALS, request):
        yield stop


@contextmanager
def handle_signals(numbers: Sequence[int], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Install ``handler`` for these signals; possible in the main thread only, elsewhere nothing changes.

    Signals that the process ignores, as under `nohup`, stay ignored. SIGINT is an exception: a worker ignores it only
    between two runs.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heeded = [n for n in numbers if n == signal.SIGINT or signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Use only kernels that give the same bits every time, or else the fastest ones, found by benchmarking."""
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
