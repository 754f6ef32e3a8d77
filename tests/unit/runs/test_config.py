"""The configuration identifies a run: different settings are different runs, and spellings of one are equal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from vista import models
from vista.data import augment
from vista.runs.config import MAX_SEED, TrainConfig
from vista.training.resolve import identity


def drawn(seed: int) -> list[float]:
    """The initial weights of a run and the order of its samples."""
    weights = next(models.build("mlp", num_classes=2, in_channels=1, image_size=2, seed=seed).parameters())
    order = torch.randperm(100, generator=augment.generator(seed, 1, 0))
    return [*weights.detach().flatten().tolist(), *order.tolist()]


@pytest.mark.parametrize("name", ["seed", "noise_seed", "split_seed"])
def test_a_seed_that_would_draw_what_another_one_draws_is_rejected(name: str) -> None:
    assert TrainConfig(**{name: MAX_SEED}) != TrainConfig(**{name: MAX_SEED - 1})
    with pytest.raises(ValueError, match=f"{name} must be between 0 and {MAX_SEED}, got {MAX_SEED + 1}"):
        TrainConfig(**{name: MAX_SEED + 1})
    assert drawn(MAX_SEED + 1) == drawn(0)
    assert len({tuple(drawn(seed)) for seed in (0, 1, 2**29, 2**31, MAX_SEED - 1, MAX_SEED)}) == 6


@pytest.mark.parametrize(
    ("spelled", "canonical"),
    [
        ("symmetric:0.40", "symmetric:0.4"),
        ("symmetric:4e-1", "symmetric:0.4"),
        (" asymmetric:.2 ", "asymmetric:0.2"),
        ("symmetric:0.4", "symmetric:0.4"),
        ("none", "none"),
        ("human", "human"),
        ("file:my labels/0.40.csv", "file:my labels/0.40.csv"),
    ],
)
def test_the_same_labels_are_the_same_run_however_their_noise_is_spelled(spelled: str, canonical: str) -> None:
    one, other = TrainConfig(noise=spelled), TrainConfig(noise=canonical)
    assert one.noise == other.noise == canonical
    assert identity(one) == identity(other)
    assert one == TrainConfig.from_json({**other.to_json(), "noise": spelled})


def test_every_run_of_the_ledger_has_the_identity_that_its_file_is_named_by() -> None:
    records = sorted((Path(__file__).parents[3] / "results" / "runs").glob("*.json"))
    assert len(records) > 40
    for path in records:
        kept = json.loads(path.read_text())["config"]
        config = TrainConfig.from_json(kept)
        assert path.stem.endswith(f"-seed{config.seed}-{identity(config)}"), path.name
        assert config.to_json() == {**config.to_json(), **kept}, path.name
