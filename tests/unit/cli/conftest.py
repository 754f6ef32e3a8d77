"""Commands are called in this process, on a data set and a network so small that a run takes a moment."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from vista.cli import main


@dataclass(frozen=True)
class Said:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Vista = Callable[..., Said]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("VISTA_DATA", "VISTA_DEBUG", "COLUMNS", "WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def vista(capfd: pytest.CaptureFixture[str]) -> Vista:
    """Call ``vista`` with these words."""

    def call(*words: str) -> Said:
        capfd.readouterr()
        code = main(words)
        out, err = capfd.readouterr()
        return Said(code, out, err)

    return call


@pytest.fixture
def port() -> Iterator[str]:
    """A port for this test alone: it is bound here, so that no other process gets it, but nothing listens on it."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield str(kept.getsockname()[1])


def in_two_processes(port: str, *words: str) -> tuple[Said, Said]:
    """Call ``vista`` with these words as ``torchrun`` would, and what either process left behind."""
    environment = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "vista", *words],
            env={**os.environ, **environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    said = [process.communicate(timeout=400) for process in processes]
    first, second = (Said(process.returncode, *words) for process, words in zip(processes, said, strict=True))
    return first, second


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three classes of six features each, 120 training and 30 test samples."""
    generator = np.random.default_rng(5)
    y_train, y_test = np.arange(120) % 3, np.arange(30) % 3
    centres = generator.normal(size=(3, 6)) * 2
    path = tmp_path_factory.mktemp("data") / "blobs.npz"
    arrays = {
        f"x_{n}": (centres[y] + generator.normal(size=(len(y), 6))) for n, y in (("train", y_train), ("test", y_test))
    }
    np.savez(path, y_train=y_train, y_test=y_test, **{name: x.astype(np.float32) for name, x in arrays.items()})
    return f"npz:{path}"


@pytest.fixture
def small(data: str) -> tuple[str, ...]:
    """Options of a run that takes a moment."""
    return ("--data", data, "--noise", "symmetric:0.2", "--epochs", "3", "--lr", "0.05", "--device", "cpu")


@pytest.fixture
def trained(vista: Vista, small: tuple[str, ...]) -> Path:
    """A finished run."""
    assert vista("train", *small, "--method", "vista", "--out", "trained", "--quiet").code == 0
    Path("trained/manifest.json").unlink()  # tests edit its files; checksums have their own tests
    return Path("trained")
