"""Measure how soon a lost node's run trains again: `python benchmarks/lost_node.py --out results/lost-node.json`.

Starts a Ray cluster of two nodes on this machine, kills the one that trains, and waits for the next step on the other.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from vista.runs.config import TrainConfig, preset
from vista.runs.environment import environment
from vista.training.api import execute_jobs
from vista.training.events import Event, Lost, Placed, Started, Stepped
from vista.training.scheduler import Job

KILLED_IN = 5  # this epoch


def start_cluster() -> tuple[Any, dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 80 * 2**20}
        cluster = Cluster(initialize_head=True, head_node_args=head)
    return cluster, {
        name: cluster.add_node(num_cpus=1, node_name=name, object_store_memory=80 * 2**20) for name in "ab"
    }


def measure(folder: Path) -> dict[str, float]:
    cluster, nodes = start_cluster()
    config = TrainConfig(
        data="digits", method="vista", noise="symmetric:0.4", device="cpu", checkpoint_seconds=0.0,
        **{**preset("digits"), "epochs": 30},
    )  # fmt: skip
    at: dict[str, float] = {}
    place = ""

    def show(_job: Job, event: Event) -> None:
        nonlocal place
        now = time.monotonic()
        if isinstance(event, Placed):
            place = event.host
        elif isinstance(event, Stepped) and event.epoch >= KILLED_IN and "killed" not in at:
            cluster.remove_node(nodes[place], allow_graceful=False)
            at["killed"] = time.monotonic()
        elif isinstance(event, Lost):
            at["noticed"] = now
        elif isinstance(event, Started) and "noticed" in at:
            at["epoch"] = event.epoch
        elif isinstance(event, Stepped) and "noticed" in at:
            at.setdefault("again", now)

    job = Job(config, folder / "run")
    try:
        execute_jobs([job], show, on=f"ray:{cluster.address}")
    finally:
        cluster.shutdown()
    assert job.error is None, job.error
    return {
        "noticed_seconds": at["noticed"] - at["killed"],
        "training_again_seconds": at["again"] - at["killed"],
        "resumed_at_epoch": at["epoch"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="file of the record")
    options = parser.parse_args()
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="lost-node-") as folder:
        result = measure(Path(folder))
    record = {"what": "lost-node", "environment": environment(torch.device("cpu")), "result": result}
    text = json.dumps(record, indent=1, sort_keys=True)
    print(text)
    if options.out:
        options.out.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
