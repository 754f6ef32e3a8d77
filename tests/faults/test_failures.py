"""The n-th read, write, fsync, rename or thread start fails: the run resumes, and ends with the same bytes."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from failures import KINDS, Failures
from reliability import record
from trainings import config, ended_as, stopped, train

from vista.runs.checkpoint import BLOBS, FOLDER, UNUSED
from vista.runs.config import TrainConfig
from vista.training.resolve import choose_method

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]
EVERY, SAMPLED = 300, 8  # each of the first 300 operations, and a sample of those beyond in a long run
EPOCHS = {"new": 8, "resumed": 3, "long": 36}


def ended(out: Path) -> dict[str, str]:
    """The files that the seed decides, without a checkpoint that could not be read, and was kept with its blobs."""
    files = ended_as(out, 0)
    if any(UNUSED in name for name in files):
        return {name: digest for name, digest in files.items() if not name.startswith((FOLDER, BLOBS))}
    return files


def train_with(failures: Failures, wanted: TrainConfig, out: Path) -> BaseException | None:
    """Train with an injected failure; returns the error, if that stopped the run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with failures.injected():
                train(wanted, out)
        except (OSError, RuntimeError, ValueError) as error:
            return error
    return None


def numbers_to_fail(start: str, last: int) -> list[int]:
    """Which of the ``last`` operations of a run fail, one after the other."""
    if start != "long":
        return list(range(1, min(last, EVERY) + 1))
    beyond = np.arange(min(EVERY, last // 2) + 1, last + 1)
    return sorted(np.random.default_rng(last).choice(beyond, min(SAMPLED, len(beyond)), replace=False).tolist())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", EPOCHS)
def test_the_nth_operation_fails(data: str, tmp_path: Path, kind: str, start: str) -> None:
    """Files of the run and of its data; a resumed run is interrupted in its last epoch first."""
    wanted = config(data, epochs=EPOCHS[start])
    choose_method(wanted)
    interrupted = stopped(wanted, tmp_path / "interrupted", 3, 0) if start == "resumed" else None
    root = Path(os.path.commonpath([tmp_path, data.removeprefix("npz:")]))

    def new_run(name: str) -> Path:
        out = tmp_path / name / "run"
        out.parent.mkdir()
        return out if interrupted is None else Path(shutil.copytree(interrupted, out))

    counted, whole = Failures(kind, 0, root), new_run("whole")
    assert train_with(counted, wanted, whole) is None
    expected, last = ended(whole), counted.count
    numbers = numbers_to_fail(start, last)
    assert numbers
    errors = 0
    for number in numbers:
        out = new_run(f"{number}")
        failures = Failures(kind, number, root)
        error = train_with(failures, wanted, out)
        assert failures.failed, number
        if error is not None:
            errors += 1
            assert str(error), (number, type(error))
            assert not isinstance(error, RuntimeError) or "thread" in str(error), error
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                train(wanted, out)
        assert ended(out) == expected, f"{kind} {number} of {last}: {error}"
        shutil.rmtree(out.parent)
    record(f"failing {kind} of a {start} run", faults=len(numbers), stopped=errors, resumed=len(numbers))
