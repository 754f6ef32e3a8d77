"""Killed at any instant and resumed, a run ends with the same bytes as one never killed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from reliability import record
from trainings import Kill, Trainer, config, ended_as

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]
STEPS = 11  # an epoch, of which two processes may save at the first and at the eleventh


@pytest.mark.parametrize("method", ["vista", "vista:store=host"])
def test_at_every_write(trainer: Trainer, data: str, tmp_path: Path, method: str) -> None:
    wanted = config(data, method)
    trainer(wanted, tmp_path / "whole")
    whole, writes = ended_as(tmp_path / "whole"), 0
    while True:
        out = tmp_path / str(writes + 1)
        if not trainer(wanted, out, Kill(write=writes + 1)).killed:
            break
        writes += 1
        trainer(wanted, out)
        assert ended_as(out) == whole, f"killed at write {writes}"
    assert writes > 150, "every checkpoint, record and result is written under the hook"
    record("kills at every write", kills=writes, resumed=writes)


@pytest.mark.parametrize("method", ["vista", "vista:store=host"])
@pytest.mark.parametrize("rank", [0, 1])
def test_at_writes_of_either_process(trainer: Trainer, data: str, tmp_path: Path, rank: int, method: str) -> None:
    wanted = config(data, method, batch_size=12)
    trainer(wanted, tmp_path / "whole", processes=2)
    whole, write = ended_as(tmp_path / "whole", 2), 3
    while trainer(wanted, tmp_path / str(write), Kill(write=write, rank=rank), processes=2).killed:
        trainer(wanted, tmp_path / str(write), processes=2)
        assert ended_as(tmp_path / str(write), 2) == whole, f"killed at write {write} of process {rank}"
        write += 11
    assert write > 80
    kills = len(range(3, write, 11))
    record(f"kills at writes of process {rank} of 2", kills=kills, resumed=kills)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("method", ["ce", "vista", "vista-light", "vista-light:store=host"])
def test_at_random_instants(trainer: Trainer, data: str, tmp_path: Path, method: str, processes: int) -> None:
    wanted = config(data, method, batch_size=12, cutmix=0.5)
    trainer(wanted, tmp_path / "whole", processes=processes)
    whole = ended_as(tmp_path / "whole", processes)
    generator = np.random.default_rng([len(method), processes])
    instants = {f"random {n}": int(generator.integers(6 * n + 1, 6 * n + 7)) for n in range(5)}
    kills = {name: Kill(event="Stepped", count=count) for name, count in instants.items()}
    kills["between"] = Kill(event="EpochEnded", count=2)
    resumed_at = []
    for name, kill in kills.items():
        chosen = Kill(**{**vars(kill), "seconds": generator.uniform(0, 0.01), "rank": len(resumed_at) % processes})
        assert trainer(wanted, tmp_path / name, chosen, processes).killed
        resumed_at.append(trainer(wanted, tmp_path / name, processes=processes).began_at)
        assert ended_as(tmp_path / name, processes) == whole, f"killed at {chosen}, resumed at {resumed_at[-1]}"
    assert any(1 < step < STEPS for _, step in resumed_at) or processes > 1
    assert any(epoch > 1 for epoch, _ in resumed_at)
    record(f"kills at random instants of {method}, {processes} processes", kills=len(kills), resumed=len(resumed_at))


def test_again_and_again(trainer: Trainer, data: str, tmp_path: Path) -> None:
    """A run that is killed after every 64 writes, 40 of which are its start, still finishes."""
    wanted = config(data)
    trainer(wanted, tmp_path / "whole")
    starts = 1
    while trainer(wanted, tmp_path / "killed", Kill(write=64)).killed:
        starts += 1
        assert starts < 20, "a killed run makes no progress"
    assert starts > 3
    assert ended_as(tmp_path / "killed") == ended_as(tmp_path / "whole")
    record("kills again and again", kills=starts - 1, resumed=starts - 1)
