"""Grids of runs on the machines of a Ray cluster or of SLURM."""

from __future__ import annotations

from collections.abc import Callable

from vista.training.clusters.nodes import Engine, parse
from vista.training.clusters.ray import run_on_ray
from vista.training.clusters.slurm import run_on_slurm
from vista.training.events import Event
from vista.training.scheduler import Job

__all__ = ["Engine", "parse", "run_on"]


def run_on(engine: Engine, jobs: list[Job], show: Callable[[Job, Event], None], at_once: int | None) -> None:
    """Execute runs on a cluster; each job then holds its metrics or its error.

    Args:
        engine: Where, as :func:`parse` returns it.
        jobs: The runs; their folders must be visible on every node.
        show: Called with each progress event.
        at_once: Concurrent runs per GPU, or per worker on the CPU.
    """
    execute = run_on_ray if engine.name == "ray" else run_on_slurm
    execute(jobs, show, engine.where, at_once)
