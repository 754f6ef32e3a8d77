"""Fixtures for tests of single methods: a small task, a hand-made batch, a one-layer network.

Most fixtures return the class or function of their name: ``def test_it(make_task, FakeBatch, Linear5)``. Tests can
import modules of this folder, such as ``by_hand``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vista.methods.base import Task
from vista.models import build

sys.path.insert(0, str(Path(__file__).parent))


def _make_task(
    num_samples: int = 12,
    num_classes: int = 5,
    epochs: int = 10,
    steps_per_epoch: int = 3,
    batch_size: int = 4,
    **kw: Any,
) -> Task:
    """Sample ``i`` has label ``i mod K``; keyword arguments override fields of :class:`Task`."""
    task = Task(
        labels=torch.arange(num_samples) % num_classes,
        val_labels=torch.arange(num_classes),
        num_classes=num_classes,
        epochs=epochs,
        steps_per_epoch=steps_per_epoch,
        batch_size=batch_size,
        device=torch.device("cpu"),
        generator=torch.Generator().manual_seed(0),
    )
    task = replace(task, **kw)
    return replace(task, has_missing_labels=bool((task.labels < 0).any()))


class _FakeBatch:
    """A batch with the given samples; ``views`` are tensors (view 1, view 2) or a function of (number, index)."""

    def __init__(
        self,
        x: Tensor,
        index: Tensor | Sequence[int],
        partner: Tensor | Sequence[int] | None = None,
        share: float | Tensor | None = None,
        views: Sequence[Tensor] | Callable[[int, Tensor | None], Tensor] | None = None,
        pairs: Tensor | Sequence[int] | None = None,
        validation: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self.x = x
        self.index = torch.as_tensor(index)
        self.partner = None if partner is None else torch.as_tensor(partner)
        self.share = None if share is None else torch.as_tensor(share, dtype=torch.float32).reshape(1)
        self._views, self._pairs, self._validation = views, pairs, validation

    def view(self, number: int = 1, index: Tensor | None = None) -> Tensor:
        assert self._views is not None, "the method requested a view, but the test provides none"
        return self._views(number, index) if callable(self._views) else self._views[number - 1]

    def same_class(self) -> Tensor:
        assert self._pairs is not None, "the method requested pairs, but the test provides none"
        return torch.as_tensor(self._pairs)

    def validation(self) -> tuple[Tensor, Tensor]:
        assert self._validation is not None, "the method requested validation samples, but the test provides none"
        return self._validation


class _Linear5(nn.Module):
    """Logits ``[B, 5]`` of flat features ``[B, inputs]`` from one linear layer with seeded weights."""

    def __init__(self, inputs: int = 3, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(5, inputs, generator=generator))
        self.bias = nn.Parameter(torch.randn(5, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x.flatten(1), self.weight, self.bias)


@pytest.fixture
def make_task() -> Callable[..., Task]:
    return _make_task


@pytest.fixture
def FakeBatch() -> type[_FakeBatch]:
    return _FakeBatch


@pytest.fixture
def Linear5() -> type[_Linear5]:
    return _Linear5


@pytest.fixture
def network() -> nn.Module:
    """A network with four stages."""
    return build("tiny-staged", num_classes=5, in_channels=1, image_size=8)


@pytest.fixture
def batch(FakeBatch: type[_FakeBatch]) -> _FakeBatch:
    """Four images for ``network``."""
    return FakeBatch(torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(1)), [0, 3, 5, 9])
