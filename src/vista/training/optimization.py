"""The optimiser of a run, and the learning rate of every step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from vista.runs.config import TrainConfig


def make_optimizer(config: TrainConfig, parameters: list[nn.Parameter], device: torch.device) -> torch.optim.SGD:
    """SGD whose momentum buffers exist from the start, so that its state has the same shape throughout."""
    on_cuda = device.type == "cuda"
    rate: Any = torch.zeros((), device=device) if on_cuda else 0.0
    optimizer = torch.optim.SGD(
        parameters,
        lr=rate,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        nesterov=config.nesterov,
        fused=on_cuda,
    )
    if config.momentum:
        for parameter in parameters:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def learning_rates(config: TrainConfig, epoch: int, steps: int) -> NDArray[np.float64]:
    r"""Learning rates ``[steps]`` of a 1-based epoch; a captured step reads them by its step counter.

    :math:`\frac{\eta}{2} (1 + \cos \pi u)`, with u the fraction of the cycle that has passed, counted in steps; a
    cycle is the whole training, or the epochs between two restarts. The schedule ``hold`` keeps the rate constant for
    ``hold_fraction`` of the epochs; its cycle is the rest.
    """
    if config.lr_schedule == "constant":
        return np.full(steps, config.lr)
    cycle = config.restart_epochs if config.lr_schedule == "restarts" else config.epochs
    passed = ((epoch - 1) % cycle * steps + np.arange(steps)) / (cycle * steps)
    if config.lr_schedule == "hold":
        passed = np.maximum(passed - config.hold_fraction, 0.0) / (1.0 - config.hold_fraction)
    return config.lr / 2 * (1 + np.cos(np.pi * passed))
