"""A method that claims capture never looks at a value in its step, and keeps its tensors where they are.

On a card `tests/unit/training/test_cuda.py` compares captured steps with eager ones; what makes capture possible can be
seen anywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from vista import methods
from vista.methods import Batch, Method, Task, available
from vista.training.loop import train

# What makes the host wait for a value, or gives a tensor whose shape depends on one.
LOOKS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique_dim", "_unique2", "bincount"}


class Looking(Exception):
    pass


class Blind(TorchDispatchMode):
    """Inside, no operation may look at a value."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in LOOKS:
            raise Looking(f"the step looks at a value by {func}: it cannot be captured")
        return func(*args, **(kwargs or {}))


def places(method: Method, network: nn.Module) -> dict[str, int]:
    """Where weights and buffers lie: a replayed graph reads and writes just there."""
    return {
        f"{owner}.{name}": tensor.data_ptr()
        for owner, module in (("method", method), ("network", network))
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }


@pytest.fixture
def blindfold(monkeypatch: pytest.MonkeyPatch):
    """``blindfold(method)``: its steps run blind from now on; returns the places seen at each of them."""

    def put_on(method: type[Method]) -> list[dict[str, int]]:
        loss, after_step, seen = method.loss, method.after_step, []

        def blind_loss(self: Method, network: nn.Module, batch: Batch) -> torch.Tensor:
            with Blind():
                value = loss(self, network, batch)
            seen.append(places(self, network))
            return value

        def blind_after_step(self: Method, network: nn.Module) -> None:
            with Blind():
                after_step(self, network)
            seen.append(places(self, network))

        monkeypatch.setattr(method, "loss", blind_loss)
        monkeypatch.setattr(method, "after_step", blind_after_step)
        return seen

    return put_on


@pytest.mark.parametrize("method", [name for name, m in available().items() if m.capturable])
def test_a_step_that_claims_capture_looks_at_nothing_and_moves_nothing(
    make_config, blindfold, tmp_path: Path, method: str
) -> None:
    """Over two epochs, so that what happens between them is seen as well."""
    seen = blindfold(available()[method])
    for _ in train(make_config(method, epochs=2), tmp_path / "run"):
        pass
    assert len(seen) == 2 * 20, "the loss and what follows it, at each of 20 steps"
    assert all(one == seen[0] for one in seen)


class Looks(Method):
    name = "looks"
    family = "plain"
    summary = cost = keeps = source = "a method that cannot be captured"

    def loss(self, network: nn.Module, batch: Batch) -> torch.Tensor:
        loss = super().loss(network, batch)
        return loss * 2 if loss > 1 else loss


class Moves(Method):
    name = "moves"
    family = "plain"
    summary = cost = keeps = source = "a method that cannot be captured"
    mean: torch.Tensor

    def __init__(self, task: Task, network: nn.Module, config: Any) -> None:
        super().__init__(task, network, config)
        self.register_buffer("mean", torch.zeros(()))

    def loss(self, network: nn.Module, batch: Batch) -> torch.Tensor:
        loss = super().loss(network, batch)
        self.mean = self.mean * 0.9 + loss.detach() * 0.1
        return loss


def test_the_blindfold_finds_a_look_and_a_move(make_config, blindfold, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(methods, "_registered", {"looks": Looks, "moves": Moves})
    blindfold(Looks)
    with pytest.raises(Looking):
        list(train(make_config("looks"), tmp_path / "looks"))
    seen = blindfold(Moves)
    list(train(make_config("moves", epochs=2), tmp_path / "moves"))
    assert any(one != seen[0] for one in seen)
