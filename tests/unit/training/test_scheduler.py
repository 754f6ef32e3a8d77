"""Several runs in one process: each ends as if it were alone, and a failure does not affect the others."""

from __future__ import annotations

import errno
import gc
import json
import os
import signal
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from trainings import config, ended_as, noting_states, train

from vista.files import atomic
from vista.runs import checkpoint
from vista.training import loop
from vista.training import scheduler as drive_module
from vista.training.engine import NotFinite
from vista.training.events import (
    EpochEnded,
    Event,
    Finished,
    Interrupted,
    OutputClosed,
    Started,
    Stepped,
    closed_output_detected,
)
from vista.training.scheduler import Job, deterministic, run_jobs, stop_on_signals


def show_nothing(job: Job, event: Event) -> None:
    """Ignore events."""


@pytest.fixture(scope="module")
def alone(data: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Results of runs that have the process to themselves, by method."""
    root = tmp_path_factory.mktemp("alone")
    for method in ("ce", "vista", "elr"):
        train(config(data, method), root / method)
    return {method: ended_as(root / method) for method in ("ce", "vista", "elr")}


def names(events: list[tuple[str, Event]], kind: type) -> list[str]:
    return [name for name, event in events if isinstance(event, kind)]


def test_side_by_side_equals_alone(data: str, tmp_path: Path, alone: dict[str, dict[str, str]]) -> None:
    wanted = {method: config(data, method) for method in alone}
    jobs = [Job(configuration, tmp_path / "beside" / name) for name, configuration in wanted.items()]
    events: list[tuple[str, Event]] = []
    with noting_states():
        run_jobs(jobs, lambda job, event: events.append((job.out.name, event)), at_once=2)
    for job in jobs:
        assert job.error is None
        assert job.metrics is not None
        assert ended_as(job.out) == alone[job.out.name]
    ends = names(events, EpochEnded)
    assert ends[:4] == ["ce", "vista", "ce", "vista"], "two run in turn, the third waits"
    assert sorted(names(events, Finished)) == sorted(wanted)


def test_one_that_fails_does_not_stop_the_others(data: str, tmp_path: Path) -> None:
    jobs = [
        Job(config(data), tmp_path / "good"),
        Job(config(data, network="trainings:breaks_in_batch_4"), tmp_path / "breaks"),
        Job(config("npz:nowhere.npz"), tmp_path / "no data"),
        Job(config(data, "ce"), tmp_path / "last"),
    ]
    run_jobs(jobs, show_nothing, at_once=2)
    assert [job.error is None for job in jobs] == [True, False, False, True]
    assert [job.metrics is None for job in jobs] == [False, True, True, False]
    assert isinstance(jobs[1].error, NotFinite)
    assert isinstance(jobs[2].error, FileNotFoundError)


def test_each_run_resumes_with_its_own_number_of_threads(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: dict[str, int] = {}

    def noted(training: Any, _saving: object, _role: object) -> Any:
        taken[training.folder.path.name] = torch.get_num_threads()
        yield from ()
        return {}

    monkeypatch.setattr(loop, "_train_epochs", noted)
    jobs = [Job(config(data), tmp_path / str(count)) for count in (1, 3, 2)]
    for job in jobs:
        job.out.mkdir()
        (job.out / "environment.json").write_text(json.dumps({"threads": int(job.out.name)}))
    before = torch.get_num_threads()
    run_jobs(jobs, show_nothing, at_once=2)
    assert taken == {"1": 1, "3": 3, "2": 2}
    assert torch.get_num_threads() == before


def test_a_run_whose_environment_is_damaged_fails_alone(data: str, tmp_path: Path) -> None:
    jobs = [Job(config(data, seed=k), tmp_path / str(k)) for k in range(2)]
    jobs[0].out.mkdir()
    (jobs[0].out / "environment.json").write_text('{"threads": ')
    run_jobs(jobs, show_nothing)
    assert "environment.json is damaged: it is not JSON" in str(jobs[0].error)
    assert jobs[1].metrics is not None


def test_a_failed_run_leaves_the_memory_before_the_others_end(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks: list[weakref.ref[torch.nn.Module]] = []
    prepare = loop.build_training

    def watched(*given: Any) -> Any:
        training = prepare(*given)
        networks.append(weakref.ref(training.network))
        return training

    monkeypatch.setattr(loop, "build_training", watched)
    names = ("trainings:breaks_in_batch_4", "mlp")
    jobs = [Job(config(data, network=name), tmp_path / str(k)) for k, name in enumerate(names)]
    left: list[bool] = []

    def look(job: Job, event: Event) -> None:
        if job is jobs[1] and isinstance(event, EpochEnded):
            gc.collect()
            left.append(networks[0]() is not None)

    run_jobs(jobs, look, at_once=1)
    assert isinstance(jobs[0].error, NotFinite)
    assert not any(left)
    assert left


def test_a_finished_run_is_taken_as_it_is(data: str, tmp_path: Path) -> None:
    train(config(data), tmp_path / "run")
    before = ended_as(tmp_path / "run")
    left = tmp_path / "run" / "checkpoints" / "epoch-00001-step-0000000"  # killed after its metrics
    left.mkdir(parents=True)
    for name in checkpoint.FILES:
        (left / name).write_bytes(b"x")
    events = train(config(data), tmp_path / "run")
    assert [type(event) for event in events] == [Finished]
    assert ended_as(tmp_path / "run") == before, "and what it needed to resume is deleted"


def test_another_run_in_the_same_folder_is_rejected(data: str, tmp_path: Path) -> None:
    train(config(data), tmp_path / "run")
    with pytest.raises(ValueError, match=r"holds another run, with lr=0\.1 instead of 0\.2: choose another"):
        train(config(data, lr=0.2, root="elsewhere"), tmp_path / "run")


def test_metrics_that_do_not_say_of_what_run_are_nobodys(data: str, tmp_path: Path) -> None:
    """A run that was deleted by half leaves such."""
    train(config(data, "ce", epochs=2), tmp_path / "run")
    (tmp_path / "run" / "config.json").unlink()
    left = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        ValueError, match=r"run has metrics\.json but no config\.json, so it is unclear which run it holds: restore"
    ):
        train(config(data, lr=0.2), tmp_path / "run")
    assert sorted(tmp_path.rglob("*")) == left


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_with_a_checkpoint_each(
    data: str, tmp_path: Path, alone: dict[str, dict[str, str]], number: int
) -> None:
    jobs = [Job(config(data, method, checkpoint_seconds=60.0), tmp_path / method) for method in ("ce", "vista", "elr")]
    stepped = 0

    def send(job: Job, event: Event) -> None:
        nonlocal stepped
        stepped += isinstance(event, Stepped)
        if stepped == 5:
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    with pytest.raises(Interrupted) as raised:
        run_jobs(jobs, send, at_once=2)
    assert raised.value.signal == number
    assert signal.getsignal(number) is before
    saved = {job.out.name: [path.name for path in (job.out / "checkpoints").glob("*")] for job in jobs}
    assert saved == {"ce": ["epoch-00002-step-0000001"], "vista": ["epoch-00002-step-0000000"], "elr": []}
    events: list[tuple[str, Event]] = []
    with noting_states():
        run_jobs(jobs, lambda job, event: events.append((job.out.name, event)))
    assert {name: event.epoch for name, event in events if isinstance(event, Started)} == {
        "ce": 2,
        "vista": 2,
        "elr": 1,
    }
    for job in jobs:
        whole, ended = alone[job.out.name], ended_as(job.out)
        assert {name for name in whole if whole[name] != ended[name]} == {"config.json"}, "checkpoint_seconds"


def test_a_signal_when_a_run_has_just_ended_stops_before_the_next(data: str, tmp_path: Path) -> None:
    jobs = [Job(config(data, "ce", epochs=2, seed=seed), tmp_path / str(seed)) for seed in range(2)]

    def send(job: Job, event: Event) -> None:
        if isinstance(event, Finished):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted) as raised:
        run_jobs(jobs, send, at_once=1)
    assert (raised.value.folder, raised.value.signal) == (jobs[1].out, signal.SIGTERM)
    assert jobs[0].metrics is not None
    assert not jobs[1].out.exists()


def test_what_a_run_needs_first_goes_by_its_role_and_does_not_finish_the_run(data: str, tmp_path: Path) -> None:
    said: list[tuple[str, str | None, bool]] = []

    def look(job: Job, event: Event) -> None:
        if isinstance(event, Started | Finished):
            said.append((type(event).__name__, event.role, job.metrics is not None))

    run_jobs([Job(config(data, "ban", epochs=2), tmp_path / "run")], look)
    assert said == [
        ("Started", "teacher", False),
        ("Finished", "teacher", False),
        ("Started", None, False),
        ("Finished", None, True),
    ]


def test_a_step_tells_how_many_samples_were_seen_of_the_epochs(data: str, tmp_path: Path) -> None:
    events = train(config(data, "ce", epochs=2), tmp_path / "run")
    seen = [(event.epoch, event.samples) for event in events if isinstance(event, Stepped)]
    assert seen == [(1, 64), (1, 127), (2, 64), (2, 127)]


def test_a_second_ctrl_c_stops_at_once() -> None:
    with stop_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.signal == signal.SIGINT
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_the_end_of_a_terminal_is_ignored_where_it_was_before() -> None:
    """As `nohup` asks for."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.signal
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_cannot_be_shown_for_want_of_a_reader_stops_all_with_a_checkpoint_each(
    data: str, tmp_path: Path, alone: dict[str, dict[str, str]]
) -> None:
    jobs = [Job(config(data, method), tmp_path / method) for method in alone]

    def show(job: Job, event: Event) -> None:
        if isinstance(event, EpochEnded):
            raise OutputClosed

    with pytest.raises(Interrupted) as stopped:
        run_jobs(jobs, show, at_once=2)
    assert stopped.value.signal == signal.SIGPIPE
    started = [job for job in jobs if (job.out / "checkpoints").exists()]
    assert [job.out.name for job in started] == ["ce", "vista"]
    assert all(job.error is None for job in jobs)
    with noting_states():
        run_jobs(jobs, show_nothing)
    for job in jobs:
        assert ended_as(job.out) == alone[job.out.name]


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.EPIPE, OutputClosed), (errno.ECONNRESET, OutputClosed), (errno.EIO, OutputClosed), (errno.ENOSPC, OSError)],
)
def test_a_closed_output_is_distinguished_from_other_faults(number: int, kind: type[Exception]) -> None:
    with pytest.raises(kind) as raised, closed_output_detected():
        raise OSError(number, os.strerror(number))
    assert type(raised.value) is kind


def test_a_disk_error_while_an_event_is_shown_is_no_stop(data: str, tmp_path: Path) -> None:
    def show(job: Job, event: Event) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(OSError, match="Input/output error"):
        run_jobs([Job(config(data), tmp_path / "run")], show)


@pytest.mark.parametrize(
    ("file", "left"),
    [
        ("tensors.safetensors", 4),
        ("tensors.safetensors", 6),
        ("epochs.jsonl", 3),
        ("best.safetensors", 1),
        ("teacher.safetensors", 1),
        ("metrics.json", 1),
    ],
)
def test_a_full_disk_stops_the_run_which_resumes_from_its_checkpoint(
    data: str, tmp_path: Path, alone: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch, file: str, left: int
) -> None:
    """In the middle of the run, as far as the file is written there, and in its last checkpoint."""

    def fill(what: str, path: Path) -> None:
        nonlocal left
        if what == "half" and path.name == file:
            left -= 1
            if left == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic, "on_write", fill)
    out = tmp_path / "run"
    with pytest.raises(OSError, match=rf"cannot write .*{file}: No space left on device"):
        train(config(data), out)
    assert left == 0, "nothing more was tried"
    assert not list(out.rglob(".*")), "nothing is left half-written"
    assert not (out / "metrics.json").exists()
    events = train(config(data), out)
    assert isinstance(events[0], Started)
    assert events[0].epoch > 1, "it resumed from the last good checkpoint"
    assert ended_as(out) == alone["vista"]


@pytest.mark.parametrize("before", [True, False])
def test_deterministic_is_wanted_and_undone(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", before)
    for wanted in (False, True):
        with deterministic(wanted):
            assert torch.are_deterministic_algorithms_enabled() is wanted
            assert torch.backends.cudnn.benchmark is not wanted, "the fastest are found by trying"
            assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == (":4096:8" if wanted else None)
        assert not torch.are_deterministic_algorithms_enabled()
        assert torch.backends.cudnn.benchmark is before


def test_who_asked_for_warnings_alone_has_them_again_afterwards() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with deterministic(True):
            assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_one_run_that_is_to_be_deterministic_makes_all_beside_it_so(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact: list[bool] = []

    def noted(_config: object, _out: Path, _stop: object) -> Iterator[Event]:
        exact.append(torch.are_deterministic_algorithms_enabled())
        yield from ()

    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setattr(drive_module, "train", noted)
    run_jobs(
        [Job(config(data, deterministic=wanted), tmp_path / str(wanted)) for wanted in (False, True)], show_nothing
    )
    assert exact == [True, True]
