"""VISTA-EMA (reconstruction): the network is pulled towards a mean of past weights, weighted by marginal coverage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vista.core import collectives, coverage, teacher
from vista.core.options import beta, check_form
from vista.core.store import states_at_most
from vista.core.validation import unit_interval
from vista.methods.base import EpochEnd, Method, Task, WrittenOnce

NEUTRAL: dict[str, Any] = {"cap": 0.0}


def average_weights(states: dict[int, Tensor], weights: dict[int, float]) -> Tensor:
    r""":math:`\bar\theta = \sum_s \hat\Delta_s \theta_s`, ``[P]``, summed in epoch order."""
    total = torch.zeros_like(states[min(weights)])
    for s in sorted(weights):
        total.add_(states[s], alpha=weights[s])
    return total


def flatten_parameters(network: nn.Module) -> Tensor:
    """Copy all parameters into one vector ``[P]``."""
    return torch.cat([p.detach().flatten() for p in network.parameters()])


@torch.no_grad()
def pull_towards(network: nn.Module, target: Tensor, share: float) -> None:
    r""":math:`\theta \leftarrow (1-b)\,\theta + b\,\bar\theta`, in place."""
    start = 0
    for parameter in network.parameters():
        parameter.lerp_(target[start : start + parameter.numel()].view(parameter.shape), share)
        start += parameter.numel()


@torch.no_grad()
def re_estimate_batchnorm(network: nn.Module, images: Callable[[], Iterator[Tensor]]) -> None:
    """Recompute the running statistics over one pass without augmentation; equal on every rank."""
    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats]
    if not norms:
        return
    modes, momenta = {m: m.training for m in network.modules()}, [norm.momentum for norm in norms]
    network.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.train()
    seen = 0
    for batch in images():
        seen += len(batch)
        for norm in norms:
            norm.momentum = len(batch) / seen  # every image has the same weight, whatever the batch sizes
        network(batch)
    for norm, momentum in zip(norms, momenta):
        norm.momentum = momentum
        for statistic in norm.buffers():
            collectives.broadcast(statistic)
    for module, mode in modes.items():
        module.training = mode


class VistaEma(Method):
    name = "vista-ema"
    family = "ours"
    summary = "The network is pulled every epoch towards a mean of past weights, weighted by marginal coverage"
    cost = "1 forward, 1 backward; one forward pass over the training set per epoch"
    keeps = "the weights of each anchor"
    source = "Corn and Weinshall, VISTA, an ablation"
    reconstruction = True

    @dataclass(frozen=True)
    class Config:
        tau: float = 0.01
        """Drop epochs that add at most this fraction of the validation set; 0 keeps the weights of most epochs."""
        cap: float = 0.5
        """Maximum share by which the network moves to the average in one epoch."""
        k: float = 2.0
        """Curvature of the schedule of that share."""

        def __post_init__(self) -> None:
            coverage.check_tau(self.tau)
            unit_interval(self.cap, "cap")
            check_form(self.k, "exp", None)

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        self._bytes_per_state = sum(p.nbytes for p in network.parameters())
        self._states: dict[int, Tensor] = {}  # weights [P] of the anchors, by epoch, in host memory
        self._bits = coverage.pack(np.zeros((0, len(task.val_labels)), np.bool_))  # their coverage, oldest first

    def end_epoch(self, end: EpochEnd) -> dict[str, Any]:
        """Add the new state, prune, and pull the network towards the anchors' mean, except after the last epoch."""
        weights = self._add_state(end)
        share = min(beta(end.epoch, self.task.epochs, self.config.k), self.config.cap)
        if weights and share > 0 and end.epoch < self.task.epochs:
            average = average_weights(self._states, weights)
            pull_towards(end.network, average.to(next(end.network.parameters()).device), share)
            re_estimate_batchnorm(end.network, end.train_images)
        named = {str(state): weight for state, weight in weights.items()}
        return {"beta": share, "anchors": len(weights), "anchor_weights": named}

    def _add_state(self, end: EpochEnd) -> dict[int, float]:
        """Add the new state and return the weights of the anchors."""
        states = {**self._states, end.epoch: flatten_parameters(end.network).cpu()}
        newest = coverage.pack(end.val_correct[None])
        kept, counts, self._bits = coverage.add_state(
            sorted(self._states), self._bits, end.epoch, newest, m=len(end.val_correct), tau=self.config.tau
        )
        self._states = {s: states[s] for s in kept}
        return teacher.normalise(dict(zip(kept, counts.tolist(), strict=True)))

    def bytes_written_once(self) -> int:
        return self._bytes_per_state * states_at_most(self.task.epochs, self.config.tau)

    def advice_for_less_disk_space(self) -> str:
        return f"; increase tau above {self.config.tau:g} to keep fewer epochs, or use --out on a larger disk"

    def get_extra_state(self) -> dict[str, Any]:
        return {
            "checkpoints": WrittenOnce({str(s): weights for s, weights in self._states.items()}),
            "coverage": torch.from_numpy(self._bits.view(np.uint8).copy()),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._states = {int(s): weights.cpu() for s, weights in state["checkpoints"].items()}
        self._bits = np.ascontiguousarray(state["coverage"].cpu().numpy()).view(np.uint64)
