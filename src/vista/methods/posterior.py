"""Posterior targets: the probability of the true class, given the label and the teacher of VISTA Light."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vista.core import collectives, noise_fit, teacher
from vista.core.coverage import Order
from vista.core.losses import at_least_float32, one_hot
from vista.core.options import Options
from vista.core.store import BYTES_PER_VALUE, bytes_needed, readable
from vista.core.teacher import Weights
from vista.core.validation import unit_interval
from vista.core.vista import Vista
from vista.methods.base import Batch, EpochEnd, Method, Task, WrittenOnce, check_below_one

NEUTRAL: dict[str, Any] = {"noise_rate": 0.0}

SMALLEST = 2.0**-24  # the smallest positive float16: a stored 0 means less than that
ROWS_AT_A_TIME = 65_536


def compute_log_probs(probs: Tensor, temperature: float) -> Tensor:
    r""":math:`\log p_k` with :math:`p_k \propto Q_k^{1/T}`, ``[N, K]``, for probabilities :math:`Q` ``[N, K]``."""
    return (probs.clamp(min=SMALLEST).log_() / temperature).log_softmax(dim=1)


def compute_posterior(probs: Tensor, labels: Tensor, temperature: float, noise_rate: float) -> Tensor:
    r"""Probability of the true class given the teacher and the label, by Bayes' rule.

    :math:`\propto Q_k^{1/T} P(y \mid k)` with :math:`P(y \mid k) = 1 - \eta` for :math:`k = y` and
    :math:`\eta / (K - 1)` otherwise.

    Args:
        probs: Probabilities :math:`Q` of the teacher, ``[N, K]``.
        labels: Given labels ``[N]``, -1 for a missing label, whose row is :math:`Q^{1/T}` normalised.
        temperature: T, greater than 0.
        noise_rate: :math:`\eta`, at least 0 and less than 1.

    Returns:
        Probabilities ``[N, K]``.

    >>> compute_posterior(torch.tensor([[0.2, 0.8]]), torch.tensor([0]), temperature=1.0, noise_rate=0.2)
    tensor([[0.5000, 0.5000]])
    """
    classes = probs.shape[1]
    wrong = math.log(noise_rate / (classes - 1)) if noise_rate > 0 else -math.inf
    evidence = torch.full_like(probs, wrong)
    evidence.scatter_(1, labels.clamp(min=0).unsqueeze(1), math.log1p(-noise_rate))
    evidence.masked_fill_((labels < 0).unsqueeze(1), 0.0)
    return (compute_log_probs(probs, temperature) + evidence).softmax(dim=1)


def fit_noise(probs: Tensor, labels: Tensor, noise_rate: float | None = None) -> tuple[float, float]:
    r"""Fit the temperature and the noise rate on noisy labels, by maximum likelihood.

    The fit of :func:`vista.core.noise_fit.fit_symmetric` with :math:`p \propto Q^{1/T}`, without a prior, for
    :math:`\eta` in [0, 1 - 1/K]. All values stay on the device until the end.

    Args:
        probs: Predicted probabilities :math:`Q` ``[m, K]`` for samples that were not trained on.
        labels: Their given labels ``[m]``.
        noise_rate: A known noise rate; then only the temperature is fitted.

    Returns:
        Temperature and noise rate.

    >>> probs = torch.tensor([[0.7, 0.2, 0.1]]).expand(10, 3)
    >>> temperature, noise_rate = fit_noise(probs, torch.tensor([0] * 7 + [1] * 2 + [2]), noise_rate=0.0)
    >>> round(temperature, 3)
    1.0
    """
    logs = probs.double().clamp(min=SMALLEST).log()
    temperature, rate = torch.stack(noise_fit.fit_symmetric(logs, labels, noise_rate=noise_rate)).tolist()
    return temperature, rate


class PosteriorTargets(Vista):
    """The anchors and the teacher of :class:`vista.Vista`, with targets that are computed elsewhere."""

    def replace_targets(self, targets: Tensor) -> None:
        """Set the targets ``[N, K]`` of the coming epoch, in place: a captured step reads the same tensor."""
        assert self._targets is not None
        self._targets[:-1].copy_(targets)


class Posterior(Method):
    name = "posterior"
    family = "ours"
    summary = "The target is the probability of the true class given label and teacher, fitted on validation labels"
    cost = "1 forward, 1 backward"
    keeps = "(N + m) x K float16 per anchor"
    source = "this project"
    composes_with_cutmix = False
    variants = {  # noqa: RUF012
        "posterior-newest": {"order": "newest"},
        "posterior-uniform": {"weights": "uniform", "tau": 0.0},
    }

    @dataclass(frozen=True)
    class Config:
        tau: float = 0.01
        """Prune states that add at most this fraction of the validation set."""
        order: Order = "accuracy"
        """Which states claim validation samples first."""
        weights: Weights = "coverage"
        """What the weight of a state is computed from."""
        ramp: float = 0.2
        """Share of the epochs over which the posterior replaces the label as the target."""
        noise_rate: float | None = None
        """A known noise rate; fitted after each epoch if not given."""

        def __post_init__(self) -> None:
            Options(tau=self.tau, order=self.order, weights=self.weights)
            unit_interval(self.ramp, "ramp")
            if self.noise_rate is not None:
                check_below_one(self.noise_rate, "noise_rate")

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        self.vista = PosteriorTargets(
            task.labels,
            num_classes=task.num_classes,
            epochs=task.epochs,
            val_labels=task.val_labels,
            tau=config.tau,
            order=config.order,
            weights=config.weights,
            device=task.device,
            store="device",  # its targets are computed for all samples at once
            checks=False,  # the engine's batches contain each sample once, and it checks every loss
        )
        self.vista.expects_every_sample = task.sees_every_sample
        self._val_predictions: dict[int, Tensor] = {}  # of each anchor, by epoch: float16 [m, K]
        self._temperature, self._noise_rate = 1.0, 0.0

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        logits = self.observe(batch, network(batch.x))
        weights = self.target_weights()
        if self.whole_batch is None or not self.task.has_missing_labels:
            return self.vista.loss(logits, batch.index, **weights)
        rows = self.count_rows(logits)
        assert rows is not None
        return self.vista.loss(logits, batch.index, reduction="sum", **weights) / rows

    def targets(self, index: Tensor) -> Tensor:
        return self.vista.targets(index)

    def end_epoch(self, end: EpochEnd) -> dict[str, Any]:
        """Update the anchors, fit temperature and noise rate, and compute the targets of the next epoch."""
        summary = self.vista.end_epoch(end.val_correct)
        newest = at_least_float32(end.val_logits).softmax(dim=1).to(torch.float16)
        predictions = {**self._val_predictions, end.epoch: newest}
        self._val_predictions = {state: predictions[state] for state in summary.anchors}
        self._temperature, self._noise_rate = self._fit(summary.anchors)
        self._update_targets()
        line = {
            "beta": self._share(),
            "anchors": len(summary.anchors),
            "anchor_weights": {str(state): weight for state, weight in summary.anchors.items()},
            "unrecorded": summary.unrecorded,
            "temperature": self._temperature,
            "noise_rate": self._noise_rate,
        }
        return {**line, "event": summary.event} if summary.event else line

    def _fit(self, anchors: dict[int, float]) -> tuple[float, float]:
        if not anchors:
            return 1.0, 0.0  # the targets are the labels
        probs = teacher.teacher(self._val_predictions, anchors)
        fitted = torch.tensor(fit_noise(probs, self.task.val_labels, self.config.noise_rate), dtype=torch.float64)
        collectives.broadcast(fitted)
        temperature, noise_rate = fitted.tolist()
        return temperature, noise_rate

    def _share(self) -> float:
        """Share of the posterior in the targets of the coming epoch: 0 in the first one, 1 after the ramp."""
        ramp = self.config.ramp * self.task.epochs
        return min(1.0, self.vista.epoch / ramp) if ramp else float(self.vista.epoch > 0)

    @torch.no_grad()
    def _update_targets(self) -> None:
        if self._val_predictions:  # without an anchor the targets are the labels
            self.vista.replace_targets(self._compute_posterior(self._share()))

    def _compute_posterior(self, share: float) -> Tensor:
        """Posterior of the training samples ``[N, K]``, blended with the one-hot labels unless ``share`` is 1."""
        probs, blended = self.vista.teacher(), torch.tensor(share)
        parts = zip(probs.split(ROWS_AT_A_TIME), self.task.labels.split(ROWS_AT_A_TIME), strict=True)
        for part, labels in parts:
            posterior = compute_posterior(part, labels, self._temperature, self._noise_rate)
            hard = one_hot(labels, self.task.num_classes)
            part.copy_(teacher.blend_labelled(hard, posterior, blended))
        return probs

    def final_teacher(self) -> Tensor:
        return self._compute_posterior(1.0) if self._val_predictions else self.vista.teacher()

    def share_state(self, seen: Tensor) -> None:
        """Do nothing: :meth:`end_epoch` synchronises the processes."""

    def bytes_changing(self) -> int:
        """Return the size of the current epoch's predictions and of the mask of recorded samples."""
        return self.task.num_samples * (self.task.num_classes * BYTES_PER_VALUE + 1)

    def bytes_written_once(self) -> int:
        return self._bytes_of_anchors(self.config.tau)

    def _bytes_of_anchors(self, tau: float) -> int:
        samples = self.task.num_samples + len(self.task.val_labels)
        return bytes_needed(samples, self.task.num_classes, self.task.epochs, tau)

    def advice_for_less_disk_space(self) -> str:
        lighter = readable(self._bytes_of_anchors(0.01))
        return f"; set tau=0.01, which needs at most {lighter}, or use --out on a larger disk"

    def get_extra_state(self) -> dict[str, Any]:
        state = self.vista.state_dict()
        return {
            "vista": {**state, "predictions": WrittenOnce(state["predictions"])},
            "val_predictions": WrittenOnce({str(s): rows for s, rows in self._val_predictions.items()}),
            "temperature": self._temperature,
            "noise_rate": self._noise_rate,
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.vista.load_state_dict(state["vista"])
        self._val_predictions = {int(s): rows.to(self.task.device) for s, rows in state["val_predictions"].items()}
        self._temperature, self._noise_rate = state["temperature"], state["noise_rate"]
        self._update_targets()
