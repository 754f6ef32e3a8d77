"""``torchrun -m vista train``: one training, one voice; stopped by its launcher, it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trainings import HELD_OUT, ended_as

from vista.training.checkpoint import Checkpoints
from vista.training.run_folder import RunFolder

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]
LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "vista"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def started(command: str, *flags: str) -> subprocess.Popen[str]:
    words = [*LAUNCHER, command, *flags, "--json"]
    return subprocess.Popen(words, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def train_flags(data: str, out: Path) -> list[str]:
    values = {
        "data": data, "noise": "symmetric:0.4", "method": "vista", "network": "tiny-staged", "epochs": 20,
        "batch-size": 12, "validation": HELD_OUT, "device": "cpu", "checkpoint-seconds": 600, "out": out,
    }  # fmt: skip
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


def result(process: subprocess.Popen[str]) -> dict:
    out, said = process.communicate(timeout=200)
    assert process.returncode == 0, said
    return dict(json.loads(out))


def test_stopped_by_the_launcher_it_goes_on_to_the_same_bytes(data: str, tmp_path: Path) -> None:
    whole = result(started("train", *train_flags(data, tmp_path / "whole")))
    out = tmp_path / "run"
    record = out / "epochs.jsonl"
    with started("train", *train_flags(data, out)) as process:
        while process.poll() is None and not (record.exists() and len(record.read_bytes().splitlines()) >= 3):
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode != 0
    assert said.count("vista: stopped by SIGTERM; what was done is saved.") == 1
    assert len(Checkpoints(out).names()) == len(Checkpoints(out, rank=1).names()) == 1
    resumed = result(started("resume", str(out)))
    assert resumed["metrics"] == whole["metrics"]
    assert ended_as(out, 0) == ended_as(tmp_path / "whole", 0)
    assert RunFolder.open(out).environment()["processes"] == 2
