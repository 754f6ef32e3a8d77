"""How a run is built."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trainings import config

from vista.training import setup
from vista.training.run_folder import RunFolder


def test_a_runs_stream_waits_for_what_built_it(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run works on a stream of its own, but is built on the default one, whose kernels may come late.

    On a busy card they did: a run's learning rates overwrote 32 bytes of an index that was still to be read.
    """
    done: list[object] = []

    class Engine(setup.Engine):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            done.append("built")
            self.stream: Any = SimpleNamespace(wait_stream=lambda other: done.append(other))

    monkeypatch.setattr(setup, "Engine", Engine)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"the default stream of {device}")
    setup.prepare(config(data).resolved(), RunFolder(tmp_path / "run"), {})
    assert done == ["built", "the default stream of cpu"]
