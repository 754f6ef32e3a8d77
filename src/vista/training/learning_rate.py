"""The learning rate of every step of an epoch, as a table: a captured step reads it by its counter."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vista.training.config import TrainConfig


def table(config: TrainConfig, epoch: int, steps: int) -> NDArray[np.float64]:
    r"""Learning rates ``[steps]`` of a 1-based epoch: :math:`\frac{\eta}{2} (1 + \cos \pi u)`, u the part of the cycle
    that has passed, counted in steps; a cycle is the whole training or the epochs between two restarts."""
    if config.lr_schedule == "constant":
        return np.full(steps, config.lr)
    cycle = config.restart_epochs if config.lr_schedule == "restarts" else config.epochs
    passed = ((epoch - 1) % cycle * steps + np.arange(steps)) / (cycle * steps)
    return config.lr / 2 * (1 + np.cos(np.pi * passed))
