"""What every engine needs: the meaning of ``--on``, and the check that all nodes have the same folders, code and data.

A node that does not see the folder of the runs, or that would train with other code or data, is reported by name before
anything is trained.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vista.runs.config import TrainConfig
from vista.runs.environment import versions
from vista.training import distributed
from vista.training.samples import COLUMNS, load_source
from vista.training.scheduler import RUNS_PER_GPU, Job

ENGINES = ("ray", "slurm")
DATA_ROOT = "VISTA_DATA"
SECONDS_UNTIL_UNLOCKED = 90.0  # that a run may still be locked by a lost worker: a lock expires without a heartbeat
SECONDS_BETWEEN_ATTEMPTS = 2.0
MOST_LOSSES = 3  # of one run, which may itself be what ends its workers
LOCKED = "is in use by"  # in the message of the lock
# Fields that decide which samples and labels are read.
DATA_FIELDS = ("data", "root", "labels", "own_validation", "image_size", "skip_damaged", *COLUMNS)


@dataclass(frozen=True)
class Engine:
    """``ray:HOST:PORT`` or ``slurm:PARTITION``, in two parts; the second may be empty."""

    name: str
    where: str


def parse(on: str) -> Engine:
    """Parse the value of ``--on``.

    >>> parse("ray:head-node:6379")
    Engine(name='ray', where='head-node:6379')
    >>> parse("ray://head-node:10001")
    Engine(name='ray', where='ray://head-node:10001')
    """
    name, colon, where = on.partition(":")
    if on.startswith("ray://"):
        where = on
    if name not in ENGINES or (colon and not where):
        raise ValueError(f"on must be ray, ray:ADDRESS, slurm or slurm:PARTITION, got {on!r}")
    if distributed.process_count() > 1:
        raise ValueError("--on starts its own workers and cannot be combined with torchrun: start the command without")
    return Engine(name, where)


def device_kind(jobs: Sequence[Job]) -> str:
    """The device of all runs, ``auto``, ``cpu`` or ``cuda``; the number of a GPU is the engine's choice."""
    kinds = sorted({job.config.device for job in jobs})
    if len(kinds) > 1 or kinds[0] not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu or cuda with --on, got {' and '.join(kinds)}")
    return kinds[0]


def runs_per_worker(at_once: int | None, device: str) -> int:
    """Concurrent runs of one worker: by default 5 on a GPU and 1 on the CPU."""
    return at_once or (RUNS_PER_GPU if device == "cuda" else 1)


def is_locked(error: Exception | None) -> bool:
    """Whether a run could not start because another process, maybe one that is just ending, holds its folder."""
    return error is not None and LOCKED in str(error)


def sent(job: Job, device: str) -> Job:
    """The job as a worker receives it: with an absolute folder and the worker's kind of device."""
    return Job(dataclasses.replace(job.config, device=device), job.out.absolute())


# ---------------------------------------------------------------- the check of a node


@dataclass(frozen=True)
class Grid:
    """What a node must have: the driver's folders, versions and data.

    Attributes:
        folder: The driver's current folder, to which relative paths refer.
        data_root: The driver's environment variable VISTA_DATA.
        probe: A file in the folder of the runs, and
        token: its content.
        versions: Versions that decide the result.
        data: One configuration for each data set of the grid.
    """

    folder: str
    data_root: str | None
    probe: Path
    token: str
    versions: dict[str, str]
    data: tuple[TrainConfig, ...]


@dataclass(frozen=True)
class Node:
    """What a node has.

    Attributes:
        host: Its name.
        missing: The folder of the runs, if the node cannot write there, and why.
        versions: Its versions.
        hashes: A hash of each data set, or the reason why it cannot be read.
    """

    host: str
    missing: str | None
    versions: dict[str, str]
    hashes: dict[str, str]
    errors: dict[str, str]


@contextmanager
def grid_of(jobs: Sequence[Job]) -> Iterator[Grid]:
    """Describe a grid to its nodes; a probe is in the folder of its runs meanwhile."""
    folder = jobs[0].out.absolute().parent
    folder.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(8)
    probe = folder / f".probe-{token}"
    probe.write_text(token)
    data: dict[tuple[object, ...], TrainConfig] = {}
    for job in jobs:
        data.setdefault(tuple(getattr(job.config, name) for name in DATA_FIELDS), job.config)
    try:
        yield Grid(os.getcwd(), os.environ.get(DATA_ROOT), probe, token, versions(), tuple(data.values()))
    finally:
        probe.unlink(missing_ok=True)


def enter(grid: Grid) -> None:
    """Work in the driver's folder, so that relative paths mean the same; a node without it is found by its check."""
    if os.path.isdir(grid.folder):
        os.chdir(grid.folder)
    if grid.data_root is not None:
        os.environ.setdefault(DATA_ROOT, grid.data_root)


def inspect(grid: Grid, host: str | None = None, with_data: bool = True) -> Node:
    """Look at the node on which this is called.

    Args:
        grid: What the node must have.
        host: Its name; by default that of the machine.
        with_data: Also hash the data, which takes as long as reading them.
    """
    hashes, errors = dict[str, str](), dict[str, str]()
    for config in grid.data if with_data else ():
        try:
            hashes[config.data] = data_hash(config)
        except (OSError, ValueError, ImportError) as error:
            errors[config.data] = str(error)
    return Node(host or socket.gethostname(), _missing(grid), versions(), hashes, errors)


def _missing(grid: Grid) -> str | None:
    """Why this node cannot write to the folder of the runs, if so."""
    folder = grid.probe.parent
    try:
        if grid.probe.read_text() != grid.token:
            return f"{folder} is another folder there"
        own = folder / f"{grid.probe.name}-{socket.gethostname()}-{os.getpid()}"
        own.touch()
        own.unlink()
    except FileNotFoundError:
        return f"{folder} does not exist there, or is another folder"
    except OSError as error:
        return f"{folder} cannot be written to: {error.strerror}"
    return None


def data_hash(config: TrainConfig) -> str:
    """A hash of the samples and labels that a run reads, before label noise."""
    data = load_source(config, config.root)
    digest = hashlib.sha256(f"{data.inputs_hash} {data.test_hash}".encode())
    digest.update(np.ascontiguousarray(data.labels).tobytes())
    return digest.hexdigest()


def check(node: Node, grid: Grid, others: Sequence[Node]) -> None:
    """Reject a node that would not train the same runs as the others.

    Args:
        node: The node.
        grid: What it must have.
        others: Nodes that were accepted before.
    """
    if node.missing:
        raise ValueError(f"--out is not visible on {node.host}: {node.missing}; use a folder that all nodes share")
    for name, ours in grid.versions.items():
        if node.versions.get(name) != ours:
            raise ValueError(
                f"{node.host} has {name} {node.versions.get(name)}, but this machine has {ours}: install the same "
                "version on all nodes"
            )
    for data, reason in node.errors.items():
        raise ValueError(f"--data {data} cannot be read on {node.host}: {reason}; --root must be visible on all nodes")
    for other in others:
        for data, found in node.hashes.items():
            if other.hashes.get(data, found) != found:
                raise ValueError(
                    f"--data {data} differs between {other.host} and {node.host}: copy the same files to both, or use "
                    "a --root that all nodes share"
                )
