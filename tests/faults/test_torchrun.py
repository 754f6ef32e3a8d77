"""``torchrun -m vista train``: rank 0 prints for all; stopped by its launcher, the run resumes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from reliability import record
from trainings import HELD_OUT, ended_as, until_it_waits, waiting_at

from vista.runs.checkpoint import Checkpoints
from vista.runs.folder import RunFolder

pytestmark = pytest.mark.faults
LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "vista"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}

NETWORK = "trainings:waits_in_batch_13"


def started(command: str, *flags: str, place: Path | None = None) -> subprocess.Popen[str]:
    """``place`` is the file that the first process writes when it waits for a signal."""
    words, environment = [*LAUNCHER, command, *flags, "--json"], ENVIRONMENT | waiting_at(place)
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def train_flags(data: str, out: Path) -> list[str]:
    values = {
        "data": data, "noise": "symmetric:0.4", "method": "vista", "network": NETWORK,
        "epochs": 3, "batch-size": 12, "validation": HELD_OUT, "device": "cpu", "checkpoint-seconds": 600, "out": out,
    }  # fmt: skip
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


def result(process: subprocess.Popen[str]) -> dict:
    out, said = process.communicate(timeout=400)
    assert process.returncode == 0, said
    return dict(json.loads(out))


def test_stopped_by_the_launcher_it_resumes_to_the_same_bytes(data: str, tmp_path: Path) -> None:
    whole = result(started("train", *train_flags(data, tmp_path / "whole")))
    out, place = tmp_path / "run", tmp_path / "it waits"
    with started("train", *train_flags(data, out), place=place) as process:
        until_it_waits(process, place)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=400)
    assert process.returncode != 0
    assert said.count("vista: stopped by SIGTERM; progress is saved.") == 1
    assert Checkpoints(out).names() == Checkpoints(out, rank=1).names() == ["epoch-00002-step-0000010"]
    resumed = result(started("resume", str(out), "--network", NETWORK))
    assert resumed["metrics"] == whole["metrics"]
    assert ended_as(out, 0) == ended_as(tmp_path / "whole", 0)
    assert RunFolder.open(out).environment()["processes"] == 2
    record("torchrun stopped by its launcher", stops=1, resumed=1)
