"""Execute several runs concurrently on the CPU, in one process each.

A worker executes one run after another and sends its events through a pipe. If the parent is killed, the worker notices
the broken pipe, writes a checkpoint and exits; a worker that dies loses only its own run.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

import torch

from vista.data.decoding import cores
from vista.runs.config import TrainConfig
from vista.training.build import is_small
from vista.training.events import Event, Finished, Interrupted, Stop, closed_output_detected
from vista.training.samples import load_source
from vista.training.scheduler import Job, on_gpu, run_jobs, show_or_stop, stop_on_signals
from vista.training.state import cpu_threads

DATA_FIELDS = ("data", "root", "own_validation", "image_size", "skip_damaged")
SECONDS_BETWEEN_LOOKS = 0.2  # to forward a signal that only the parent received


@dataclass
class Worker:
    """A process, our end of its pipe, its current run, and whether it has completed one before."""

    process: SpawnProcess
    pipe: Connection
    job: Job | None = None
    is_tried: bool = False


@dataclass(frozen=True)
class Warned:
    """A warning of a worker, to be issued again in the parent."""

    text: str
    category: type[Warning]
    file: str
    line: int


@dataclass(frozen=True)
class Over:
    """A run has ended in a worker: the error if it failed, or the signal that stopped it."""

    error: Exception | None
    signal: int = 0


def at_once_on_cpu(jobs: list[Job]) -> int:
    """Default number of concurrent runs: one per core if a single thread is fastest for every run, else 1."""
    if len(jobs) == 1 or on_gpu(jobs) or not all(fits_one_core(job.config) for job in jobs):
        return 1
    return min(len(jobs), cores())


def fits_one_core(config: TrainConfig) -> bool:
    """Whether a single thread is fastest for a run on the CPU."""
    try:
        return is_small(config, _sample_shape(*(getattr(config, name) for name in DATA_FIELDS)))
    except (OSError, ValueError):  # the run itself reports what is wrong with its data
        return False


@lru_cache(maxsize=8)
def _sample_shape(*values: Any) -> tuple[int, ...]:
    config = TrainConfig(**dict(zip(DATA_FIELDS, values, strict=True)))
    return load_source(config, config.root).inputs.shape[1:]


def run_jobs_in_processes(jobs: list[Job], show: Callable[[Job, Event], None], at_once: int) -> None:
    """Like :func:`vista.training.scheduler.run_jobs`, in ``at_once`` processes."""
    share = max(1, torch.get_num_threads() // at_once)
    waiting, workers = deque(jobs), list[Worker]()
    forwarded = False
    with stop_on_signals() as stop:
        try:
            while any(worker.job for worker in workers) or (waiting and not stop.signal):
                while waiting and not stop.signal and (worker := _free(workers, at_once, share)):
                    if _gave(worker, waiting[0]):
                        waiting.popleft()
                    else:
                        workers.remove(worker)
                if stop.signal and not forwarded:
                    _forward(workers)
                    forwarded = True
                ready = wait([worker.pipe for worker in workers], SECONDS_BETWEEN_LOOKS)
                for worker in [worker for worker in workers if worker.pipe in ready]:
                    if not _receive(worker, show, stop):
                        workers.remove(worker)
        finally:
            for worker in workers:
                worker.pipe.close()  # the worker exits
            for worker in workers:
                worker.process.join()
    if stop.signal and any(job.metrics is None and job.error is None for job in jobs):
        raise Interrupted(jobs[0].out, stop.signal)


def _free(workers: list[Worker], at_once: int, share: int) -> Worker | None:
    """An idle worker, started if needed; ``None`` if all are busy."""
    for worker in workers:
        if worker.job is None:
            return worker
    if len(workers) == at_once:
        return None
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_work, args=(theirs, share), daemon=True)
    with _ctrl_c_held_back():
        process.start()
    theirs.close()
    workers.append(Worker(process, ours))
    return workers[-1]


@contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    """Block SIGINT while a worker starts, which would interrupt its imports; the parent receives it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # started by the first worker instead, it would unblock SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _gave(worker: Worker, job: Job) -> bool:
    """Send the run to the worker, unless it has died since its last run: then another worker takes it.

    The death of a new worker is noticed later and counts as the run's failure: other workers would die likewise.
    """
    try:
        worker.pipe.send(job)
    except (BrokenPipeError, ConnectionResetError):
        if worker.is_tried:
            worker.process.join()
            return False
    worker.job = job
    return True


def _forward(workers: list[Worker]) -> None:
    """SIGINT reaches every process of a terminal, other signals only the parent; a second SIGTERM is harmless."""
    for worker in workers:
        with suppress(ProcessLookupError):
            os.kill(worker.process.pid or 0, signal.SIGTERM)


def _receive(worker: Worker, show: Callable[[Job, Event], None], stop: Stop) -> bool:
    """Receive one message of a worker; returns whether it is alive. While stopping, its exit is not a failure."""
    job = worker.job
    try:
        said = worker.pipe.recv()
    except (EOFError, ConnectionResetError):
        worker.process.join()
        code = worker.process.exitcode or 0
        if job is not None and not stop.signal:
            job.error = _ended(f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}")
        return False
    assert job is not None
    if isinstance(said, Warned):
        warnings.warn_explicit(said.text, said.category, said.file, said.line)
        return True
    if isinstance(said, Over):
        job.error, worker.job, worker.is_tried = said.error, None, True
        if said.signal and not stop.signal:
            job.error = _ended(f"was stopped by signal {said.signal}")
        return True
    if isinstance(said, Finished) and said.role is None:
        job.metrics = said.metrics
    show_or_stop(show, job, said, stop)
    return True


def _ended(how: str) -> RuntimeError:
    return RuntimeError(f"its process {how}: the same command resumes from the last checkpoint")


# ---------------------------------------------------------------- in the worker


def _work(pipe: Connection, share: int) -> None:
    """Execute one run after another until the parent closes the pipe."""

    def warn(text: Warning | str, category: type[Warning], file: str, line: int, *_: object) -> None:
        pipe.send(Warned(str(text), category, file, line))

    def tell(_job: Job, event: Event) -> None:
        with closed_output_detected():
            pipe.send(event)

    warnings.showwarning = warn  # type: ignore[assignment]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # between two runs; during a run, run_jobs handles it
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    with suppress(EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        while True:
            job: Job = pipe.recv()
            number = 0
            try:
                with cpu_threads(share):
                    run_jobs([job], tell)
            except Interrupted as stopped:
                number = stopped.signal
            pipe.send(Over(job.error and portable(job.error), number))


def portable(error: Exception) -> Exception:
    """The error if it can be pickled, else a RuntimeError with its type and message."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301, made here a moment ago
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
