"""The optimiser of a run, what it trains, and the learning rate of every step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vista import models
from vista.runs.config import TrainConfig

# Buffers that a checkpoint stores per parameter, by optimiser: their name there, and in the optimiser's state.
STORED = {
    torch.optim.SGD: {"momentum": "momentum_buffer"},
    torch.optim.AdamW: {"adam_step": "step", "adam_mean": "exp_avg", "adam_square": "exp_avg_sq"},
}


def make_optimizer(
    config: TrainConfig, network: nn.Module, extra: Iterable[nn.Parameter], device: torch.device
) -> torch.optim.Optimizer:
    """SGD or AdamW with all buffers from the start, so that its state has the same shape throughout.

    Args:
        config: The run.
        network: The network; its parameters that require a gradient are trained.
        extra: Parameters of the method, trained as part of the head.
        device: The device of all parameters.
    """
    on_cuda = device.type == "cuda"
    groups = parameter_groups(config, network, extra)
    for group in groups:  # one tensor per group: a captured step writes each group's own rate
        group["lr"] = torch.zeros((), device=device) if on_cuda else 0.0
    optimizer: torch.optim.Optimizer
    if config.optimizer == "adamw":
        optimizer = torch.optim.AdamW(groups, lr=groups[0]["lr"], fused=True, capturable=on_cuda)
    else:
        optimizer = torch.optim.SGD(
            groups, lr=groups[0]["lr"], momentum=config.momentum, nesterov=config.nesterov, fused=on_cuda
        )
    if config.optimizer == "sgd" and not config.momentum:
        return optimizer
    for group in groups:
        for parameter in group["params"]:
            for name in STORED[type(optimizer)].values():
                start = torch.zeros((), device=device) if name == "step" else torch.zeros_like(parameter)
                optimizer.state[parameter][name] = start
    return optimizer


def parameter_groups(
    config: TrainConfig, network: nn.Module, extra: Iterable[nn.Parameter] = ()
) -> list[dict[str, Any]]:
    """The trained parameters by learning rate and weight decay.

    Args:
        config: The run: ``backbone_lr`` is the rate of all but the head; AdamW does not decay vectors.
        network: The network.
        extra: Further parameters, trained as part of the head.

    Returns:
        Groups with the keys ``params``, ``weight_decay`` and ``scale``, the multiple of the learning rate.

    Example:
        >>> config = TrainConfig(lr=0.01, backbone_lr=0.001)
        >>> groups = parameter_groups(config, nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)))
        >>> [(len(group["params"]), group["scale"]) for group in groups]
        [(2, 0.1), (2, 1.0)]
    """
    scale_of_backbone = 1.0 if config.backbone_lr is None else config.backbone_lr / config.lr
    head = set(network.parameters() if scale_of_backbone == 1.0 else models.head_of(network).parameters())
    found: dict[tuple[float, float], list[nn.Parameter]] = {}
    trained = [(p, 1.0 if p in head else scale_of_backbone) for p in network.parameters() if p.requires_grad]
    trained += [(p, 1.0) for p in extra if p.requires_grad]
    for parameter, scale in trained:
        # biases, and the scales of normalisation layers, are vectors
        decays = config.optimizer == "sgd" or parameter.dim() > 1
        found.setdefault((scale, config.weight_decay if decays else 0.0), []).append(parameter)
    return [{"params": list(p), "weight_decay": decay, "scale": scale} for (scale, decay), p in found.items()]


def freeze_backbone(network: nn.Module) -> None:
    """Stop training everything but the head; call :func:`train_mode` for its BatchNorm layers."""
    head = set(models.head_of(network).parameters())
    for parameter in network.parameters():
        parameter.requires_grad_(parameter in head)


def train_mode(network: nn.Module, frozen: bool) -> None:
    """Set training mode; BatchNorm layers of a ``frozen`` backbone keep their statistics and stay in eval mode."""
    network.train()
    if not frozen:
        return
    inside_head = set(models.head_of(network).modules())
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._NormBase) and module not in inside_head:
            module.eval()


def clip_gradients(parameters: Iterable[nn.Parameter], norm: float) -> None:
    """Scale all gradients so that their global norm is at most ``norm``; no host sync."""
    torch.nn.utils.clip_grad_norm_(parameters, norm, foreach=True)


def stored_buffers(optimizer: torch.optim.Optimizer) -> dict[str, list[Tensor]]:
    """The buffers of an optimiser as a checkpoint stores them, one per parameter."""
    names = STORED[type(optimizer)]
    return {
        stored: [state[name] for state in optimizer.state.values() if name in state] for stored, name in names.items()
    }


def learning_rates(config: TrainConfig, epoch: int, steps: int) -> NDArray[np.float64]:
    r"""Learning rates ``[steps]`` of a 1-based epoch; a captured step reads them by its step counter.

    :math:`\frac{\eta}{2} (1 + \cos \pi u)`, with u the fraction of the cycle that has passed, counted in steps; a
    cycle is the whole training, or the epochs between two restarts. The schedule ``hold`` keeps the rate constant for
    ``hold_fraction`` of the epochs; its cycle is the rest. During the warm-up the rate is multiplied by a factor that
    rises to 1 in equal steps. Batches whose gradients are accumulated have the rate of the first of them.
    """
    rates = _scheduled(config, epoch, steps)
    if config.warmup_epochs:
        done = (epoch - 1) * steps + np.arange(1, steps + 1)
        rates = rates * np.minimum(done / (config.warmup_epochs * steps), 1.0)
    first_of_group = np.arange(steps) // config.accumulate * config.accumulate
    return rates[first_of_group]


def _scheduled(config: TrainConfig, epoch: int, steps: int) -> NDArray[np.float64]:
    if config.lr_schedule == "constant":
        return np.full(steps, config.lr)
    cycle = config.restart_epochs if config.lr_schedule == "restarts" else config.epochs
    passed = ((epoch - 1) % cycle * steps + np.arange(steps)) / (cycle * steps)
    if config.lr_schedule == "hold":
        passed = np.maximum(passed - config.hold_fraction, 0.0) / (1.0 - config.hold_fraction)
    return config.lr / 2 * (1 + np.cos(np.pi * passed))
