"""A run that is out of GPU memory waits for the others, or names a batch size that fits; the error is faked."""

from __future__ import annotations

import gc
import re
import signal
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from trainings import config, ended_as, noting_states, train

from vista.cli.errors import exit_code
from vista.training import loop
from vista.training.engine import Engine
from vista.training.events import Event, Interrupted, Started
from vista.training.memory import largest_batch
from vista.training.scheduler import Job, run_jobs

FREE = 10_000


@pytest.mark.parametrize(
    ("fixed", "below", "fits"), [(1_000, 256, 64), (1_000, 33, 32), (1_000, 8, 4), (9_000, 64, None)]
)
def test_the_batch_size_is_extrapolated_from_two_small_ones(fixed: int, below: int, fits: int | None) -> None:
    assert largest_batch(lambda size: fixed + 100 * size, FREE, below) == fits


@pytest.mark.parametrize(
    ("per_sample", "advice"),
    [
        (700, "8 should fit, use --batch-size 8 --fresh (adding --accumulate 8"),
        (6_000, "use a smaller --batch-size, --image-size or --network"),
    ],
)
def test_the_error_names_a_batch_size_that_fits(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_sample: int, advice: str
) -> None:
    step, alive = Engine._step, []

    def out_of_memory(engine: Engine, size: int, *rest: object) -> None:
        if size * per_sample > FREE:
            activations = torch.zeros(size)
            alive.append(weakref.ref(activations))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        step(engine, size, *rest)

    def peak_bytes(engine: Engine, size: int) -> int:
        assert alive[0]() is None, "the tensors of the failed step are freed before memory is measured"
        engine._step(size, False, engine.network)
        return size * per_sample

    monkeypatch.setattr(Engine, "_step", out_of_memory)
    monkeypatch.setattr(Engine, "peak_bytes", peak_bytes)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (FREE, FREE))
    with pytest.raises(RuntimeError, match=re.escape(advice)) as found:
        train(config(data, "ce", epochs=2, batch_size=64), tmp_path / "run")
    assert "\n" not in str(found.value)
    assert exit_code(found.value) == 1


@pytest.fixture
def memory_for_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step fails while more than two trainings are in memory; a smaller batch does not fit either."""
    trainings: list[weakref.ref[Any]] = []
    build, step = loop.build_training, Engine._step

    def alive() -> int:
        return sum(training() is not None for training in trainings)

    def watched(*given: Any) -> Any:
        training = build(*given)
        trainings.append(weakref.ref(training))
        return training

    def out_of_memory(engine: Engine, *rest: Any) -> None:
        if alive() > 2 and (gc.collect() >= 0 and alive() > 2):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        step(engine, *rest)

    monkeypatch.setattr(loop, "build_training", watched)
    monkeypatch.setattr(Engine, "_step", out_of_memory)
    monkeypatch.setattr(Engine, "peak_bytes", lambda *_: FREE)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (0, FREE))


@pytest.mark.usefixtures("memory_for_two")
def test_a_run_without_memory_beside_others_waits_for_one_to_end(data: str, tmp_path: Path) -> None:
    jobs = [Job(config(data, method), tmp_path / method) for method in ("ce", "elr", "vista", "sat")]
    started: list[str] = []

    def show(job: Job, event: Event) -> None:
        if isinstance(event, Started):
            started.append(job.out.name)

    words = r"too little memory for 3 runs at once: .*/ce resumes .* at most 2 train"
    with noting_states(), pytest.warns(UserWarning, match=words):
        run_jobs(jobs, show, at_once=3)
    assert [job.error for job in jobs] == [None] * 4
    assert started[:3] == ["ce", "elr", "vista"]
    assert sorted(started[3:]) == ["ce", "sat"]
    train(jobs[0].config, tmp_path / "alone")
    assert ended_as(tmp_path / "ce") == ended_as(tmp_path / "alone")


@pytest.mark.usefixtures("memory_for_two")
@pytest.mark.filterwarnings("ignore:the GPU has too little memory")
def test_a_run_that_waits_for_memory_is_stopped_with_the_others(data: str, tmp_path: Path) -> None:
    jobs = [Job(config(data, method), tmp_path / method) for method in ("ce", "elr", "vista")]

    def stop(job: Job, event: Event) -> None:
        if not isinstance(event, Started):
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted):
        run_jobs(jobs, stop, at_once=3)
    run_jobs(jobs, lambda *_: None, at_once=2)
    assert all(job.metrics for job in jobs)
