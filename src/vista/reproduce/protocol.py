"""The protocol that every table is run under: the paper's words, and our choice where it has none."""

from __future__ import annotations

import dataclasses
from typing import Any

from vista.methods import choose
from vista.training.config import TrainConfig, preset

CIFAR = {"data": "cifar100", "network": "resnet18", "precision": "bf16"}
TINY = {"data": "tinyimagenet", "network": "resnet18", "precision": "bf16"}
CLEAN: dict[str, Any] = {"noise": "none"}
# The paper does not say how much it holds out. Chosen by plain training alone, see `calibration`; then frozen.
VALIDATION = 0.02


def symmetric(percent: int) -> dict[str, Any]:
    return {"noise": f"symmetric:{percent / 100:g}"}


def asymmetric(percent: int) -> dict[str, Any]:
    return {"noise": f"asymmetric:{percent / 100:g}"}


HUMAN: dict[str, Any] = {"noise": "human"}


def configuration(method: str, changes: dict[str, Any], seed: int) -> TrainConfig:
    """The run of a cell: clean labels under the clean preset, noisy ones under the noisy one."""
    noise = changes.get("noise", "none")
    settings = {**CIFAR, **preset("clean" if noise == "none" else "noisy"), "validation": VALIDATION, **changes}
    chosen = choose(method)
    return dataclasses.replace(TrainConfig(**settings), method=chosen.name, options=chosen.options, seed=seed)
