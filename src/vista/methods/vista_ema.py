"""VISTA in the space of weights: past weights averaged by marginal coverage, and the network drawn towards them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vista import coverage, exchange, schedule, teacher
from vista.checks import unit_interval
from vista.methods.base import EpochEnd, Method, Task, WrittenOnce
from vista.store import states_at_most

NEUTRAL: dict[str, Any] = {"cap": 0.0}


def average_weights(states: dict[int, Tensor], weights: dict[int, float]) -> Tensor:
    r""":math:`\bar\theta = \sum_s \hat\Delta_s \theta_s`, ``[P]``, summed in the order of the epochs."""
    total = torch.zeros_like(states[min(weights)])
    for s in sorted(weights):
        total.add_(states[s], alpha=weights[s])
    return total


def flatten_parameters(network: nn.Module) -> Tensor:
    """All parameters as one vector ``[P]``, a copy."""
    return torch.cat([p.detach().flatten() for p in network.parameters()])


@torch.no_grad()
def pull_towards(network: nn.Module, target: Tensor, share: float) -> None:
    r""":math:`\theta \leftarrow (1-b)\,\theta + b\,\bar\theta`, in place."""
    start = 0
    for parameter in network.parameters():
        parameter.lerp_(target[start : start + parameter.numel()].view(parameter.shape), share)
        start += parameter.numel()


@torch.no_grad()
def re_estimate_batchnorm(network: nn.Module, pictures: Callable[[], Iterator[Tensor]]) -> None:
    """Running statistics of the network's present weights: means over one clean pass, the same on every rank."""
    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats]
    if not norms:
        return
    modes, momenta = {m: m.training for m in network.modules()}, [norm.momentum for norm in norms]
    network.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.train()
    seen = 0
    for batch in pictures():
        seen += len(batch)
        for norm in norms:
            norm.momentum = len(batch) / seen  # every picture counts the same, however the batches are cut
        network(batch)
    for norm, momentum in zip(norms, momenta):
        norm.momentum = momentum
        for statistic in norm.buffers():
            exchange.broadcast(statistic)
    for module, mode in modes.items():
        module.training = mode


class VistaEma(Method):
    name = "vista-ema"
    family = "ours"
    summary = "Past weights averaged by marginal coverage; the network is drawn towards them each epoch"
    cost = "1 forward, 1 backward; a forward over the training set per epoch"
    keeps = "the weights of each anchor"
    source = "Corn and Weinshall, VISTA, an ablation"
    reconstruction = True

    @dataclass(frozen=True)
    class Config:
        tau: float = 0.01
        """Prune states that add at most this fraction of the validation set; 0 keeps the weights of most epochs."""
        cap: float = 0.5
        """Most that the network is drawn towards the average in one epoch."""
        k: float = 2.0
        """Curvature of the schedule by which the share rises."""

        def __post_init__(self) -> None:
            coverage.check_tau(self.tau)
            unit_interval(self.cap, "cap")
            schedule.check_form(self.k, "exp", None)

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        self._bytes_per_state = sum(p.nbytes for p in network.parameters())
        self._states: dict[int, Tensor] = {}  # weights [P] of the anchors, by epoch, on the host
        self._bits = coverage.pack(np.zeros((0, len(task.val_labels)), np.bool_))  # what these have right, oldest first

    def end_epoch(self, end: EpochEnd) -> dict[str, Any]:
        """Admit the new state, prune, and draw the network towards the anchors' mean.

        The last epoch's network stays as it was evaluated.
        """
        weights = self._admit(end)
        share = min(schedule.beta(end.epoch, self.task.epochs, self.config.k), self.config.cap)
        if weights and share > 0 and end.epoch < self.task.epochs:
            average = average_weights(self._states, weights)
            pull_towards(end.network, average.to(next(end.network.parameters()).device), share)
            re_estimate_batchnorm(end.network, end.train_pictures)
        return {"beta": share, "anchors": len(weights)}

    def _admit(self, end: EpochEnd) -> dict[int, float]:
        """The weights of the states that stay once the new one has joined."""
        correct = (end.val_logits.argmax(dim=1) == self.task.val_labels).cpu().numpy()
        states, newest = (
            {**self._states, end.epoch: flatten_parameters(end.network).cpu()},
            coverage.pack(correct[None]),
        )
        kept, counts, self._bits = coverage.admit(
            sorted(self._states), self._bits, end.epoch, newest, m=len(correct), tau=self.config.tau
        )
        self._states = {s: states[s] for s in kept}
        return teacher.normalise(dict(zip(kept, counts.tolist(), strict=True)))

    def bytes_written_once(self) -> int:
        return self._bytes_per_state * states_at_most(self.task.epochs, self.config.tau)

    def advice_for_less_room(self) -> str:
        return f"; a tau above {self.config.tau:g} keeps the weights of fewer epochs, or use --out on a larger disk"

    def get_extra_state(self) -> dict[str, Any]:
        return {
            "checkpoints": WrittenOnce({str(s): weights for s, weights in self._states.items()}),
            "coverage": torch.from_numpy(self._bits.view(np.uint8).copy()),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._states = {int(s): weights.cpu() for s, weights in state["checkpoints"].items()}
        self._bits = np.ascontiguousarray(state["coverage"].cpu().numpy()).view(np.uint64)
