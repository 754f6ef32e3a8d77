"""Parts shared by the engines of ``--on``, without a cluster: the option, the check of nodes, the choice of workers."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainings import config

from vista.runs.config import TrainConfig
from vista.runs.environment import versions
from vista.training import clusters
from vista.training.api import execute_jobs
from vista.training.clusters import nodes
from vista.training.clusters import ray as on_ray
from vista.training.clusters.nodes import Node
from vista.training.events import Event, Interrupted, Stop
from vista.training.scheduler import Job


def show_nothing(job: Job, event: Event) -> None:
    """Ignore events."""


def test_ray_must_be_installed(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"--on ray needs the package ray: pip install 'vista-distill\[ray\]'"):
        execute_jobs([Job(config(data), tmp_path)], show_nothing, on="ray")


def test_an_unreachable_cluster_is_reported(data: str, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    for on, address in {"ray:127.0.0.1:1": "127.0.0.1:1", "ray://127.0.0.1:1": "ray://127.0.0.1:1"}.items():
        with pytest.raises(ConnectionError, match=f"no Ray cluster answers at {address}: .* on 127.0.0.1$"):
            execute_jobs([Job(config(data), tmp_path / "run")], show_nothing, on=on)
    with pytest.raises(ValueError, match=r"must be HOST:PORT or ray://HOST:PORT, got 'nowhere'"):
        execute_jobs([Job(config(data), tmp_path / "run")], show_nothing, on="ray:nowhere")


@pytest.mark.parametrize("on", ["ray:", "kubernetes", "", "slurm:"])
def test_an_unknown_engine_is_rejected(on: str) -> None:
    with pytest.raises(ValueError, match="on must be ray, ray:ADDRESS, slurm or slurm:PARTITION, got"):
        clusters.parse(on)


def test_on_is_rejected_under_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="cannot be combined with torchrun"):
        clusters.parse("ray")


def test_the_number_of_a_gpu_is_the_engines_choice(data: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="device must be auto, cpu or cuda with --on, got cuda:1"):
        nodes.device_kind([Job(config(data, device="cuda:1"), tmp_path)])


# ---------------------------------------------------------------- the check of a node


def node(host: str = "b", **changes: Any) -> Node:
    values = {"missing": None, "versions": versions(), "hashes": {"digits": "1"}, "errors": {}}
    return Node(host, **{**values, **changes})


def test_versions_and_data_must_be_those_of_the_other_nodes(data: str, tmp_path: Path) -> None:
    with nodes.grid_of([Job(config(data), tmp_path / "run")]) as grid:
        nodes.check(node(), grid, [node("a")])
        nodes.check(node(hashes={}), grid, [node("a")])  # another worker of the node has read the data
        with pytest.raises(ValueError, match=r"b has torch 1\.0, but this machine has .*: install the same version"):
            nodes.check(node(versions={**versions(), "torch": "1.0"}), grid, [])
        with pytest.raises(ValueError, match="--data digits differs between a and b"):
            nodes.check(node(hashes={"digits": "2"}), grid, [node("a")])


def test_the_hash_of_data_depends_on_samples_and_labels(tmp_path: Path) -> None:
    x, y = np.arange(80, dtype=np.float32).reshape(20, 4), np.arange(20) % 2
    hashes = []
    for name, (inputs, labels) in {"one": (x, y), "same": (x, y), "x": (x + 1, y), "y": (x, 1 - y)}.items():
        np.savez(tmp_path / f"{name}.npz", x_train=inputs, y_train=labels, x_test=x, y_test=y)
        hashes.append(nodes.data_hash(TrainConfig(data=f"npz:{tmp_path / name}.npz")))
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


class FakeRay:
    """The part of Ray's interface that the driver calls for its nodes."""

    def __init__(self, *resources: dict[str, float]) -> None:
        self._resources = resources

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": str(n), "NodeName": f"node{n}", "NodeManagerAddress": "10.0.0.1", "NodeManagerHostname": "h",
             "Alive": n != 2, "Resources": resources}
            for n, resources in enumerate(self._resources)
        ]  # fmt: skip


def slots(data: str, out: Path, device: str, *resources: dict[str, float]) -> list[tuple[str, str, str, int]]:
    jobs = [Job(config(data, device=device), out)]
    with nodes.grid_of(jobs) as grid:
        driver = on_ray.Driver(FakeRay(*resources), jobs, show_nothing, grid, Stop(), device, None)
        return list(driver._slots())


def test_each_gpu_of_a_live_node_has_a_worker_or_else_each_cpu(data: str, tmp_path: Path) -> None:
    mixed = ({"CPU": 8}, {"CPU": 8, "GPU": 2}, {"GPU": 8})
    expected = [("1", "node1", "GPU 0", 1), ("1", "node1", "GPU 1", 1)]
    assert slots(data, tmp_path / "run", "auto", *mixed) == expected
    assert slots(data, tmp_path / "run", "cpu", {"CPU": 2}) == [("0", "node0", f"CPU {n}", 1) for n in range(2)]


def test_interrupted_before_any_run_started(data: str, tmp_path: Path) -> None:
    jobs, stop = [Job(config(data), tmp_path / "run")], Stop(signal.SIGTERM)
    with nodes.grid_of(jobs) as grid, pytest.raises(Interrupted):
        on_ray.Driver(FakeRay({"CPU": 1}), jobs, show_nothing, grid, stop, "cpu", None).run()
