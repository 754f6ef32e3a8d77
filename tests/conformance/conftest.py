"""What every method is tested on: 300 digits, a fifth of their labels wrong, a network with four tiny stages.

A method's runs are made once and shared by all tests that look at them.
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
    """``benchmark(name)``: the program of that name, imported."""

    def imported(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, PROJECT / "benchmarks" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return imported


@pytest.fixture(scope="session")
def make_config(tmp_path_factory: pytest.TempPathFactory) -> MakeConfig:
    """``make_config(method, **changes)``: ten steps an epoch, the last of them short."""
    shipped, path = digits.load(), tmp_path_factory.mktemp("data") / "digits.npz"
    np.savez(
        path,
        x_train=shipped.inputs[shipped.for_training[:375]],
        y_train=shipped.labels[shipped.for_training[:375]],
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
    """``trained(method)``: its finished run, never stopped on the way."""
    root = tmp_path_factory.mktemp("unbroken")

    def run(method: str) -> RunFolder:
        for _ in train(make_config(method), root / method):
            pass
        return RunFolder.open(root / method)

    return run


def stop_at(config: TrainConfig, out: Path, epoch: int, samples: int, role: str | None = None) -> list[Event]:
    """Train in ``out`` until so many samples of an epoch are done, of the run itself or of one it needs first."""
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
    raise AssertionError(f"the run in {out} went to its end")


@pytest.fixture(scope="session")
def stopped(make_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RunFolder]:
    """``stopped(method)``: its run, stopped in epoch 3; a run that it needs first was stopped on the way, too."""
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
