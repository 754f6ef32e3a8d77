"""Fixtures of the conformance tests: 300 digits, 20 % wrong labels, a small network with four stages.

The runs of a method are made once per session and shared by the tests.
"""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from vista.data import digits
from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.training.events import Event, Interrupted, Started, Stepped, Stop
from vista.training.loop import train
from vista.training.resolve import choose_method

PROJECT = Path(__file__).parents[2]
EPOCHS = 4
MakeConfig = Callable[..., TrainConfig]


@pytest.fixture(scope="session")
def benchmark() -> Callable[[str], ModuleType]:
    """``benchmark(name)``: the imported module ``benchmarks/NAME.py``."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, PROJECT / "benchmarks" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def make_config(tmp_path_factory: pytest.TempPathFactory) -> MakeConfig:
    """``make_config(method, **changes)``: ten steps per epoch, the last one short."""
    shipped, path = digits.load(), tmp_path_factory.mktemp("data") / "digits.npz"
    np.savez(
        path,
        x_train=shipped.inputs[shipped.train_ids[:375]],
        y_train=shipped.labels[shipped.train_ids[:375]],
        x_test=shipped.test_samples()[:100],
        y_test=shipped.test_labels[:100],
    )

    def make(method: str, **changes: Any) -> TrainConfig:
        settings: dict[str, Any] = {
            "data": f"npz:{path}", "noise": "symmetric:0.2", "network": "tiny-staged", "epochs": EPOCHS,
            "batch_size": 32, "lr": 0.1, "flip": False, "padding": 1, "validation": 75, "device": "cpu",
        }  # fmt: skip
        return TrainConfig(method=method, **{**settings, **changes})

    return make


@pytest.fixture(scope="session")
def trained(make_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RunFolder]:
    """``trained(method)``: its finished run, never interrupted."""
    root = tmp_path_factory.mktemp("unbroken")

    def run(method: str) -> RunFolder:
        for _ in train(make_config(method), root / method):
            pass
        return RunFolder.open(root / method)

    return run


def stop_at(config: TrainConfig, out: Path, epoch: int, samples: int, role: str | None = None) -> list[Event]:
    """Train in ``out`` and stop in ``epoch`` after ``samples`` samples, in the run or its earlier run ``role``."""
    stop, events, running = Stop(), [], None
    try:
        for event in train(config, out, stop):
            events.append(event)
            if isinstance(event, Started):
                running = event.role
            if isinstance(event, Stepped) and (running, event.epoch) == (role, epoch) and event.samples >= samples:
                stop.signal = signal.SIGTERM
    except Interrupted:
        return events
    raise AssertionError(f"the run in {out} finished before it was stopped")


@pytest.fixture(scope="session")
def stopped(make_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RunFolder]:
    """``stopped(method)``: its run, stopped in epoch 3; its earlier runs were stopped and resumed as well."""
    root = tmp_path_factory.mktemp("broken")

    def run(method: str) -> RunFolder:
        out, config = root / method, make_config(method)
        if not out.exists():
            chosen = choose_method(config)
            for need in chosen.method.earlier_runs(chosen.config):
                stop_at(config, out, 2, 100, need.role)
            stop_at(config, out, 3, 100)
        return RunFolder.open(out)

    return run
