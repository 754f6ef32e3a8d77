"""Earlier runs that a method needs: another seed, the same labels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from trainings import config

from vista.runs.config import MAX_SEED, TrainConfig
from vista.runs.folder import RunFolder
from vista.training import loop
from vista.training.events import Finished, Started
from vista.training.resolve import identity, resolve
from vista.training.state import Training


@pytest.mark.parametrize(("method", "generations"), [("ban:generations=2", 3), ("tf-kd-self", 2)])
def test_a_generation_is_fresh_but_for_its_labels(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, generations: int
) -> None:
    begun: list[tuple[Tensor, Tensor, Tensor]] = []
    start = loop._start_or_resume

    def noted(training: Training, checkpoints: loop.Checkpoints) -> None:
        start(training, checkpoints)
        weights = torch.cat([p.detach().flatten() for p in training.network.parameters()])
        begun.append((weights, training.loader.order.clone(), training.loader.draws.clone()))

    monkeypatch.setattr(loop, "_start_or_resume", noted)
    events = list(loop.train(config(data, method, epochs=2, checkpoint_seconds=60.0), tmp_path / "run"))
    assert len(begun) == generations
    for one in range(generations):
        for other in range(one):
            for drawn, drawn_before in zip(begun[one], begun[other], strict=True):
                assert not torch.equal(drawn, drawn_before)
    folders = [RunFolder(event.folder) for event in events if isinstance(event, Finished)]
    assert len({folder.labels().hash for folder in folders}) == len({folder.split().hash for folder in folders}) == 1
    seeds = [event.config.seed for event in events if isinstance(event, Started)]
    assert seeds == [loop.SEED_OFFSET_OF_EARLIER_RUN * back for back in reversed(range(generations))]


def test_what_is_learnt_from_an_earlier_run_is_its_best_epoch(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[dict[str, Tensor]] = []
    prepare = loop.build_training

    def noted(configuration: TrainConfig, folder: RunFolder, earlier: dict[str, nn.Module]) -> Training:
        taken.extend(network.state_dict() for network in earlier.values())
        return prepare(configuration, folder, earlier)

    monkeypatch.setattr(loop, "build_training", noted)
    list(loop.train(config(data, "ban", lr=1.0, seed=2, checkpoint_seconds=60.0), tmp_path / "run"))
    teacher = RunFolder(tmp_path / "run" / "earlier" / "teacher")
    assert teacher.metrics()["best"]["epoch"] < 3
    (used,), best = taken, teacher.weights("best")
    assert all(torch.equal(used[name], best[name]) for name in best)


def test_a_run_has_its_name_while_what_it_needs_is_made(data: str, tmp_path: Path) -> None:
    """Killed then, it could not be listed or resumed."""
    wanted = config(data, "ban", epochs=2, checkpoint_seconds=60.0)
    events = loop.train(wanted, tmp_path / "run")
    assert isinstance(next(events), Started)
    assert next(events)
    assert identity(RunFolder.open(tmp_path / "run").config()) == resolve(wanted).identity
    events.close()
    assert [type(event) for event in loop.train(wanted, tmp_path / "run")].count(Finished) == 2


def test_after_the_largest_seed_those_of_earlier_runs_begin_again_at_0(data: str, tmp_path: Path) -> None:
    wanted = config(data, "ban", epochs=2, seed=MAX_SEED, checkpoint_seconds=60.0)
    seeds = [event.config.seed for event in loop.train(wanted, tmp_path / "run") if isinstance(event, Started)]
    assert seeds == [loop.SEED_OFFSET_OF_EARLIER_RUN - 1, MAX_SEED]


def test_seeds_of_their_own_for_noise_and_split_stay(data: str, tmp_path: Path) -> None:
    wanted = config(data, "ban", epochs=2, noise_seed=5, checkpoint_seconds=60.0)
    list(loop.train(wanted, tmp_path / "run"))
    teacher = RunFolder(tmp_path / "run" / "earlier" / "teacher")
    assert (teacher.config().noise_seed, teacher.config().split_seed) == (5, 0)
    assert teacher.labels().hash == RunFolder(tmp_path / "run").labels().hash
    assert teacher.split().hash == RunFolder(tmp_path / "run").split().hash
