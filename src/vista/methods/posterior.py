"""Posterior targets: the probability of the true class, given the label and the teacher of VISTA Light."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from vista.core.coverage import Order
from vista.core.options import Options
from vista.core.posterior import Posterior, PosteriorOptions
from vista.core.store import bytes_needed, bytes_per_state, readable
from vista.core.teacher import Weights
from vista.methods.base import Batch, EpochEnd, Method, Task, WrittenOnce

NEUTRAL: dict[str, Any] = {"noise_rate": 0.0}


class PosteriorMethod(Method):
    """Adapter of :class:`vista.Posterior`."""

    name = "posterior"
    family = "ours"
    summary = "The target is the probability of the true class given label and teacher, fitted on validation labels"
    cost = "1 forward, 1 backward"
    keeps = "(N + m) x K float16 per anchor"
    source = "this project"
    needs_unmixed = True
    variants = {  # noqa: RUF012
        "posterior-newest": {"order": "newest"},
        "posterior-uniform": {"weights": "uniform", "tau": 0.0},
    }

    @dataclass(frozen=True)
    class Config(PosteriorOptions):
        """The options of :class:`vista.Posterior`."""

        tau: float = 0.01
        """Prune states that add at most this fraction of the validation set."""
        order: Order = "accuracy"
        """Which states claim validation samples first."""
        weights: Weights = "coverage"
        """What the weight of a state is computed from."""
        topk: int | None = None
        """Keep only this many of the largest probabilities of each past prediction, and a uniform remainder."""

        def __post_init__(self) -> None:
            super().__post_init__()
            Options(tau=self.tau, order=self.order, weights=self.weights, topk=self.topk)

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        self.posterior = Posterior(
            task.labels,
            num_classes=task.num_classes,
            epochs=task.epochs,
            val_labels=task.val_labels,
            device=task.device,
            checks=False,  # the engine's batches contain each sample once, and it checks every loss
            **asdict(config),
        )
        # With CutMix, predictions are recorded from the batches that are not mixed.
        self.posterior.expects_every_sample = task.sees_every_sample and not task.cutmix

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        logits, targets = self.observe(batch, network(batch.x)), None
        weights = self.target_weights()
        if batch.partner is not None:
            assert batch.share is not None
            targets = self.mix_targets(batch, self.posterior.targets)
            self.posterior.record_unmixed(logits, batch.index, batch.share)
        if self.whole_batch is None or not self.task.has_missing_labels:
            return self.posterior.loss(logits, batch.index, targets, **weights)
        rows = self.count_rows(logits)
        assert rows is not None
        return self.posterior.loss(logits, batch.index, targets, reduction="sum", **weights) / rows

    def targets(self, index: Tensor) -> Tensor:
        return self.posterior.targets(index)

    def end_epoch(self, end: EpochEnd) -> dict[str, Any]:
        """Update the anchors, fit temperature and noise rate, and compute the targets of the next epoch."""
        summary = self.posterior.end_epoch(end.val_logits)
        line = {
            "beta": summary.beta,
            "anchors": len(summary.anchors),
            "anchor_weights": {str(state): weight for state, weight in summary.anchors.items()},
            "unrecorded": summary.unrecorded,
            "temperature": summary.temperature,
            "noise_rate": summary.noise_rate,
            **({"excess": summary.excess} if self.config.matched else {}),
        }
        return {**line, "event": summary.event} if summary.event else line

    def final_teacher(self) -> Tensor:
        return self.posterior.posterior()

    def share_state(self, seen: Tensor) -> None:
        """Do nothing: :meth:`end_epoch` synchronises the processes."""

    def bytes_changing(self) -> int:
        """Return the size of the current epoch's predictions and of the mask of recorded samples."""
        samples = self.task.num_samples
        return bytes_per_state(samples, self.task.num_classes, self.config.topk) + samples

    def bytes_written_once(self) -> int:
        return self._bytes_of_anchors(self.config.tau)

    def _bytes_of_anchors(self, tau: float) -> int:
        size = self.task.num_classes, self.task.epochs, tau
        validation = bytes_needed(len(self.task.val_labels), *size)
        return bytes_needed(self.task.num_samples, *size, self.config.topk) + validation

    def advice_for_less_disk_space(self) -> str:
        lighter = readable(self._bytes_of_anchors(0.01))
        return f"; set tau=0.01, which needs at most {lighter}, or use --out on a larger disk"

    def get_extra_state(self) -> dict[str, Any]:
        state = self.posterior.state_dict()
        return {**state, **{name: WrittenOnce(state[name]) for name in ("predictions", "val_predictions")}}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.posterior.load_state_dict(state)
