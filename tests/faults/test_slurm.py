"""Grids as SLURM tasks: with submitit's local executor, and with its SLURM executor and programs that act as SLURM."""

from __future__ import annotations

import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from test_ray import files
from trainings import config, train

from vista.runs.config import TrainConfig
from vista.training.api import execute_jobs
from vista.training.clusters import slurm
from vista.training.events import Event, Finished, Interrupted, Lost, Placed, Started
from vista.training.scheduler import Job

pytestmark = [
    pytest.mark.faults,  # submitit leaves the processes of its local executor to the garbage collector
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
EPOCHS = 30
METHODS = ("ce", "vista")

# Acts as sbatch, srun, scancel, scontrol and sacct: tasks are processes, and their ids are in files.
SLURM = """\
#!PYTHON
import os, pathlib, re, signal, subprocess, sys
name, words, home = pathlib.Path(sys.argv[0]).name, sys.argv[1:], pathlib.Path(os.environ["FAKE_SLURM"])
pid = lambda task: home / f"task-{task}"

def start(task):
    number, _, index = task.partition("_")
    env = {**os.environ, "SLURM_JOB_ID": number, "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    if index:
        env |= {"SLURM_ARRAY_JOB_ID": number, "SLURM_ARRAY_TASK_ID": index}
    with open(home / "log", "a") as log:
        process = subprocess.Popen(["bash", home / f"script-{number}"], env=env, stdout=log, stderr=log,
                                   start_new_session=True)
    pid(task).write_text(str(process.pid))

if name == "sbatch":
    text = pathlib.Path(words[-1]).read_text()
    if "--partition=missing" in text:
        sys.exit("sbatch: error: invalid partition specified: missing")
    number = 100 * (1 + len(list(home.glob("script-*"))))
    (home / f"script-{number}").write_text(text)
    last = re.search(r"--array=0-(\\d+)", text)
    for task in [f"{number}_{index}" for index in range(int(last[1]) + 1)] if last else [str(number)]:
        start(task)
    print(f"Submitted batch job {number}")
elif name == "srun":
    command = words[next(n for n, word in enumerate(words) if "python" in word):]
    os.execvp(command[0], command)
elif name == "scancel":
    group = int(pid(words[0]).read_text())
    try:
        os.killpg(group, signal.SIGTERM)
    except ProcessLookupError:
        pass
elif name == "scontrol":
    with open(home / "requeued", "a") as file:
        file.write(words[1] + "\\n")
    start(words[1])
elif name == "sacct":
    print("JobID|State|NodeList")
    for path in home.glob("task-*"):
        status = pathlib.Path(f"/proc/{path.read_text()}/stat")
        alive = status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"
        print(f"{path.name.removeprefix('task-')}|{'RUNNING' if alive else 'NODE_FAIL'}|node1")
"""


@pytest.fixture(scope="module")
def alone(data: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    root = tmp_path_factory.mktemp("alone")
    for method in METHODS:
        train(config(data, method, epochs=EPOCHS), root / method)
    return {method: files(root / method) for method in METHODS}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(slurm.__file__).parents[3]), *sys.path]))
    monkeypatch.setattr(slurm, "SECONDS_BETWEEN_STATES", 0.5)


@pytest.fixture
def locally(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are processes of submitit's local executor."""
    import submitit

    def make(folder: Path, partition: str, device: str) -> submitit.LocalExecutor:
        executor = submitit.LocalExecutor(folder, max_num_timeout=100)
        executor.update_parameters(timeout_min=5)
        return executor

    monkeypatch.setattr(slurm, "make_executor", make)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs that act as SLURM, first in PATH; returns the folder of their files."""
    home = tmp_path / "slurm"
    home.mkdir()
    for name in ("sbatch", "srun", "scancel", "scontrol", "sacct"):
        program = home / name
        program.write_text(SLURM.replace("PYTHON", sys.executable))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{home}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(home))
    return home


def jobs_in(out: Path, data: str) -> list[Job]:
    return [Job(config(data, method, epochs=EPOCHS), out / method) for method in METHODS]


def execute(jobs: list[Job], show: Callable[[Job, Event], None] = lambda _job, _event: None, on: str = "slurm") -> None:
    execute_jobs(jobs, show, on=on)


def until_it_trains(out: Path) -> None:
    record = out / "epochs.jsonl"
    while not record.exists() or record.read_text().count("\n") < 2:
        time.sleep(0.01)


def task_that_trains(out: Path) -> int:
    """The process that trains in a folder, as its lock names it."""
    return int((out / "lock").read_text().split()[1])


def signalled_once(out: Path, number: int) -> Callable[[Job, Event], None]:
    """Signal the first task that has trained two epochs."""
    sent: list[int] = []

    def show(job: Job, event: Event) -> None:
        if isinstance(event, Started) and not sent:
            until_it_trains(job.out)
            sent.append(task_that_trains(job.out))
            os.kill(sent[0], number)

    return show


@pytest.mark.usefixtures("locally")
def test_a_task_at_its_time_limit_is_requeued_and_ends_with_the_same_bytes(
    data: str, tmp_path: Path, alone: dict[str, dict[str, str]]
) -> None:
    out, started = tmp_path / "grid", []
    jobs, act = jobs_in(out, data), signalled_once(out, signal.SIGUSR2)

    def show(job: Job, event: Event) -> None:
        if isinstance(event, Started):
            started.append((job.out.name, event.epoch))
        act(job, event)

    execute(jobs, show)
    assert [job.error for job in jobs] == [None, None]
    assert len(started) == 3
    assert started[-1][1] > 1
    assert {job.out.name: files(job.out) for job in jobs} == alone
    assert not (out / "slurm" / "tasks.json").exists()


@pytest.mark.usefixtures("locally")
def test_a_failing_run_does_not_end_the_others(data: str, tmp_path: Path) -> None:
    jobs = [
        Job(config(data, network="trainings:breaks_in_batch_4"), tmp_path / "grid" / "breaks"),
        Job(config(data), tmp_path / "grid" / "ok"),
    ]
    execute(jobs)
    assert "the loss is not finite in epoch 2, step 2" in str(jobs[0].error)
    assert jobs[1].metrics is not None


@pytest.mark.usefixtures("locally")
def test_ctrl_c_checkpoints_everywhere_and_the_same_command_continues(
    data: str, tmp_path: Path, alone: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "grid"

    pressed = []

    def interrupt(job: Job, event: Event) -> None:
        if isinstance(event, Started) and not pressed:
            pressed.append(job)
            until_it_trains(job.out)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        execute(jobs_in(out, data), interrupt)
    assert not all((out / method / "metrics.json").exists() for method in METHODS)
    jobs, resumed = jobs_in(out, data), []

    def show(job: Job, event: Event) -> None:
        if isinstance(event, Started):
            resumed.append(event.epoch)

    execute(jobs, show)
    assert max(resumed) > 1
    assert {job.out.name: files(job.out) for job in jobs} == alone


def test_an_array_is_submitted_and_a_lost_task_runs_again(
    data: str, tmp_path: Path, fake: Path, alone: dict[str, dict[str, str]]
) -> None:
    out, seen = tmp_path / "grid", []
    jobs, act = jobs_in(out, data), signalled_once(out, signal.SIGKILL)

    def show(job: Job, event: Event) -> None:
        if isinstance(event, Placed | Lost | Finished):
            seen.append(type(event))
        act(job, event)

    execute(jobs, show, on="slurm:gpus")
    script = (fake / "script-100").read_text()
    for line in ("--array=0-1%2", "--partition=gpus", "--signal=USR2@120", "--job-name=vista"):
        assert f"#SBATCH {line}" in script.replace("'", "")
    assert "gpus-per-node" not in script
    assert seen.count(Lost) == 1
    assert seen.count(Finished) == 2
    assert {job.out.name: files(job.out) for job in jobs} == alone


def test_a_requeued_task_of_an_array_continues(
    data: str, tmp_path: Path, fake: Path, alone: dict[str, dict[str, str]]
) -> None:
    out = tmp_path / "grid"
    jobs = jobs_in(out, data)
    execute(jobs, signalled_once(out, signal.SIGUSR1))
    assert (fake / "requeued").read_text().count("\n") == 1
    assert {job.out.name: files(job.out) for job in jobs} == alone


def test_sbatchs_refusal_is_reported(data: str, tmp_path: Path, fake: Path) -> None:
    with pytest.raises(RuntimeError, match=r"SLURM did not accept the runs: .*invalid partition specified: missing"):
        execute(jobs_in(tmp_path / "grid", data), on="slurm:missing")


def test_a_gpu_is_requested_unless_the_device_is_the_cpu(tmp_path: Path, fake: Path) -> None:
    for device, expected in (("cuda", True), ("cpu", False)):
        executor = slurm.make_executor(tmp_path / "jobs", "", device)
        assert ("gpus-per-node=1" in executor._make_submission_file_text("x", "y")) is expected


def test_slurm_must_be_there(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ValueError, match="needs sbatch and srun on this machine: run the command on a login node"):
        execute(jobs_in(tmp_path / "grid", data))
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ImportError, match=r"pip install 'vista-distill\[slurm\]'"):
        execute(jobs_in(tmp_path / "grid", data))


def test_data_that_a_node_does_not_see_stop_the_grid(tmp_path: Path, locally: None) -> None:
    job = Job(TrainConfig(data="cifar100", root=str(tmp_path / "nowhere"), device="cpu"), tmp_path / "grid" / "ce")
    with pytest.raises(ValueError, match=r"--data cifar100 cannot be read on .*nowhere.*--root must be visible"):
        execute([job])
