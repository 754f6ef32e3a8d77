"""Drive several trainings side by side on the CPU, in processes: one process has one interpreter.

Each worker takes one run after the other and tells what happened through a pipe. A worker whose pipe is gone, because
the parent was killed, takes a checkpoint and ends; one that dies takes only its own run with it.
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

import torch

from vista.data import source
from vista.runs.config import TrainConfig
from vista.training.build import is_small
from vista.training.events import Event, Finished, Interrupted, Stop, closed_output_detected
from vista.training.scheduler import Job, on_gpu, run_jobs, show_or_stop, stop_on_signals
from vista.training.state import cpu_threads

SECONDS_BETWEEN_LOOKS = 0.2  # for a signal that the workers have not heard of


@dataclass
class Worker:
    """A process, our end of its pipe, the run it is at, and whether it has had one before."""

    process: SpawnProcess
    pipe: Connection
    job: Job | None = None
    is_tried: bool = False


@dataclass(frozen=True)
class Warned:
    """A warning, to be given again where people see it."""

    text: str
    category: type[Warning]
    file: str
    line: int


@dataclass(frozen=True)
class Over:
    """The last word of a run: why it failed, if it did, or by which signal it was stopped."""

    error: Exception | None
    signal: int = 0


def at_once_on_cpu(jobs: list[Job]) -> int:
    """Default number of concurrent runs: one per core if a single thread is fastest for every run, else 1."""
    if len(jobs) == 1 or on_gpu(jobs) or not all(_fits_one_core(job.config) for job in jobs):
        return 1
    return min(len(jobs), cores())


def _fits_one_core(config: TrainConfig) -> bool:
    try:
        return is_small(config, _sample_shape(config.data, config.root, config.own_validation))
    except (OSError, ValueError):  # the run itself reports what is wrong with its data
        return False


@lru_cache(maxsize=8)
def _sample_shape(data: str, root: str | None, own_validation: bool) -> tuple[int, ...]:
    return source.load(data, root, own_validation).inputs.shape[1:]


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_jobs_in_processes(jobs: list[Job], show: Callable[[Job, Event], None], at_once: int) -> None:
    """As :func:`vista.training.scheduler.run_jobs`, in ``at_once`` processes."""
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
                    if not _hear(worker, show, stop):
                        workers.remove(worker)
        finally:
            for worker in workers:
                worker.pipe.close()  # no more work: it ends
            for worker in workers:
                worker.process.join()
    if stop.signal and any(job.metrics is None and job.error is None for job in jobs):
        raise Interrupted(jobs[0].out, stop.signal)


def _free(workers: list[Worker], at_once: int, share: int) -> Worker | None:
    """A worker without a run, a new one if need be; ``None`` if all are busy."""
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
    """A worker begins deaf to Ctrl-C, which would meet it half imported; what comes meanwhile reaches us afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # left to the first worker, its start would let Ctrl-C through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _gave(worker: Worker, job: Job) -> bool:
    """Send the run to the worker, unless it has died since its last one: then another takes it.

    That a new one is dead already is heard later, and is the run's failure: others would end like it.
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
    """Ctrl-C reaches every process of a terminal, other signals reach only us; a second SIGTERM does no harm."""
    for worker in workers:
        with suppress(ProcessLookupError):
            os.kill(worker.process.pid or 0, signal.SIGTERM)


def _hear(worker: Worker, show: Callable[[Job, Event], None], stop: Stop) -> bool:
    """Take a word from the worker; whether it still lives. When all are to stop, its end is no failure."""
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
    return RuntimeError(f"its process {how}: the same command goes on from the last checkpoint")


# ---------------------------------------------------------------- in the worker


def _work(pipe: Connection, share: int) -> None:
    """One run after the other, until the parent has no more, or is gone."""

    def warn(text: Warning | str, category: type[Warning], file: str, line: int, *_: object) -> None:
        pipe.send(Warned(str(text), category, file, line))

    def tell(_job: Job, event: Event) -> None:
        with closed_output_detected():
            pipe.send(event)

    warnings.showwarning = warn  # type: ignore[assignment]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # between two runs; while one trains, it stops that
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
            pipe.send(Over(job.error and _portable(job.error), number))


def _portable(error: Exception) -> Exception:
    """The error, if it survives the pipe; else its kind and its words."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301, made here a moment ago
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
