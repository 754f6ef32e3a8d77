"""A grid on a Ray cluster: an actor per GPU, or per CPU worker where there is no GPU, and a queue in the driver.

An actor lets its runs take turns as :mod:`vista.training.scheduler` does. The driver calls ``advance`` again and again:
each call carries new runs and requests to stop to the actor, and returns the events of about a second. When an actor or
its node is lost, its runs return to the queue and resume elsewhere from their last checkpoint in the shared folder.
"""

from __future__ import annotations

import logging
import os
import socket
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from vista.training.clusters import nodes
from vista.training.clusters.nodes import MOST_LOSSES, SECONDS_BETWEEN_ATTEMPTS, SECONDS_UNTIL_UNLOCKED, Grid, Node
from vista.training.events import Event, Finished, Interrupted, Lost, Placed, Stepped, Stop, Waiting
from vista.training.scheduler import Interleaved, Job, deterministic, show_or_stop, stop_on_signals
from vista.training.state import cpu_threads
from vista.training.workers import Warned, fits_one_core, portable

SECONDS_PER_CALL = 1.0
CALLS_AHEAD = 2  # one is executed while the driver handles the events of the other
SECONDS_TO_CONNECT = 10.0


@dataclass(frozen=True)
class Progress:
    """What happened in one call: events and warnings, the runs that ended with their errors, and those that stopped."""

    events: list[tuple[int, Event | Warned]]
    ended: dict[int, Exception | None]
    stopped: list[int]


class RayWorker:
    """The actor. Its methods are called one after another, in its main thread.

    Args:
        grid: What its node must have.
        host: The name of its node.
        threads: Threads of a run on the CPU.
        exact: Whether any run asks for deterministic kernels.
    """

    def __init__(self, grid: Grid, host: str, threads: int, exact: bool) -> None:
        nodes.enter(grid)
        self.grid, self.host = grid, host
        self._context = ExitStack()
        self._context.enter_context(cpu_threads(threads))
        self._context.enter_context(deterministic(exact))
        self.stop = Stop()
        self.runs = Interleaved(self._note, self.stop)
        self.numbers: dict[int, int] = {}  # of each job, by the identity of its object
        self.events: list[tuple[int, Event | Warned]] = []

    def inspect(self, with_data: bool) -> Node:
        """Report what the node has."""
        return nodes.inspect(self.grid, self.host, with_data)

    def advance(self, given: list[tuple[int, Job]], stop: int) -> Progress:
        """Start the given runs and advance all runs for about a second, or until one ends or, on ``stop``, all have."""
        self.stop.signal = self.stop.signal or stop
        for number, job in given:
            self.numbers[id(job)] = number
            self.runs.start(job)
        before = self.runs.jobs
        self.events, until = [], time.monotonic() + SECONDS_PER_CALL
        with warnings.catch_warnings():
            warnings.showwarning = self._warn  # type: ignore[assignment]
            while len(self.runs.jobs) == len(before) and before and (stop or time.monotonic() < until):
                self.runs.advance()
            while stop and self.runs.jobs:
                self.runs.advance()
        ended, stopped = dict[int, Exception | None](), list[int]()
        running = {id(job) for job in self.runs.jobs}
        for job in before:
            if id(job) in running:
                continue
            number = self.numbers.pop(id(job))
            if job.metrics is None and job.error is None:
                stopped.append(number)
            else:
                ended[number] = job.error and portable(job.error)
        return Progress(self.events, ended, stopped)

    def _note(self, job: Job, event: Event) -> None:
        number = self.numbers[id(job)]
        if isinstance(event, Waiting):
            return
        if isinstance(event, Stepped):  # only the newest counts
            self.events = [old for old in self.events if old[0] != number or not isinstance(old[1], Stepped)]
        self.events.append((number, event))

    def _warn(self, text: Warning | str, category: type[Warning], file: str, line: int, *_: object) -> None:
        self.events.append((-1, Warned(str(text), category, file, line)))


@dataclass
class Actor:
    """The driver's view of an actor: its calls under way, the numbers of its runs, and its node once that is known."""

    handle: Any
    node_id: str
    host: str
    device: str
    calls: deque[Any] = field(default_factory=deque)
    runs: set[int] = field(default_factory=set)
    node: Node | None = None


def run_on_ray(jobs: list[Job], show: Callable[[Job, Event], None], address: str, at_once: int | None) -> None:
    """Like :func:`vista.training.scheduler.run_jobs`, on the nodes of a Ray cluster.

    Args:
        jobs: The runs; their folders must be visible on every node.
        show: Called with each progress event.
        address: ``HOST:PORT`` or ``ray://HOST:PORT``; empty for the cluster of this machine, or else for its own GPUs.
        at_once: Concurrent runs of an actor; by default 5 on a GPU and 1 on the CPU.
    """
    ray, kind = _import_ray(), nodes.device_kind(jobs)
    with connected(ray, address), nodes.grid_of(jobs) as grid, stop_on_signals() as stop:
        Driver(ray, jobs, show, grid, stop, kind, at_once).run()


class Driver:
    """The queue of runs, and the actors that pull from it."""

    def __init__(
        self,
        ray: Any,
        jobs: list[Job],
        show: Callable[[Job, Event], None],
        grid: Grid,
        stop: Stop,
        kind: str,
        at_once: int | None,
    ) -> None:
        self.ray, self.jobs, self.show, self.grid, self.stop = ray, jobs, show, grid, stop
        self.waiting = deque(range(len(jobs)))
        self.actors: list[Actor] = []
        self.accepted: list[Node] = []
        self.losses = Counter[int]()
        began = time.monotonic()
        self.unlocked_by = dict.fromkeys(self.waiting, began + SECONDS_UNTIL_UNLOCKED)  # an earlier driver may be dying
        self.not_before: dict[int, float] = {}
        self.device = self._choose_device(kind)
        self.at_once = nodes.runs_per_worker(at_once, self.device)
        self.single = all(fits_one_core(job.config) for job in jobs) if self.device == "cpu" else False
        self.exact = any(job.config.deterministic for job in jobs)

    def run(self) -> None:
        """Execute all runs."""
        try:
            while self._unfinished() and not (self.stop.signal and not any(actor.runs for actor in self.actors)):
                self._start_actors()
                for actor in self.actors:
                    self._call(actor)
                self._receive()
        finally:
            for actor in self.actors:
                self.ray.kill(actor.handle)
        if self.stop.signal and self._unfinished():
            raise Interrupted(self.jobs[0].out, self.stop.signal)

    def _unfinished(self) -> int:
        return sum(job.metrics is None and job.error is None for job in self.jobs)

    # ------------------------------------------------------------ actors

    def _choose_device(self, kind: str) -> str:
        gpus = sum(node["Resources"].get("GPU", 0) for node in self._nodes())
        if kind == "cuda" and not gpus:
            raise ValueError("device is 'cuda', but no node of the Ray cluster has a GPU: use --device cpu")
        return "cuda" if gpus and kind != "cpu" else "cpu"

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self.ray.nodes() if node["Alive"]]

    def _slots(self) -> Iterator[tuple[str, str, str, int]]:
        """The actors that the cluster can have: id and name of the node, device, CPUs or GPUs."""
        for node in self._nodes():
            resources = node["Resources"]
            count = int(resources.get("GPU" if self.device == "cuda" else "CPU", 0))
            if self.device == "cpu" and not self.single:
                count, share = min(count, 1), count
            else:
                share = 1
            for number in range(count):
                yield node["NodeID"], _host(node), f"{'GPU' if self.device == 'cuda' else 'CPU'} {number}", share

    def _start_actors(self) -> None:
        """Start an actor in each free slot while there are runs for it; nodes may join at any time."""
        taken = {(actor.node_id, actor.device) for actor in self.actors}
        for node, host, device, share in self._slots():
            if self.stop.signal or len(self.actors) >= self._unfinished():
                return
            if (node, device) in taken:
                continue
            where = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
            needs = {"num_gpus": 1, "num_cpus": 0} if self.device == "cuda" else {"num_cpus": share}
            kind = self.ray.remote(RayWorker).options(scheduling_strategy=where, **needs)
            actor = Actor(kind.remote(self.grid, host, share, self.exact), node, host, device)
            with_data = node not in {other.node_id for other in self.actors}
            self.actors.append(actor)
            actor.calls.append(actor.handle.inspect.remote(with_data))

    def _call(self, actor: Actor) -> None:
        """Send the actor's next call, with a run of the queue if it has a free place."""
        if actor.node is None or len(actor.calls) == CALLS_AHEAD:
            return
        places = min(self.at_once, -(-self._unfinished() // len(self.actors)))
        given = []
        if len(actor.runs) < places and not self.stop.signal and (number := self._next()) is not None:
            given.append((number, nodes.sent(self.jobs[number], self.device)))
            actor.runs.add(number)
            self._show(number, Placed(actor.host, actor.device))
        if actor.runs:
            actor.calls.append(actor.handle.advance.remote(given, self.stop.signal))

    def _next(self) -> int | None:
        """The next run of the queue that may start now."""
        for number in self.waiting:
            if self.not_before.get(number, 0.0) <= time.monotonic():
                self.waiting.remove(number)
                return number
        return None

    # ------------------------------------------------------------ what they answer

    def _receive(self) -> None:
        first = {actor.calls[0]: actor for actor in self.actors if actor.calls}
        if not first:
            time.sleep(0.05)
            return
        ready, _ = self.ray.wait(list(first), num_returns=1, timeout=0.2)
        for call in ready:
            actor = first[call]
            try:
                answer = self.ray.get(actor.calls.popleft())
            except self.ray.exceptions.RayActorError as error:
                self._lose(actor, error)
                continue
            if isinstance(answer, Node):
                nodes.check(answer, self.grid, self.accepted)
                actor.node = answer
                self.accepted.append(answer)
            else:
                self._handle(actor, answer)

    def _handle(self, actor: Actor, progress: Progress) -> None:
        for number, event in progress.events:
            if isinstance(event, Warned):
                warnings.warn_explicit(event.text, event.category, event.file, event.line)
                continue
            if isinstance(event, Finished) and event.role is None:
                self.jobs[number].metrics = event.metrics
            self._show(number, event)
        for number, error in progress.ended.items():
            actor.runs.discard(number)
            if nodes.is_locked(error) and time.monotonic() < self.unlocked_by[number]:
                self.not_before[number] = time.monotonic() + SECONDS_BETWEEN_ATTEMPTS
                self.waiting.append(number)
            else:
                self.jobs[number].error = error
        actor.runs.difference_update(progress.stopped)

    def _lose(self, actor: Actor, error: Exception) -> None:
        """Return the runs of an actor that is gone to the front of the queue."""
        with suppress(Exception):  # it may only be unreachable
            self.ray.kill(actor.handle)
        self.actors.remove(actor)
        self.accepted = [node for node in self.accepted if node is not actor.node]
        has_died = isinstance(error, self.ray.exceptions.ActorDiedError)
        is_alive = any(node["NodeID"] == actor.node_id for node in self._nodes())
        reason = "the node is gone" if not is_alive else "its process ended" if has_died else "it does not answer"
        if actor.node is None and is_alive and has_died:
            cause = str(error).strip().splitlines()[-1].strip()
            raise RuntimeError(f"the worker for {actor.device} on {actor.host} did not start: {cause}")
        if not actor.runs:
            warnings.warn(f"{actor.host} ({actor.device}) was lost: {reason}", stacklevel=2)
        for number in sorted(actor.runs, reverse=True):
            self.losses[number] += 1
            if self.losses[number] == MOST_LOSSES:
                self.jobs[number].error = RuntimeError(
                    f"its process ended {MOST_LOSSES} times, last on {actor.host}: the same command resumes from the "
                    "last checkpoint"
                )
                continue
            self.unlocked_by[number] = time.monotonic() + SECONDS_UNTIL_UNLOCKED
            self.waiting.appendleft(number)
            self._show(number, Lost(actor.host, actor.device, reason))

    def _show(self, number: int, event: Event) -> None:
        show_or_stop(self.show, self.jobs[number], event, self.stop)


def _host(node: dict[str, Any]) -> str:
    """The name that the node was given, or that of its machine."""
    name: str = node.get("NodeName") or ""
    return name if name and name != node["NodeManagerAddress"] else node["NodeManagerHostname"]


# ---------------------------------------------------------------- the cluster


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise ImportError("--on ray needs the package ray: pip install 'vista-distill[ray]'") from error
    return ray


@contextmanager
def connected(ray: Any, address: str) -> Iterator[None]:
    """Connect to the cluster, or start Ray on this machine alone if no address is given and none is running."""
    if ray.is_initialized():
        yield
        return
    logging.getLogger("ray").setLevel(logging.ERROR)
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    if address:
        _check_reachable(address)
    with _nothing_printed():
        try:
            ray.init(address=address or "auto", **quiet)
        except (ConnectionError, RuntimeError, TimeoutError) as error:
            if address:
                raise ConnectionError(f"the Ray cluster at {address} cannot be used: {error}") from error
            ray.init(include_dashboard=False, object_store_memory=100 * 2**20, **quiet)
        try:
            yield
        finally:
            ray.shutdown()


@contextmanager
def _nothing_printed() -> Iterator[None]:
    """Keep Ray from printing the log of a node that was lost to stdout, which may be one JSON object."""
    from ray._private import worker  # no option turns it off

    before: Any = getattr(worker, "print_to_stdstream", None)
    worker.print_to_stdstream = lambda *_args, **_options: None
    try:
        yield
    finally:
        worker.print_to_stdstream = before


def _check_reachable(address: str) -> None:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        raise ValueError(f"the address of Ray must be HOST:PORT or ray://HOST:PORT, got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=SECONDS_TO_CONNECT).close()
    except OSError as error:
        raise ConnectionError(
            f"no Ray cluster answers at {address}: {error}; start one with `ray start --head` on {host}"
        ) from error
