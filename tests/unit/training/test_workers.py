"""Concurrent runs on the CPU: each ends as if it were alone, and a dead process does not affect the others."""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest
import torch
from trainings import NOT_OF_THE_SEED, WAITS_AT, config

from vista.data import source
from vista.runs.folder import RunFolder
from vista.training import workers
from vista.training.build import build_training
from vista.training.engine import NotFinite
from vista.training.events import EpochEnded, Event, Interrupted, Started, Stepped
from vista.training.resolve import resolve
from vista.training.scheduler import Job, run_jobs
from vista.training.state import cpu_threads
from vista.training.workers import at_once_on_cpu, run_jobs_in_processes

METHODS = "ce", "vista", "elr"


def show_nothing(job: Job, event: Event) -> None:
    """Ignore events."""


def files(out: Path) -> dict[str, str]:
    """A hash of every file that the seed decides."""
    paths = [path for path in sorted(out.rglob("*")) if path.is_file() and path.name not in NOT_OF_THE_SEED]
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.fixture(scope="module")
def alone(data: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    root = tmp_path_factory.mktemp("alone")
    run_jobs([Job(config(data, method), root / method) for method in METHODS], show_nothing)
    return {method: files(root / method) for method in METHODS}


def test_side_by_side_equals_alone_and_a_failure_is_its_own(
    data: str, tmp_path: Path, alone: dict[str, dict[str, str]]
) -> None:
    jobs = [Job(config(data, method), tmp_path / method) for method in METHODS]
    jobs[1:1] = [
        Job(config(data, network="trainings:kills_its_process"), tmp_path / "killed"),
        Job(config(data, network="trainings:breaks_in_batch_4"), tmp_path / "breaks"),
        Job(config("npz:nowhere.npz"), tmp_path / "no data"),
        Job(config(data, network="trainings:warns"), tmp_path / "warns"),
    ]
    events: list[tuple[str, Event]] = []
    with pytest.warns(UserWarning, match="a word from the network"):
        run_jobs_in_processes(jobs, lambda job, event: events.append((job.out.name, event)), at_once=2)
    found = {job.out.name: job for job in jobs}
    for method in METHODS:
        assert found[method].error is None
        assert found[method].metrics is not None
        assert files(tmp_path / method) == alone[method]
        assert len([name for name, event in events if name == method and isinstance(event, EpochEnded)]) == 3
    assert "killed by signal 9" in str(found["killed"].error)
    assert isinstance(found["breaks"].error, NotFinite)
    assert "in epoch 2, step 2" in str(found["breaks"].error)
    assert isinstance(found["no data"].error, FileNotFoundError)
    assert found["warns"].metrics is not None


def test_a_signal_stops_all_with_a_checkpoint_each(data: str, tmp_path: Path, alone: dict[str, dict[str, str]]) -> None:
    jobs = [Job(config(data, method), tmp_path / method) for method in METHODS]
    sent = False

    def send(job: Job, event: Event) -> None:
        nonlocal sent
        if isinstance(event, Stepped) and not sent:
            os.kill(os.getpid(), signal.SIGTERM)
            sent = True

    with pytest.raises(Interrupted) as raised:
        run_jobs_in_processes(jobs, send, at_once=2)
    assert raised.value.signal == signal.SIGTERM
    assert not (tmp_path / "elr").exists(), "nothing begins after a signal"
    events: list[Event] = []
    run_jobs_in_processes(jobs, lambda job, event: events.append(event), at_once=2)
    assert all(job.error is None for job in jobs)
    assert len([event for event in events if isinstance(event, Started)]) <= 3
    assert {method: files(tmp_path / method) for method in METHODS} == alone


def test_a_signal_to_one_worker_alone_is_a_failure_that_says_how_to_go_on(
    data: str, tmp_path: Path, alone: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = config(data, network="trainings:waits_in_batch_13", epochs=8)
    run_jobs([Job(waits, tmp_path / "whole")], show_nothing)
    jobs = [Job(waits, tmp_path / "waits"), Job(config(data, "ce"), tmp_path / "ce")]
    place = tmp_path / "it waits"
    monkeypatch.setenv(WAITS_AT, str(place))

    def send(job: Job, event: Event) -> None:
        if isinstance(event, Started) and job is jobs[0]:
            while not place.exists():
                time.sleep(0.01)
            os.kill(int((job.out / "lock").read_text().split()[1]), signal.SIGTERM)

    run_jobs_in_processes(jobs, send, at_once=2)
    said = "its process was stopped by signal 15: the same command resumes from the last checkpoint"
    assert [str(job.error) for job in jobs] == [said, "None"]
    assert files(tmp_path / "ce") == alone["ce"]
    again = Job(waits, tmp_path / "waits")
    run_jobs_in_processes([again], show_nothing, at_once=1)
    assert again.error is None
    assert files(tmp_path / "waits") == files(tmp_path / "whole")


def test_a_worker_that_dies_between_two_runs_leaves_the_next_to_another(
    data: str, tmp_path: Path, alone: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    dead: list[SpawnProcess] = []
    receive = workers._receive

    def received(worker: workers.Worker, show: Callable[[Job, Event], None], stopping: bool) -> bool:
        lives = receive(worker, show, stopping)
        if worker.job is None and not dead:
            worker.process.kill()
            worker.process.join()
            dead.append(worker.process)
        return lives

    monkeypatch.setattr(workers, "_receive", received)
    jobs = [Job(config(data, method), tmp_path / method) for method in METHODS]
    run_jobs_in_processes(jobs, show_nothing, at_once=1)
    assert len(dead) == 1
    assert [job.error for job in jobs] == [None] * len(jobs)
    assert {method: files(tmp_path / method) for method in METHODS} == alone


def test_workers_that_are_gone_at_once_are_failures_not_tried_for_ever(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(count: int, worker: SpawnProcess) -> None:
        worker.kill()
        worker.join()

    after_starts(monkeypatch, kill)
    jobs = [Job(config(data, method), tmp_path / method) for method in METHODS]
    run_jobs_in_processes(jobs, show_nothing, at_once=2)
    assert ["killed by signal 9" in str(job.error) for job in jobs] == [True] * len(jobs)


def after_starts(monkeypatch: pytest.MonkeyPatch, act: Callable[[int, SpawnProcess], None]) -> None:
    """``act`` has the word as soon as a worker is started, with how many there were: none can be up by then."""
    start, workers = SpawnProcess.start, itertools.count(1)

    def started(worker: SpawnProcess) -> None:
        start(worker)
        act(next(workers), worker)

    monkeypatch.setattr(SpawnProcess, "start", started)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_workers_are_up_is_no_failure_and_not_lost(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, workers: int
) -> None:
    jobs = [Job(config(data, method), tmp_path / method) for method in METHODS]
    after_starts(monkeypatch, lambda count, worker: os.kill(os.getpid(), number) if count == workers else None)
    with pytest.raises(Interrupted) as raised:
        run_jobs_in_processes(jobs, show_nothing, at_once=2)
    assert raised.value.signal == number
    assert [job.error for job in jobs] == [None] * len(jobs)


def test_ctrl_c_does_not_meet_a_worker_half_imported(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal that reaches no other process leaves the worker's run running."""
    job = Job(config(data), tmp_path / "run")
    after_starts(monkeypatch, lambda count, worker: os.kill(worker.pid or 0, signal.SIGINT))
    run_jobs_in_processes([job], show_nothing, at_once=1)
    assert job.error is None
    assert job.metrics is not None


def test_workers_end_with_their_parent(data: str, tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from trainings import config\n"
        "from vista.training.scheduler import Job\n"
        "from vista.training.workers import run_jobs_in_processes\n"
        "if __name__ == '__main__':\n"
        "    jobs = [Job(config(sys.argv[2], epochs=10_000), Path(sys.argv[3]) / str(k)) for k in range(2)]\n"
        "    run_jobs_in_processes(jobs, lambda job, event: print('here', flush=True), 2)\n"
    )
    script = tmp_path / "program.py"
    script.write_text(program)
    arguments = [str(Path(__file__).parents[2] / "faults"), data, str(tmp_path)]
    with subprocess.Popen([sys.executable, script, *arguments], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"here\n"
        parent.kill()
    until = time.monotonic() + 300
    for name in ("0", "1"):
        while (tmp_path / name / "config.json").exists():  # else it had not begun
            try:
                with RunFolder(tmp_path / name).locked():
                    break
            except (OSError, RuntimeError):
                assert time.monotonic() < until, "a worker runs on without its parent"
                time.sleep(0.1)


def test_small_batches_get_one_thread_and_a_core_for_each_run(data: str, tmp_path: Path) -> None:
    small, large = Job(config(data), tmp_path / "a"), Job(config(data, batch_size=2000), tmp_path / "b")
    built = [build_training(resolve(job.config), RunFolder(job.out), {}) for job in (small, large)]
    assert [training.threads for training in built] == [1, None]
    assert at_once_on_cpu([small]) == 1
    assert at_once_on_cpu([small, large]) == 1
    assert at_once_on_cpu([small, small]) == min(2, len(os.sched_getaffinity(0)))


def test_the_data_set_is_loaded_once_to_choose_the_number_of_processes(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    load = source.load
    monkeypatch.setattr(source, "load", lambda name, *where: loaded.append(name) or load(name, *where))
    workers._sample_shape.cache_clear()
    jobs = [Job(config(data, seed=k), tmp_path / str(k)) for k in range(3)]
    assert at_once_on_cpu(jobs) >= 1
    assert loaded == [data]


def test_one_run_loads_its_data_set_once(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    load = source.load
    monkeypatch.setattr(source, "load", lambda name, *where: loaded.append(name) or load(name, *where))
    workers._sample_shape.cache_clear()
    job = Job(config(data), tmp_path / "run")
    assert at_once_on_cpu([job]) == 1
    run_jobs([job], show_nothing)
    assert loaded == [data]


def test_a_run_resumes_with_the_threads_it_started_with(data: str, tmp_path: Path) -> None:
    job = Job(config(data, batch_size=2000), tmp_path / "run")
    with cpu_threads(2):
        run_jobs([job], show_nothing)
    assert RunFolder(job.out).environment()["threads"] == 2
    training = build_training(resolve(job.config), RunFolder(job.out), {})
    with training.context():
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 1


def test_a_run_whose_environment_is_damaged_fails_alone(data: str, tmp_path: Path) -> None:
    jobs = [Job(config(data, seed=k), tmp_path / str(k)) for k in range(2)]
    jobs[0].out.mkdir()
    (jobs[0].out / "environment.json").write_text('{"threads": ')
    run_jobs_in_processes(jobs, show_nothing, 2)
    assert "environment.json is damaged: it is not JSON" in str(jobs[0].error)
    assert jobs[1].metrics is not None
