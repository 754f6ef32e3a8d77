"""On CUDA: captured equals eager, concurrent equals alone, resumed equals uninterrupted."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from vista import Vista
from vista.methods import available
from vista.runs.config import TrainConfig
from vista.training import loop
from vista.training.engine import Engine
from vista.training.events import Interrupted, Stop
from vista.training.loop import train
from vista.training.scheduler import Job, deterministic, run_jobs

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # compilers and drivers have much to say
]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("data")
    labels = np.arange(600) % 10
    images = rng.integers(0, 128, (600, 32, 32, 3)) + rng.integers(0, 128, (10, 32, 32, 3))[labels]
    path = folder / "images.npz"
    train_part, test_part = slice(0, 500), slice(500, 600)
    np.savez(
        path,
        x_train=images[train_part].astype(np.uint8),
        y_train=labels[train_part],
        x_test=images[test_part].astype(np.uint8),
        y_test=labels[test_part],
    )
    return TrainConfig(
        data=f"npz:{path}",
        noise="symmetric:0.4",
        network="tiny-staged",
        epochs=3,
        batch_size=64,
        lr=0.05,
        precision="fp32",
        deterministic=True,
        compile=False,
        device="cuda",
    )


def run(config: TrainConfig, out: Path) -> dict[str, torch.Tensor]:
    job = Job(config, out)
    run_jobs([job], lambda _job, _event: None)
    if job.error:
        raise job.error
    return load_file(out / "last.safetensors")


def furthest(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[k].double() - other[k].double()).abs().max()) for k in one)


@pytest.mark.parametrize("method", [name for name, m in available().items() if m.capturable])
def test_captured_steps_equal_eager_ones(config: TrainConfig, method: str, tmp_path: Path) -> None:
    chosen = replace(config, method=method, epochs=2)
    captured = run(chosen, tmp_path / "captured")
    eager = run(replace(chosen, capture=False), tmp_path / "eager")
    assert furthest(captured, eager) < 1e-4


def test_compiled_steps_agree_with_eager_ones(config: TrainConfig, tmp_path: Path) -> None:
    compiled = run(replace(config, compile=True, epochs=2), tmp_path / "compiled")
    eager = run(replace(config, capture=False, epochs=2), tmp_path / "eager")
    assert furthest(compiled, eager) < 0.05  # rounding of other kernels, over 16 steps


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_compiled_training_learns(config: TrainConfig, precision: str, tmp_path: Path) -> None:
    """Images stay where they are: a class of this data is a pattern of pixels."""
    plain = replace(config, noise="none", padding=0, flip=False, epochs=10, precision=precision)
    job = Job(replace(plain, deterministic=False, compile=True), tmp_path / "run")
    run_jobs([job], lambda _job, _event: None)
    assert job.metrics is not None
    assert job.metrics["last"]["test"]["top1"] > 0.8


def test_side_by_side_equals_alone(config: TrainConfig, tmp_path: Path) -> None:
    jobs = [Job(replace(config, method=m, seed=s), tmp_path / f"{m}{s}") for m in ("ce", "vista") for s in (0, 1)]
    run_jobs(jobs, lambda _job, _event: None, at_once=4)
    for job in jobs:
        assert job.error is None
        alone = run(job.config, tmp_path / "alone" / job.out.name)
        assert furthest(alone, load_file(job.out / "last.safetensors")) == 0.0


def test_one_that_fails_does_not_stop_the_others(config: TrainConfig, tmp_path: Path) -> None:
    jobs = [Job(replace(config, lr=1e30), tmp_path / "bad"), Job(config, tmp_path / "good")]
    run_jobs(jobs, lambda _job, _event: None, at_once=2)
    assert isinstance(jobs[0].error, FloatingPointError)
    assert "epoch 1, step" in str(jobs[0].error)
    assert jobs[1].error is None
    assert jobs[1].metrics is not None


def test_a_run_starts_while_another_thread_copies_a_checkpoint(config: TrainConfig, tmp_path: Path) -> None:
    weights, ended = torch.zeros(1_000_000, device="cuda"), threading.Event()

    def copy() -> None:
        while not ended.is_set():
            weights.clone().cpu()

    thread = threading.Thread(target=copy)
    thread.start()
    try:
        run(config, tmp_path / "run")
    finally:
        ended.set()
        thread.join()


def test_looking_at_one_portion_of_steps_does_not_wait_for_the_next(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[torch.cuda.Event] = []
    advance = Engine.advance

    def slowly(engine: Engine, steps: int) -> None:
        advance(engine, steps)
        torch.cuda._sleep(500_000_000)  # a quarter of a second or more
        ends.append(torch.cuda.Event())
        ends[-1].record()

    monkeypatch.setattr(loop, "STEPS_PER_PORTION", 1)
    monkeypatch.setattr(Engine, "advance", slowly)
    with deterministic(True):
        events = train(config, tmp_path / "run")
        while len(ends) < 3:
            next(events)
        assert ends[0].query()
        assert not ends[1].query()
        events.close()


@pytest.mark.parametrize(
    ("method", "network"),
    [
        *((method, "tiny-staged") for method in ("ce", "vista", "vista-light", "sd-dropout")),
        ("vista", "trainings:drops"),
    ],
)
def test_resumed_equals_unbroken(config: TrainConfig, method: str, network: str, tmp_path: Path) -> None:
    chosen = replace(config, method=method, network=network, checkpoint_seconds=0.0)
    unbroken = run(chosen, tmp_path / "unbroken")
    stop, events = Stop(), 0
    with deterministic(True), suppress(Interrupted):
        for _ in train(chosen, tmp_path / "broken", stop):
            events += 1
            if events == 4:
                stop.signal = 15
    assert not (tmp_path / "broken" / "metrics.json").exists()
    assert furthest(run(chosen, tmp_path / "broken"), unbroken) == 0.0


def make_vista() -> tuple[Vista, torch.Tensor, torch.Tensor]:
    labels, val_labels = torch.arange(500) % 10, torch.arange(50) % 10
    vista = Vista(labels, num_classes=10, epochs=3, val_labels=val_labels, device="cuda")
    logits = torch.randn(64, 10, device="cuda", requires_grad=True)
    index = torch.arange(64, device="cuda") * 7
    vista.loss(logits, index)  # the first call may load kernels
    return vista, logits, index


def test_no_host_sync_in_loss_targets_and_record() -> None:
    vista, logits, index = make_vista()
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode("error")
        vista.loss(logits, index).backward()
        vista.targets(index)
        vista.record(logits, index)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_what_is_not_finite_is_never_stored_and_reported_at_the_epochs_end() -> None:
    vista, logits, index = make_vista()
    before = vista.state_dict()["current"]
    bad = logits.detach().clone()
    bad[3, 2] = float("nan")
    vista.loss(bad.requires_grad_(), index)
    after = vista.state_dict()["current"]
    assert torch.equal(after[index[3]], before[index[3]])
    assert torch.isfinite(after).all()
    with pytest.raises(FloatingPointError, match=r"epoch 1.*sample 21"):
        vista.end_epoch(torch.randn(50, 10, device="cuda"))


def test_an_index_out_of_range_is_masked_and_reported_at_the_epochs_end() -> None:
    vista, logits, index = make_vista()
    before = vista.state_dict()["current"]
    vista.loss(logits, index + 500)
    vista.loss(logits, index - 500)
    assert torch.equal(vista.state_dict()["current"], before)
    with pytest.raises(IndexError, match="above 499"):
        vista.end_epoch(torch.randn(50, 10, device="cuda"))


def test_of_a_sample_seen_twice_the_last_prediction_stands() -> None:
    vista, _, _ = make_vista()
    for _ in range(20):
        logits = torch.randn(2000, 10, device="cuda", requires_grad=True)
        index = torch.randint(0, 40, (2000,), device="cuda")
        vista.loss(logits, index)
        stored = vista.state_dict()["current"]
        last = {int(i): row for row, i in enumerate(index.tolist())}
        for sample, row in last.items():
            torch.testing.assert_close(stored[sample].float(), logits[row].softmax(0), atol=1e-3, rtol=0)
