"""KF (knowledge fusion, reconstruction): plain training, then predictions of past epochs are blended in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vista.core import fusion, teacher
from vista.methods.base import EpochEnd, Method, Task, WrittenOnce

NEUTRAL: dict[str, Any] = {"rounds": 0}  # training is always plain; with 0 rounds the predictions are too
MIN_PROB = 2.0**-25  # half of float16's smallest number


class FusedPredictions(NamedTuple):
    """Weighted mean predictions, and the weight of each epoch."""

    val: Tensor  # [m, K]
    test: Tensor  # [T, K]
    weights: dict[int, float]


def fuse(
    val_probs: Sequence[Tensor],
    val_labels: Tensor,
    test_probs: Sequence[Tensor],
    *,
    window: int = 3,
    step: float = 0.05,
    rounds: int = 10,
) -> FusedPredictions:
    r""":math:`\sum_e w_e\, p_e(x)` for validation and test samples; the weights are chosen on validation samples.

    ``val_probs`` and ``test_probs`` hold the probabilities ``[m, K]`` and ``[T, K]`` of epochs 1 to E.
    """
    if len(test_probs) != len(val_probs):
        raise ValueError(f"test_probs must hold {len(val_probs)} epochs like val_probs, got {len(test_probs)}")
    weights = fusion.fusion_weights(val_probs, val_labels, window=window, step=step, rounds=rounds)
    val, test = (teacher.teacher({s: probs[s - 1] for s in weights}, weights) for probs in (val_probs, test_probs))
    # A small probability stored as float16 may be zero, which has no logarithm.
    return FusedPredictions(val.clamp_(min=MIN_PROB), test.clamp_(min=MIN_PROB), weights)


class KnowledgeFusion(Method):
    name = "kf"
    family = "past epochs"
    summary = "Plain training; predictions of past epochs are then blended in to recover forgotten samples"
    cost = "1 forward, 1 backward; one forward per fused epoch at inference"
    keeps = "(m + T) x K float16 per epoch"
    source = "Stern et al., On Local Overfitting and Forgetting in Deep Neural Networks, AAAI 2025"
    reconstruction = True
    trains_plainly = True

    @dataclass(frozen=True)
    class Config:
        window: int = 3
        """Window width in epochs over which past predictions are averaged."""
        step: float = 0.05
        """Step of the grid of blending weights."""
        rounds: int = 10
        """Maximum number of blending rounds."""

        def __post_init__(self) -> None:
            fusion.check_options(self.window, self.step, self.rounds)

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        self._predictions: dict[int, dict[str, Tensor]] = {}  # by epoch, in host memory: they are read once, at the end

    @torch.no_grad()
    def end_epoch(self, end: EpochEnd) -> dict[str, Any]:
        kept = {"val": end.val_logits, "test": end.test_logits}
        self._predictions[end.epoch] = {part: fusion.stored_probs(logits) for part, logits in kept.items()}
        return {}

    def fused_predictions(self) -> tuple[Tensor, Tensor]:
        """Return the fused validation and test probabilities."""
        config, epochs = self.config, [self._predictions[epoch] for epoch in sorted(self._predictions)]
        fused = fuse(
            [probs["val"] for probs in epochs],
            self.task.val_labels.cpu(),
            [probs["test"] for probs in epochs],
            window=config.window,
            step=config.step,
            rounds=config.rounds,
        )
        return fused.val, fused.test

    def bytes_written_once(self) -> int:
        rows = len(self.task.val_labels) + self.task.num_test
        return self.task.epochs * rows * self.task.num_classes * torch.float16.itemsize

    def get_extra_state(self) -> dict[str, Any]:
        kept = {str(epoch): dict(probs) for epoch, probs in self._predictions.items()}
        return {"predictions": WrittenOnce(kept)}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._predictions = {
            int(epoch): {name: tensor.cpu() for name, tensor in probs.items()}
            for epoch, probs in state["predictions"].items()
        }
