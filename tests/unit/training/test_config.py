"""A run is what its configuration says: two that differ are two runs, and one goes by one name."""

from __future__ import annotations

import pytest
import torch

from vista import models
from vista.data import augment
from vista.training.config import MAX_SEED, TrainConfig


def drawn(seed: int) -> list[float]:
    """What a run begins with: weights, and the order of its samples."""
    weights = next(models.build("mlp", num_classes=2, in_channels=1, image_size=2, seed=seed).parameters())
    order = torch.randperm(100, generator=augment.generator(seed, 1, 0))
    return [*weights.detach().flatten().tolist(), *order.tolist()]


@pytest.mark.parametrize("name", ["seed", "noise_seed", "split_seed"])
def test_a_seed_that_would_draw_what_another_one_draws_is_refused(name: str) -> None:
    assert TrainConfig(**{name: MAX_SEED}) != TrainConfig(**{name: MAX_SEED - 1})
    with pytest.raises(ValueError, match=f"{name} is {MAX_SEED + 1}, but it must lie between 0 and {MAX_SEED}"):
        TrainConfig(**{name: MAX_SEED + 1})
    assert drawn(MAX_SEED + 1) == drawn(0)
    assert len({tuple(drawn(seed)) for seed in (0, 1, 2**29, 2**31, MAX_SEED - 1, MAX_SEED)}) == 6
