"""A capturable method reads no tensor value on the host and keeps its tensors at fixed addresses.

`tests/unit/training/test_cuda.py` compares captured with eager steps on a GPU; the requirements are checked here.
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

# Operations that synchronise with the host or whose output shape depends on values.
SYNCS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique_dim", "_unique2", "bincount"}


class HostSyncError(Exception):
    pass


class ForbidHostSync(TorchDispatchMode):
    """Raise if an operation reads a tensor value on the host."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in SYNCS:
            raise HostSyncError(f"the step reads a value through {func}: it cannot be captured")
        return func(*args, **(kwargs or {}))


def addresses(method: Method, network: nn.Module) -> dict[str, int]:
    """Addresses of weights and buffers, which a replayed graph reads and writes."""
    return {
        f"{owner}.{name}": tensor.data_ptr()
        for owner, module in (("method", method), ("network", network))
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }


@pytest.fixture
def monitor(monkeypatch: pytest.MonkeyPatch):
    """``monitor(method)``: forbid host syncs in its steps and return a list that collects the addresses of each."""

    def install(method: type[Method]) -> list[dict[str, int]]:
        loss, after_step, seen = method.loss, method.after_step, []

        def monitored_loss(self: Method, network: nn.Module, batch: Batch) -> torch.Tensor:
            with ForbidHostSync():
                value = loss(self, network, batch)
            seen.append(addresses(self, network))
            return value

        def monitored_after_step(self: Method, network: nn.Module) -> None:
            with ForbidHostSync():
                after_step(self, network)
            seen.append(addresses(self, network))

        monkeypatch.setattr(method, "loss", monitored_loss)
        monkeypatch.setattr(method, "after_step", monitored_after_step)
        return seen

    return install


@pytest.mark.parametrize("method", [name for name, m in available().items() if m.capturable])
def test_capturable_step_has_no_host_sync_and_fixed_addresses(
    make_config, monitor, tmp_path: Path, method: str
) -> None:
    """Over two epochs, to include the hooks between them."""
    seen = monitor(available()[method])
    for _ in train(make_config(method, epochs=2), tmp_path / "run"):
        pass
    assert len(seen) == 2 * 20, "loss and after_step of 20 steps"
    assert all(one == seen[0] for one in seen)


class ReadsValue(Method):
    name = "reads-value"
    family = "plain"
    summary = cost = keeps = source = "a method that cannot be captured"

    def loss(self, network: nn.Module, batch: Batch) -> torch.Tensor:
        loss = super().loss(network, batch)
        return loss * 2 if loss > 1 else loss


class ReplacesBuffer(Method):
    name = "replaces-buffer"
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


def test_monitor_detects_host_sync_and_replaced_buffer(make_config, monitor, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(methods, "_registered", {"reads-value": ReadsValue, "replaces-buffer": ReplacesBuffer})
    monitor(ReadsValue)
    with pytest.raises(HostSyncError):
        list(train(make_config("reads-value"), tmp_path / "one"))
    seen = monitor(ReplacesBuffer)
    list(train(make_config("replaces-buffer", epochs=2), tmp_path / "two"))
    assert any(one != seen[0] for one in seen)
