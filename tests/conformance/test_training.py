"""Every method trains, resumes byte-identically, saves its state and leaves a plain network."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from vista import models
from vista.analysis.groups import group_runs, read_runs
from vista.analysis.table import comparison
from vista.files import atomic
from vista.methods import available
from vista.reproduce.ledger import add, read_record
from vista.runs.checkpoint import BLOBS, FOLDER, Checkpoints, split
from vista.runs.folder import EARLIER, RunFolder
from vista.training import preflight
from vista.training.build import build_training
from vista.training.events import Finished, Stepped
from vista.training.loop import train
from vista.training.network import load_model
from vista.training.resolve import choose_method, resolve

METHODS = list(available())
CHANCE = 0.1
NOT_REPRODUCIBLE = {"timings.jsonl", "environment.json", "lock", "manifest.json"}  # the last with their hashes
Run = Callable[[str], RunFolder]


def read_files(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name not in NOT_REPRODUCIBLE)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def earlier_roles(method: str, make_config) -> list[str]:
    chosen = choose_method(make_config(method))
    return [need.role for need in chosen.method.earlier_runs(chosen.config)]


# The cross-entropy of the pyramid, through three levels of BatchNorm, teaches little in 40 steps.
SLOW = {"frskd": 8}  # epochs


@pytest.mark.parametrize("method", METHODS)
def test_learns(trained: Run, make_config, method: str, tmp_path: Path) -> None:
    if method in SLOW:
        for event in train(make_config(method, epochs=SLOW[method]), tmp_path / "run"):
            if isinstance(event, Finished):
                metrics = event.metrics
    else:
        metrics = trained(method).metrics()
    assert metrics["last"]["test"]["top1"] > 3 * CHANCE
    assert metrics["best"]["test"]["top1"] > 3 * CHANCE


@pytest.mark.parametrize("method", METHODS)
def test_saved_model_is_plain_network(trained: Run, method: str) -> None:
    plain = models.build("tiny-staged", num_classes=10, in_channels=1, image_size=8).state_dict()
    for which in ("best", "last"):
        saved = trained(method).weights(which)
        assert {name: tensor.shape for name, tensor in saved.items()} == {n: t.shape for n, t in plain.items()}
        network = load_model(trained(method).path, which)
        assert torch.isfinite(network(torch.zeros(2, 1, 8, 8))).all()


def flatten_state(state: dict[str, Any]) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return a method's state as stored in a checkpoint: JSON, and tensors by path."""
    skeleton, tensors, blobs = split(state)
    return skeleton, {**tensors, **{f"{path}/{name}": t for path, group in blobs.items() for name, t in group.items()}}


def are_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        one[path].dtype == other[path].dtype and torch.equal(one[path], other[path]) for path in one
    )


@pytest.mark.parametrize("method", METHODS)
def test_state_survives_checkpoint(stopped: Run, make_config, tmp_path: Path, method: str) -> None:
    run = stopped(method)
    checkpoints = Checkpoints(run.path)
    saved = checkpoints.load(checkpoints.names()[0])
    earlier = {role: load_model(run.path / EARLIER / role) for role in earlier_roles(method, make_config)}
    fresh = build_training(resolve(make_config(method)), RunFolder(tmp_path), earlier)
    wanted, tensors = flatten_state(saved["method"])
    if wanted:
        assert not are_equal(flatten_state(fresh.method.state_dict())[1], tensors), "the state did not change"
    fresh.load(saved)
    loaded, loaded_tensors = flatten_state(fresh.method.state_dict())
    assert loaded == wanted
    assert are_equal(loaded_tensors, tensors)


@pytest.mark.parametrize("method", METHODS)
def test_resumed_run_is_byte_identical(trained: Run, stopped: Run, make_config, tmp_path: Path, method: str) -> None:
    resumed = tmp_path / "run"
    shutil.copytree(stopped(method).path, resumed)
    events = list(train(make_config(method), resumed))
    assert min(event.epoch for event in events if isinstance(event, Stepped)) == 3, "it restarted"
    unbroken, broken = read_files(trained(method).path), read_files(resumed)
    assert broken.keys() == unbroken.keys()
    assert [name for name in unbroken if broken[name] != unbroken[name]] == []


@pytest.mark.parametrize("method", METHODS)
def test_earlier_runs_are_made_once(trained: Run, stopped: Run, make_config, method: str) -> None:
    """They are stored below the run's folder and not repeated after resuming."""
    roles = earlier_roles(method, make_config)
    folder = trained(method).path / EARLIER
    assert sorted(path.name for path in folder.glob("*")) == sorted(roles)
    for role in roles:
        assert RunFolder.open(folder / role).is_finished()
    if roles:
        before = read_files(stopped(method).path / EARLIER)
        events = train(make_config(method), stopped(method).path)
        for role in roles:
            finished = next(events)
            assert isinstance(finished, Finished)
            assert finished.role == role
        next(events)
        events.close()
        assert read_files(stopped(method).path / EARLIER) == before


@pytest.mark.parametrize("method", METHODS)
def test_reported_time_includes_earlier_runs(trained: Run, tmp_path: Path, method: str) -> None:
    """The time is equal in comparisons, reports and the ledger."""
    run = trained(method)
    records = [run.record(), *(RunFolder(path).record() for path in (run.path / EARLIER).glob("*"))]
    total = sum(record.seconds() for record in records)
    if len(records) > 1:
        run = RunFolder(tmp_path / method)
        shutil.copytree(trained(method).path, run.path)
        (run.path / EARLIER / ".DS_Store").touch()  # left by a file manager
    (row,) = comparison(group_runs(read_runs([run.path])))
    minutes = row.cells["minutes"]
    assert minutes is not None
    assert run.seconds() == pytest.approx(total)
    assert 60 * minutes.mean == pytest.approx(total)
    assert read_record(add(run, tmp_path / "results", with_bits=False)).seconds == pytest.approx(total, abs=0.051)


@pytest.mark.parametrize("method", METHODS)
def test_checkpoints_need_no_more_disk_space_than_declared(
    make_config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """With a checkpoint at every step, including while one is written; only tensor bytes are counted."""
    declared, used, out = [], [0], RunFolder(tmp_path / "run")
    compute = preflight.bytes_of_checkpoints
    monkeypatch.setattr(preflight, "bytes_of_checkpoints", lambda *of: declared.append(compute(*of)) or declared[-1])

    def measure(what: str, path: Path) -> None:
        if {FOLDER, BLOBS} & {*path.parts}:  # runs in the thread that writes and deletes checkpoints
            used.append(count_tensor_bytes(out))

    monkeypatch.setattr(atomic, "on_write", measure)
    for _ in train(make_config(method, epochs=2, checkpoint_seconds=0.0), out.path):
        pass
    assert 0.3 * declared[-1] < max(used) <= declared[-1]


def count_tensor_bytes(run: RunFolder) -> int:
    """Count the bytes of the files without their headers."""
    total = 0
    for folder in (FOLDER, BLOBS):
        for path in (run.path / folder).rglob("*.safetensors"):
            content = path.read_bytes()
            total += max(0, len(content) - 8 - int.from_bytes(content[:8], "little"))
    return total
