"""The frozen protocol of all tables: what the paper states, and our choice where it states nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

from vista.methods import choose
from vista.runs.config import PAPER_VALIDATION, TrainConfig, preset

CIFAR = {"data": "cifar100", "network": "resnet18", "precision": "bf16"}
TINY = {"data": "tinyimagenet", "network": "resnet18", "precision": "bf16"}
CLEAN: dict[str, Any] = {"noise": "none"}
# The paper does not state the size of its validation set. Chosen by plain training alone (`calibration`), then frozen.
VALIDATION = PAPER_VALIDATION


def symmetric(percent: int) -> dict[str, Any]:
    return {"noise": f"symmetric:{percent / 100:g}"}


def asymmetric(percent: int) -> dict[str, Any]:
    return {"noise": f"asymmetric:{percent / 100:g}"}


def pairflip(percent: int) -> dict[str, Any]:
    return {"noise": f"pairflip:{percent / 100:g}"}


HUMAN: dict[str, Any] = {"noise": "human"}
# Another protocol, never averaged with the frozen one: validation on half of the test set, whose labels are clean.
CLEAN_VALIDATION: dict[str, Any] = {"validation": TrainConfig.validation, "clean_validation": True}


def make_config(method: str, changes: dict[str, Any], seed: int) -> TrainConfig:
    """Make the configuration of a run under the protocol, with the clean or noisy preset as its labels require.

    Args:
        method: Method with options, as ``vista.methods.choose`` accepts it.
        changes: Fields that differ from the protocol.
        seed: Seed of noise, split, initial weights and order.

    Returns:
        The configuration.

    >>> make_config("vista-light", symmetric(40), seed=1).noise
    'symmetric:0.4'
    """
    noise = changes.get("noise", "none")
    settings = {**CIFAR, **preset("paper", noise=noise), **changes}
    chosen = choose(method)
    return dataclasses.replace(
        TrainConfig(**settings),
        method=chosen.name,
        options=chosen.options,
        method_version=chosen.method.version,
        seed=seed,
    )


def describe() -> str:
    """Describe the protocol in a paragraph of RESULTS.md."""
    clean, noisy = (make_config("ce", changes, 0) for changes in (CLEAN, symmetric(40)))
    assert clean.epochs == noisy.epochs
    return (
        f"Protocol, unless a setting states otherwise: {noisy.epochs} epochs, {100 * VALIDATION:g} % of the training "
        "set held out for validation under the same noise, SGD with momentum "
        f"{noisy.momentum:g} and weight decay {noisy.weight_decay:g}, crop and flip, {noisy.precision}. Noisy labels: "
        f"batch {noisy.batch_size}, learning rate {noisy.lr:g}, cosine with restarts every {noisy.restart_epochs} "
        f"epochs. Clean labels: batch {clean.batch_size}, learning rate {clean.lr:g}, one cosine."
    )
