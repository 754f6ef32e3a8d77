"""The protocol that every table is run under: the paper's words, and our choice where it has none."""

from __future__ import annotations

import dataclasses
from typing import Any

from vista.methods import choose
from vista.runs.config import TrainConfig, preset

CIFAR = {"data": "cifar100", "network": "resnet18", "precision": "bf16"}
TINY = {"data": "tinyimagenet", "network": "resnet18", "precision": "bf16"}
CLEAN: dict[str, Any] = {"noise": "none"}
# The paper does not say how much it holds out. Chosen by plain training alone, see `calibration`; then frozen.
VALIDATION = 0.02


def symmetric(percent: int) -> dict[str, Any]:
    return {"noise": f"symmetric:{percent / 100:g}"}


def asymmetric(percent: int) -> dict[str, Any]:
    return {"noise": f"asymmetric:{percent / 100:g}"}


def pairflip(percent: int) -> dict[str, Any]:
    return {"noise": f"pairflip:{percent / 100:g}"}


HUMAN: dict[str, Any] = {"noise": "human"}


def configuration(method: str, changes: dict[str, Any], seed: int) -> TrainConfig:
    """The run of a cell: clean labels under the clean preset, noisy ones under the noisy one."""
    noise = changes.get("noise", "none")
    settings = {**CIFAR, **preset("clean" if noise == "none" else "noisy"), "validation": VALIDATION, **changes}
    chosen = choose(method)
    return dataclasses.replace(TrainConfig(**settings), method=chosen.name, options=chosen.options, seed=seed)


def in_words() -> str:
    """The protocol, as the page of results states it."""
    clean, noisy = (configuration("ce", changes, 0) for changes in (CLEAN, symmetric(40)))
    assert clean.epochs == noisy.epochs
    return (
        f"The protocol, unless a setting says otherwise: {noisy.epochs} epochs, {100 * VALIDATION:g} % of the training "
        "set held out for validation under the same noise, SGD with momentum "
        f"{noisy.momentum:g} and weight decay {noisy.weight_decay:g}, crop and flip, {noisy.precision}. Noisy labels: "
        f"batch {noisy.batch_size}, learning rate {noisy.lr:g}, cosine with restarts every {noisy.restart_epochs} "
        f"epochs. Clean labels: batch {clean.batch_size}, learning rate {clean.lr:g}, one cosine."
    )
