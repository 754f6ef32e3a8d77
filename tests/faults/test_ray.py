"""Grids on a real Ray cluster of two nodes: nodes, drivers and workers die, and the runs end with the same bytes."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from trainings import NOT_OF_THE_SEED, config, train

from vista.runs.config import TrainConfig
from vista.training.api import execute_jobs
from vista.training.clusters import ray as on_ray
from vista.training.events import Event, Finished, Lost, Placed, Stepped
from vista.training.scheduler import Job

pytestmark = pytest.mark.faults
EPOCHS = 30


def show_nothing(job: Job, event: Event) -> None:
    """Ignore events."""


def files(out: Path) -> dict[str, str]:
    """A hash of every file that the seed decides."""
    paths = [path for path in sorted(out.rglob("*")) if path.is_file() and path.name not in NOT_OF_THE_SEED]
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


class TwoNodes:
    """A Ray cluster on this machine: a head without CPUs, and the nodes a and b with one each."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from ray.cluster_utils import Cluster

            head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 80 * 2**20}
            self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._nodes: dict[str, Any] = {}
        self.address: str = self._cluster.address
        for name in "ab":
            self.add(name)

    def add(self, name: str) -> None:
        self._nodes[name] = self._cluster.add_node(num_cpus=1, node_name=name, object_store_memory=80 * 2**20)

    def kill(self, name: str) -> None:
        """Kill the node with its workers, as when a machine dies: a worker alone may finish its run first."""
        node = self._nodes.pop(name)
        workers = psutil.Process(node.all_processes["raylet"][0].process.pid).children(recursive=True)
        for worker in workers:
            worker.kill()
        self._cluster.remove_node(node, allow_graceful=False)

    def complete(self) -> None:
        for name in set("ab") - set(self._nodes):
            self.add(name)
        self._cluster.wait_for_nodes()

    def shutdown(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def cluster() -> Iterator[TwoNodes]:
    pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_health_check_timeout_ms", "120000")  # a node of a busy machine answers late and is not lost
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(on_ray.__file__).parents[3]), *sys.path]))
        patch.setenv("OMP_NUM_THREADS", "1")
        started = TwoNodes()
        yield started
        started.shutdown()


@pytest.fixture
def two_nodes(cluster: TwoNodes) -> TwoNodes:
    cluster.complete()
    return cluster


def execute(jobs: list[Job], cluster: TwoNodes, show: Callable[[Job, Event], None] = show_nothing) -> None:
    execute_jobs(jobs, show, on=f"ray:{cluster.address}")


@pytest.fixture(scope="module")
def alone(data: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    root = tmp_path_factory.mktemp("alone")
    methods = ("ce", "vista")
    for method in methods:
        train(config(data, method, epochs=EPOCHS), root / method)
    return {method: files(root / method) for method in methods}


def test_a_lost_nodes_run_resumes_elsewhere_with_the_same_bytes(
    data: str,
    two_nodes: TwoNodes,
    tmp_path: Path,
    alone: dict[str, dict[str, str]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    jobs = [Job(config(data, method, epochs=EPOCHS), tmp_path / method) for method in ("ce", "vista")]
    places: dict[str, list[str]] = {"ce": [], "vista": []}
    lost: list[str] = []

    def show(job: Job, event: Event) -> None:
        if isinstance(event, Placed):
            places[job.out.name].append(event.host)
        if isinstance(event, Stepped) and places[job.out.name] == ["b"] and not lost:
            lost.append(job.out.name)
            two_nodes.kill("b")
        if isinstance(event, Lost):
            assert event.host == "b"
            assert job.out.name in lost

    execute(jobs, two_nodes, show)
    assert capfd.readouterr().out == ""
    assert [job.error for job in jobs] == [None, None]
    assert places[lost[0]] == ["b", "a"]
    assert {job.out.name: files(job.out) for job in jobs} == alone


def test_a_failing_run_and_one_that_kills_its_worker_do_not_end_the_others(
    data: str, two_nodes: TwoNodes, tmp_path: Path, alone: dict[str, dict[str, str]]
) -> None:
    jobs = [
        Job(config(data, network="trainings:breaks_in_batch_4"), tmp_path / "breaks"),
        Job(config(data, network="trainings:kills_its_process"), tmp_path / "kills"),
        Job(config(data, "vista", epochs=EPOCHS), tmp_path / "vista"),
        Job(config(data, network="trainings:warns"), tmp_path / "warns"),
    ]
    finished = []

    def show(job: Job, event: Event) -> None:
        if isinstance(event, Finished):
            finished.append(job.out.name)

    with pytest.warns(UserWarning, match="a word from the network"):
        execute(jobs, two_nodes, show)
    assert "the loss is not finite in epoch 2, step 2" in str(jobs[0].error)
    assert "its process ended 3 times, last on " in str(jobs[1].error)
    assert sorted(finished) == ["vista", "warns"]
    assert files(jobs[2].out) == alone["vista"]


def test_a_folder_that_a_node_does_not_see_is_reported_with_its_name(
    data: str, two_nodes: TwoNodes, tmp_path: Path
) -> None:
    handle = os.open(tmp_path, os.O_RDONLY)  # a path that means this folder in this process only
    try:
        job = Job(config(data), Path(f"/proc/self/fd/{handle}/runs/ce"))
        with pytest.raises(ValueError, match=r"--out is not visible on [ab]: /proc/self/fd/.*a folder that all"):
            execute([job], two_nodes)
    finally:
        os.close(handle)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == []


def test_data_that_a_node_does_not_see_are_reported_with_its_name(two_nodes: TwoNodes, tmp_path: Path) -> None:
    job = Job(TrainConfig(data="cifar100", root=str(tmp_path / "nowhere"), device="cpu"), tmp_path / "runs" / "ce")
    with pytest.raises(ValueError, match=r"--data cifar100 cannot be read on [ab]: .*nowhere.*--root must be visible"):
        execute([job], two_nodes)


def test_ctrl_c_and_a_killed_driver_lose_nothing(
    two_nodes: TwoNodes, tmp_path: Path, data: str, alone: dict[str, dict[str, str]]
) -> None:
    out = tmp_path / "grid"
    options = {"noise": "symmetric:0.4", "network": "tiny-staged", "epochs": EPOCHS, "batch-size": 64, "lr": 0.1,
               "rotation": 10.0, "validation": 31, "device": "cpu", "checkpoint-seconds": 0}  # fmt: skip
    words = [f"--{name}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "vista", "compare", f"--data={data}", "--preset=digits", *words, f"--out={out}",
               "--methods=ce,vista", "--seeds=1", f"--on=ray:{two_nodes.address}"]  # fmt: skip

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def epochs_done() -> int:
        files = out.glob("*/epochs.jsonl")
        return sum(path.read_text().count("\n") for path in files)

    def until(epochs: int) -> None:
        while epochs_done() < epochs:
            assert driver.poll() is None, driver.communicate()
            time.sleep(0.01)

    driver = start()
    until(2)
    driver.send_signal(signal.SIGINT)
    _, errors = driver.communicate(timeout=60)
    assert driver.returncode == 130, errors
    assert "stopped by Ctrl-C; progress is saved" in errors
    seen = epochs_done()
    assert seen < 2 * EPOCHS

    driver = start()
    until(seen + 2)
    driver.kill()
    driver.communicate()
    assert epochs_done() < 2 * EPOCHS

    driver = start()
    printed, errors = driver.communicate(timeout=60)
    assert driver.returncode == 0, errors
    assert "resumes at epoch" in printed
    assert "note:" not in errors
    assert {method: files(out / f"{method}-seed0") for method in alone} == alone


def test_gpus_that_no_node_has_are_reported(data: str, two_nodes: TwoNodes, tmp_path: Path) -> None:
    job = Job(config(data, device="cuda"), tmp_path / "run")
    with pytest.raises(ValueError, match="no node of the Ray cluster has a GPU: use --device cpu"):
        execute([job], two_nodes)
