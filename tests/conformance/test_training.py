"""Every method trains, stops and goes on to the same bytes, keeps its state, and leaves a plain network behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from vista import models
from vista.analysis.groups import grouped, read_runs
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
MADE_BY_THE_CLOCK = {"timings.jsonl", "environment.json", "lock"}
Run = Callable[[str], RunFolder]


def files(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name not in MADE_BY_THE_CLOCK)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def earlier_roles(method: str, make_config) -> list[str]:
    chosen = choose_method(make_config(method))
    return [need.role for need in chosen.method.earlier_runs(chosen.config)]


@pytest.mark.parametrize("method", METHODS)
def test_it_learns(trained: Run, method: str) -> None:
    metrics = trained(method).metrics()
    assert metrics["last"]["test"]["top1"] > 3 * CHANCE
    assert metrics["best"]["test"]["top1"] > 3 * CHANCE


@pytest.mark.parametrize("method", METHODS)
def test_what_is_saved_is_the_plain_network(trained: Run, method: str) -> None:
    plain = models.build("tiny-staged", num_classes=10, in_channels=1, image_size=8).state_dict()
    for which in ("best", "last"):
        saved = trained(method).weights(which)
        assert {name: tensor.shape for name, tensor in saved.items()} == {n: t.shape for n, t in plain.items()}
        network = load_model(trained(method).path, which)
        assert torch.isfinite(network(torch.zeros(2, 1, 8, 8))).all()


def as_saved(state: dict[str, Any]) -> tuple[Any, dict[str, torch.Tensor]]:
    """A method's state as a checkpoint holds it: JSON, and tensors by path."""
    skeleton, tensors, blobs = split(state)
    return skeleton, {**tensors, **{f"{path}/{name}": t for path, group in blobs.items() for name, t in group.items()}}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        one[path].dtype == other[path].dtype and torch.equal(one[path], other[path]) for path in one
    )


@pytest.mark.parametrize("method", METHODS)
def test_its_state_survives_the_disk(stopped: Run, make_config, tmp_path: Path, method: str) -> None:
    run = stopped(method)
    checkpoints = Checkpoints(run.path)
    saved = checkpoints.load(checkpoints.names()[0])
    earlier = {role: load_model(run.path / EARLIER / role) for role in earlier_roles(method, make_config)}
    fresh = build_training(resolve(make_config(method)), RunFolder(tmp_path), earlier)
    wanted, tensors = as_saved(saved["method"])
    if wanted:
        assert not same(as_saved(fresh.method.state_dict())[1], tensors), "two epochs have left no trace in the state"
    fresh.load(saved)
    loaded, loaded_tensors = as_saved(fresh.method.state_dict())
    assert loaded == wanted
    assert same(loaded_tensors, tensors)


@pytest.mark.parametrize("method", METHODS)
def test_stopped_and_resumed_it_ends_with_the_same_bytes(
    trained: Run, stopped: Run, make_config, tmp_path: Path, method: str
) -> None:
    resumed = tmp_path / "run"
    shutil.copytree(stopped(method).path, resumed)
    events = list(train(make_config(method), resumed))
    assert min(event.epoch for event in events if isinstance(event, Stepped)) == 3, "it began anew"
    unbroken, broken = files(trained(method).path), files(resumed)
    assert broken.keys() == unbroken.keys()
    assert [name for name in unbroken if broken[name] != unbroken[name]] == []


@pytest.mark.parametrize("method", METHODS)
def test_runs_it_needs_first_are_made_once(trained: Run, stopped: Run, make_config, method: str) -> None:
    """Below its own folder, and not again when it is resumed."""
    roles = earlier_roles(method, make_config)
    folder = trained(method).path / EARLIER
    assert sorted(path.name for path in folder.glob("*")) == sorted(roles)
    for role in roles:
        assert RunFolder.open(folder / role).is_finished()
    if roles:
        before = files(stopped(method).path / EARLIER)
        events = train(make_config(method), stopped(method).path)
        for role in roles:
            finished = next(events)
            assert isinstance(finished, Finished)
            assert finished.role == role
        next(events)
        events.close()
        assert files(stopped(method).path / EARLIER) == before


@pytest.mark.parametrize("method", METHODS)
def test_its_time_is_that_of_all_runs_it_took(trained: Run, tmp_path: Path, method: str) -> None:
    """The same in a comparison, on the page and in the ledger."""
    run = trained(method)
    records = [run.record(), *(RunFolder(path).record() for path in (run.path / EARLIER).glob("*"))]
    taken = sum(record.seconds() for record in records)
    if len(records) > 1:
        run = RunFolder(tmp_path / method)
        shutil.copytree(trained(method).path, run.path)
        (run.path / EARLIER / ".DS_Store").touch()  # as a file manager leaves it
    (row,) = comparison(grouped(read_runs([run.path])))
    minutes = row.cells["minutes"]
    assert minutes is not None
    assert run.seconds() == pytest.approx(taken)
    assert 60 * minutes.mean == pytest.approx(taken)
    assert read_record(add(run, tmp_path / "results", with_bits=False)).seconds == pytest.approx(taken, abs=0.051)


@pytest.mark.parametrize("method", METHODS)
def test_its_checkpoints_take_no_more_room_than_was_asked_for(
    make_config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Also while one is being written, with one at every step; what is asked for is of tensors, not of their names."""
    asked, taken, out = [], [0], RunFolder(tmp_path / "run")
    ask = preflight.bytes_of_checkpoints
    monkeypatch.setattr(preflight, "bytes_of_checkpoints", lambda *of: asked.append(ask(*of)) or asked[-1])

    def look(what: str, path: Path) -> None:
        if {FOLDER, BLOBS} & {*path.parts}:  # in the thread that writes them and deletes them
            taken.append(tensors_on_disk(out))

    monkeypatch.setattr(atomic, "on_write", look)
    for _ in train(make_config(method, epochs=2, checkpoint_seconds=0.0), out.path):
        pass
    assert 0.3 * asked[-1] < max(taken) <= asked[-1]


def tensors_on_disk(run: RunFolder) -> int:
    """Without the heads of the files, which name them."""
    total = 0
    for folder in (FOLDER, BLOBS):
        for path in (run.path / folder).rglob("*.safetensors"):
            content = path.read_bytes()
            total += max(0, len(content) - 8 - int.from_bytes(content[:8], "little"))
    return total
