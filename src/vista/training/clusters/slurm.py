"""A grid on SLURM through submitit: an array of tasks with a bundle of runs each, and a driver that follows them.

A task appends its events to a file in the folder ``slurm`` beside the runs, and the driver reads it. At the time limit
SLURM sends SIGUSR2: every run writes a checkpoint, the task is requeued, and its runs resume. Other options of sbatch
come from its environment variables, such as ``SBATCH_ACCOUNT`` and ``SBATCH_TIMELIMIT``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vista.files import atomic
from vista.runs.folder import RunFolder
from vista.training.clusters import nodes
from vista.training.clusters.nodes import MOST_LOSSES, SECONDS_BETWEEN_ATTEMPTS, SECONDS_UNTIL_UNLOCKED, Grid, Node
from vista.training.events import EpochEnded, Event, Finished, Interrupted, Lost, Placed, Started, Stepped, Stop
from vista.training.scheduler import Job, run_jobs, show_or_stop, stop_on_signals
from vista.training.state import cpu_threads

FOLDER, TASKS = "slurm", "tasks.json"
MINUTES = 240  # of a task, unless SBATCH_TIMELIMIT says otherwise; then it is requeued
SECONDS_FOR_CHECKPOINTS = 120  # before the time limit
SECONDS_BETWEEN_STEPS = 1.0
SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_BETWEEN_STATES = 30.0
SECONDS_TO_STOP = 60.0
RUNNING_STATES = ("PENDING", "RUNNING", "REQUEUED", "RESIZING", "SUSPENDED", "CONFIGURING", "COMPLETING", "UNKNOWN")
REQUEUED_BY = (signal.SIGUSR1, signal.SIGUSR2)


# ---------------------------------------------------------------- in a task


@dataclass
class Bundle:
    """The runs of one task; submitit calls it on a node, and again when the task was requeued."""

    grid: Grid
    name: str
    jobs: list[tuple[int, Job]]
    at_once: int
    events: Path
    _steps: dict[int, float] = field(default_factory=dict)

    def __call__(self) -> None:
        nodes.enter(self.grid)
        try:
            node = nodes.inspect(self.grid)
            self._note(-1, "Node", **asdict(node))
            nodes.check(node, self.grid, [])
            with cpu_threads(int(os.environ.get("SLURM_CPUS_PER_TASK", "1"))):
                self._run([Job(job.config, job.out) for _, job in self.jobs])
        except Interrupted as stopped:
            self._note(-1, "Stopped", signal=int(stopped.signal))
            if stopped.signal in REQUEUED_BY:
                import submitit

                os.kill(os.getpid(), submitit.JobEnvironment()._usr_sig())  # its handler requeues the task
                time.sleep(SECONDS_TO_STOP)
        except Exception as error:
            self._note(-1, "Failed", message=str(error))
        else:
            self._note(-1, "Done")

    def checkpoint(self) -> Any:
        """What submitit requeues: the same runs, which resume from their checkpoints."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)

    def _run(self, jobs: list[Job]) -> None:
        """Execute the runs; one that an ending process still holds is tried again."""
        place = {"host": socket.gethostname(), "device": self._device()}
        numbers = {job.out: number for (number, _), job in zip(self.jobs, jobs, strict=True)}
        until, remaining = time.monotonic() + SECONDS_UNTIL_UNLOCKED, jobs

        def show(job: Job, event: Event) -> None:
            number = numbers[job.out]
            match event:
                case Started():
                    self._note(number, "Placed", **place)
                    self._note(number, "Started", epoch=event.epoch, samples=event.samples, role=event.role)
                case Stepped() if time.monotonic() - self._steps.get(number, 0.0) > SECONDS_BETWEEN_STEPS:
                    self._steps[number] = time.monotonic()
                    self._note(number, "Stepped", epoch=event.epoch, samples=event.samples)
                case EpochEnded():
                    self._note(number, "EpochEnded", line=event.line, timing=event.timing)
                case Finished():
                    self._note(number, "Finished", role=event.role)

        while remaining:
            run_jobs(remaining, show, self.at_once)
            locked = [job for job in remaining if nodes.is_locked(job.error) and time.monotonic() < until]
            for job in remaining:
                if job.error is not None and job not in locked:
                    self._note(numbers[job.out], "Failed", message=str(job.error))
            remaining = [Job(job.config, job.out) for job in locked]
            if remaining:
                time.sleep(SECONDS_BETWEEN_ATTEMPTS)

    def _device(self) -> str:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return f"GPU {visible}" if self.jobs[0][1].config.device == "cuda" else self.name

    def _note(self, run: int, kind: str, **values: Any) -> None:
        with open(self.events, "a") as file:
            file.write(json.dumps({"run": run, "kind": kind, **values}) + "\n")


# ---------------------------------------------------------------- in the driver


@dataclass
class Task:
    """The driver's view of a task: its bundle, its job at SLURM, and how far its events were read."""

    bundle: Bundle
    job: Any
    host: str = "a node"
    offset: int = 0
    over: bool = False
    failure: str = ""


def run_on_slurm(jobs: list[Job], show: Callable[[Job, Event], None], partition: str, at_once: int | None) -> None:
    """Like :func:`vista.training.scheduler.run_jobs`, as an array of SLURM tasks.

    Args:
        jobs: The runs; their folders must be visible on every node.
        show: Called with each progress event.
        partition: Of SLURM; empty for its default.
        at_once: Runs of one task, all at once; by default 5 on a GPU and 1 on the CPU.
    """
    device = "cpu" if nodes.device_kind(jobs) == "cpu" else "cuda"
    size = nodes.runs_per_worker(at_once, device)
    folder = jobs[0].out.absolute().parent / FOLDER
    with nodes.grid_of(jobs) as grid, stop_on_signals() as stop:
        executor = make_executor(folder, partition, device)
        Driver(executor, jobs, show, grid, stop, folder, device, size).run()


def make_executor(folder: Path, partition: str, device: str) -> Any:
    """submitit's executor for a task with a GPU, or on the CPU."""
    try:
        import submitit
    except ImportError as error:
        raise ImportError("--on slurm needs the package submitit: pip install 'vista-distill[slurm]'") from error
    if shutil.which("sbatch") is None or shutil.which("srun") is None:
        raise ValueError("--on slurm needs sbatch and srun on this machine: run the command on a login node of SLURM")
    folder.mkdir(parents=True, exist_ok=True)
    executor = submitit.SlurmExecutor(folder=folder, max_num_timeout=10_000)
    options = {"partition": partition or None, "gpus_per_node": 1 if device == "cuda" else None}
    executor.update_parameters(
        job_name="vista", time=MINUTES, nodes=1, ntasks_per_node=1, signal_delay_s=SECONDS_FOR_CHECKPOINTS,
        stderr_to_stdout=True, array_parallelism=100_000,
        **{name: value for name, value in options.items() if value is not None},
    )  # fmt: skip
    return executor


class Driver:
    """Submit bundles of runs, follow their events, and submit again what a lost task has left."""

    def __init__(
        self,
        executor: Any,
        jobs: list[Job],
        show: Callable[[Job, Event], None],
        grid: Grid,
        stop: Stop,
        folder: Path,
        device: str,
        size: int,
    ) -> None:
        self.executor, self.jobs, self.show, self.grid, self.stop = executor, jobs, show, grid, stop
        self.folder, self.device, self.size = folder, device, size
        self.tasks: list[Task] = []
        self.accepted: list[Node] = []
        self.losses: dict[int, int] = {}
        self.last_states = time.monotonic()

    def run(self) -> None:
        """Execute all runs."""
        self._cancel_earlier()
        try:
            self._submit(list(range(len(self.jobs))))
            while not self.stop.signal and not all(task.over for task in self.tasks):
                self._look()
                time.sleep(SECONDS_BETWEEN_LOOKS)
        finally:
            self._cancel()
        (self.folder / TASKS).unlink(missing_ok=True)
        if self.stop.signal and any(job.metrics is None and job.error is None for job in self.jobs):
            raise Interrupted(self.jobs[0].out, self.stop.signal)

    def _submit(self, numbers: Sequence[int]) -> None:
        """Submit an array of tasks for these runs, each with ``size`` of them."""
        count = -(-len(numbers) // self.size)
        first = len(self.tasks)
        bundles = []
        for index in range(count):
            own = [(number, nodes.sent(self.jobs[number], self.device)) for number in numbers[index::count]]
            events = self.folder / f"events-{self.grid.token}-{first + index}.jsonl"
            bundles.append(Bundle(self.grid, f"task {first + index}", own, self.size, events))
        try:
            with self.executor.batch():
                submitted = [self.executor.submit(bundle) for bundle in bundles]
        except (subprocess.CalledProcessError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[-1]
            raise RuntimeError(f"SLURM did not accept the runs: {reason}") from error
        self.tasks += [Task(bundle, job) for bundle, job in zip(bundles, submitted, strict=True)]
        atomic.write_json(self.folder / TASKS, {"tasks": [task.job.job_id for task in self.tasks if not task.over]})

    def _cancel_earlier(self) -> None:
        """Cancel the tasks of a driver that was killed; their runs write checkpoints and are submitted again."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            for number in json.loads((self.folder / TASKS).read_text())["tasks"]:
                self.executor.job_class(self.folder, str(number)).cancel(check=False)

    def _cancel(self) -> None:
        """Let the remaining tasks write checkpoints and end."""
        for task in self.tasks:
            if not task.over:
                task.job.cancel(check=False)
        until = time.monotonic() + SECONDS_TO_STOP
        while time.monotonic() < until and any(not task.over and task.offset for task in self.tasks):
            for task in self.tasks:
                self._read(task)
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def _look(self) -> None:
        for task in self.tasks:
            if not task.over:
                self._read(task)
            if task.failure:
                raise ValueError(task.failure)
        if time.monotonic() - self.last_states < SECONDS_BETWEEN_STATES:
            return
        self.last_states = time.monotonic()
        for task in [task for task in self.tasks if not task.over]:
            state = task.job.watcher.get_state(task.job.job_id, mode="force") if _is_slurm(task) else task.job.state
            if state.split()[0] not in RUNNING_STATES:
                self._read(task)
                if not task.over:
                    self._lose(task, state)

    def _lose(self, task: Task, state: str) -> None:
        """Submit the runs of a task that ended without reporting them, again."""
        task.over = True
        left = []
        for number, job in task.bundle.jobs:
            if self.jobs[number].metrics is not None or self.jobs[number].error is not None:
                continue
            self.losses[number] = self.losses.get(number, 0) + 1
            if self.losses[number] == MOST_LOSSES:
                hint = "" if task.offset else f"; {job.out.parent} may not be visible there"
                self.jobs[number].error = RuntimeError(
                    f"its task ended {MOST_LOSSES} times, last on {task.host} in state {state}{hint}: see {self.folder}"
                )
                continue
            left.append(number)
            self._show(number, Lost(task.host, task.bundle.name, f"state {state}"))
        if left:
            self._submit(left)

    # ------------------------------------------------------------ events

    def _read(self, task: Task) -> None:
        """Handle the complete lines that the task has appended."""
        try:
            with open(task.bundle.events, "rb") as file:
                file.seek(task.offset)
                text = file.read()
        except FileNotFoundError:
            return
        end = text.rfind(b"\n") + 1
        task.offset += end
        for line in text[:end].splitlines():
            self._handle(task, json.loads(line))

    def _handle(self, task: Task, values: dict[str, Any]) -> None:
        number, kind = values.pop("run"), values.pop("kind")
        match kind:
            case "Node":
                node = Node(**values)
                task.host = node.host
                try:
                    nodes.check(node, self.grid, self.accepted)
                except ValueError as error:
                    task.failure = str(error)
                self.accepted.append(node)
            case "Done":
                task.over = True
            case "Stopped":
                task.over = values["signal"] not in REQUEUED_BY
            case "Failed" if number < 0:
                task.over, task.failure = True, task.failure or values["message"]
            case "Failed":
                self.jobs[number].error = RuntimeError(values["message"])
            case _:
                self._show(number, self._event(number, kind, values))

    def _event(self, number: int, kind: str, values: dict[str, Any]) -> Event:
        job = self.jobs[number]
        match kind:
            case "Placed":
                return Placed(**values)
            case "Started":
                return Started(job.config, job.out, **values)
            case "Stepped":
                return Stepped(**values)
            case "EpochEnded":
                return EpochEnded(**values)
        metrics = {}
        if values["role"] is None:
            until = time.monotonic() + SECONDS_TO_STOP
            while not RunFolder(job.out).is_finished() and time.monotonic() < until:
                time.sleep(SECONDS_BETWEEN_LOOKS)  # a network file system may show the task's files later
            job.metrics = metrics = RunFolder(job.out).metrics()
        return Finished(job.out, metrics, values["role"])

    def _show(self, number: int, event: Event) -> None:
        show_or_stop(self.show, self.jobs[number], event, self.stop)


def _is_slurm(task: Task) -> bool:
    return bool(hasattr(task.job, "watcher") and type(task.job).__name__ == "SlurmJob")
