"""Posterior targets: the probability of the true class, given the label and the teacher of VISTA Light."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from vista.core import collectives, noise_fit, teacher
from vista.core.coverage import Order
from vista.core.losses import at_least_float32, one_hot
from vista.core.noise_fit import COLDEST, HOTTEST
from vista.core.options import Options
from vista.core.store import bytes_needed, bytes_per_state, readable
from vista.core.teacher import Weights
from vista.core.validation import not_negative, unit_interval
from vista.core.vista import Vista
from vista.methods.base import Batch, EpochEnd, Method, Task, WrittenOnce, check_below_one

NEUTRAL: dict[str, Any] = {"noise_rate": 0.0}
Noise = Literal["symmetric", "structured"]

SMALLEST = 2.0**-24  # the smallest positive float16: a stored 0 means less than that
ROWS_AT_A_TIME = 65_536


def compute_log_probs(probs: Tensor, temperature: float) -> Tensor:
    r""":math:`\log p_k` with :math:`p_k \propto Q_k^{1/T}`, ``[N, K]``, for probabilities :math:`Q` ``[N, K]``."""
    return (probs.clamp(min=SMALLEST).log_() / temperature).log_softmax(dim=1)


def compute_posterior(probs: Tensor, labels: Tensor, temperature: float, noise: float | Tensor) -> Tensor:
    r"""Probability of the true class given the teacher and the label, by Bayes' rule.

    :math:`\propto Q_k^{1/T} P(y \mid k)`; with a noise rate :math:`\eta`, :math:`P(y \mid k) = 1 - \eta` for
    :math:`k = y` and :math:`\eta / (K - 1)` otherwise.

    Args:
        probs: Probabilities :math:`Q` of the teacher, ``[N, K]``.
        labels: Given labels ``[N]``, -1 for a missing label, whose row is :math:`Q^{1/T}` normalised.
        temperature: T, greater than 0.
        noise: :math:`\eta`, at least 0 and less than 1, or the matrix ``P(given label | true class)``, ``[K, K]``.

    Returns:
        Probabilities ``[N, K]``.

    >>> compute_posterior(torch.tensor([[0.2, 0.8]]), torch.tensor([0]), temperature=1.0, noise=0.2)
    tensor([[0.5000, 0.5000]])
    """
    if not isinstance(noise, Tensor):
        rate = torch.tensor(noise, dtype=torch.float64, device=probs.device)
        noise = noise_fit.symmetric_matrix(rate, probs.shape[1])
    evidence = noise.log().to(probs.dtype).t()[labels.clamp(min=0)]
    evidence.masked_fill_((labels < 0).unsqueeze(1), 0.0)
    return (compute_log_probs(probs, temperature) + evidence).softmax(dim=1)


class Fit(NamedTuple):
    """A fitted temperature and the noise it was fitted with."""

    temperature: float
    noise_rate: float
    matrix: Tensor | None = None  # P(given label | true class), float64 [K, K], of structured noise


def fit_noise(
    probs: Tensor,
    labels: Tensor,
    noise: Noise = "symmetric",
    *,
    temperature: float | None = None,
    noise_rate: float | None = None,
    prior: float = 0.0,
) -> Fit:
    r"""Fit the temperature and the noise on noisy labels, by maximum likelihood.

    The fits of :mod:`vista.core.noise_fit` with :math:`p \propto Q^{1/T}`; a symmetric rate is in [0, 1 - 1/K].

    Args:
        probs: Predicted probabilities :math:`Q` ``[m, K]`` for samples that were not trained on.
        labels: Their given labels ``[m]``.
        noise: ``"symmetric"`` has one rate, ``"structured"`` one for every pair of classes.
        temperature: A known temperature; then only the noise is fitted.
        noise_rate: A known rate of symmetric noise; then only the temperature is fitted.
        prior: The c of the prior around T = 1, :math:`-c (\log T)^2 / 2`.

    Returns:
        Temperature, noise rate and, for structured noise, the noise matrix.

    >>> probs = torch.tensor([[0.7, 0.2, 0.1]]).expand(10, 3)
    >>> found = fit_noise(probs, torch.tensor([0] * 7 + [1] * 2 + [2]), noise_rate=0.0)
    >>> round(found.temperature, 3)
    1.0
    """
    logs = probs.double().clamp(min=SMALLEST).log()
    if noise == "symmetric":
        fitted = noise_fit.fit_symmetric(logs, labels, temperature=temperature, noise_rate=noise_rate, prior=prior)
        return _as_fit(torch.stack(fitted))
    found, matrix = noise_fit.fit_matrix(logs, labels, temperature=temperature, prior=prior)
    rate = 1.0 - ((logs / found).softmax(dim=1) @ matrix.diagonal()).mean()
    return _as_fit(torch.stack([found, rate.clamp(min=0.0)]), matrix)


def _as_fit(numbers: Tensor, matrix: Tensor | None = None) -> Fit:
    """The fit of a temperature and a noise rate ``[2]``, which are read from the device together."""
    temperature, noise_rate = numbers.tolist()
    return Fit(temperature, noise_rate, matrix)


NO_NOISE = Fit(1.0, 0.0)  # the targets are the labels


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
        noise_model: Noise = "symmetric"
        """Noise with one rate, or with a rate for every pair of classes (structured), fitted after each epoch."""
        noise_rate: float | None = None
        """A known rate of symmetric noise; fitted if not given."""
        temperature: float | None = None
        """A known temperature of the teacher, such as 0.5; fitted after each epoch if not given."""
        prior: float = 0.0
        """The c of a prior, -c (log T)^2 / 2, which keeps the temperature T near 1; 0 has none."""
        topk: int | None = None
        """Keep only this many of the largest probabilities of each past prediction, and a uniform remainder."""

        def __post_init__(self) -> None:
            Options(tau=self.tau, order=self.order, weights=self.weights, topk=self.topk)
            unit_interval(self.ramp, "ramp")
            if self.noise_model not in get_args(Noise):
                raise ValueError(f"noise_model must be one of {', '.join(get_args(Noise))}, got {self.noise_model!r}")
            if self.noise_rate is not None:
                check_below_one(self.noise_rate, "noise_rate")
                if self.noise_model != "symmetric":
                    raise ValueError(
                        f"noise_rate must be None with noise_model={self.noise_model!r}, got {self.noise_rate}"
                    )
            if self.temperature is not None and not COLDEST <= self.temperature <= HOTTEST:
                raise ValueError(
                    f"temperature must be between {COLDEST:g} and {HOTTEST:g} (below 1 sharpens the teacher), "
                    f"got {self.temperature}"
                )
            not_negative(self.prior, "prior")

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
            topk=config.topk,
            device=task.device,
            store="device",  # its targets are computed for all samples at once
            checks=False,  # the engine's batches contain each sample once, and it checks every loss
        )
        self.vista.expects_every_sample = task.sees_every_sample
        self._val_predictions: dict[int, Tensor] = {}  # of each anchor, by epoch: float16 [m, K]
        self._fit = NO_NOISE

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
        self._fit = self._fit_noise(summary.anchors)
        self._update_targets()
        line = {
            "beta": self._share(),
            "anchors": len(summary.anchors),
            "anchor_weights": {str(state): weight for state, weight in summary.anchors.items()},
            "unrecorded": summary.unrecorded,
            "temperature": self._fit.temperature,
            "noise_rate": self._fit.noise_rate,
        }
        return {**line, "event": summary.event} if summary.event else line

    def _fit_noise(self, anchors: dict[int, float]) -> Fit:
        if not anchors:
            return NO_NOISE
        config, probs = self.config, teacher.teacher(self._val_predictions, anchors)
        temperature, noise_rate, matrix = fit_noise(
            probs,
            self.task.val_labels,
            config.noise_model,
            temperature=config.temperature,
            noise_rate=config.noise_rate,
            prior=config.prior,
        )
        numbers = torch.tensor([temperature, noise_rate], dtype=torch.float64)
        collectives.broadcast(numbers)
        if matrix is not None:
            collectives.broadcast(matrix)
        return _as_fit(numbers, matrix)

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
        noise = self._fit.noise_rate if self._fit.matrix is None else self._fit.matrix
        parts = zip(probs.split(ROWS_AT_A_TIME), self.task.labels.split(ROWS_AT_A_TIME), strict=True)
        for part, labels in parts:
            posterior = compute_posterior(part, labels, self._fit.temperature, noise)
            hard = one_hot(labels, self.task.num_classes)
            part.copy_(teacher.blend_labelled(hard, posterior, blended))
        return probs

    def final_teacher(self) -> Tensor:
        return self._compute_posterior(1.0) if self._val_predictions else self.vista.teacher()

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
        state = self.vista.state_dict()
        return {
            "vista": {**state, "predictions": WrittenOnce(state["predictions"])},
            "val_predictions": WrittenOnce({str(s): rows for s, rows in self._val_predictions.items()}),
            "temperature": self._fit.temperature,
            "noise_rate": self._fit.noise_rate,
            **({} if self._fit.matrix is None else {"matrix": self._fit.matrix}),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.vista.load_state_dict(state["vista"])
        self._val_predictions = {int(s): rows.to(self.task.device) for s, rows in state["val_predictions"].items()}
        matrix = state["matrix"].to(self.task.device) if "matrix" in state else None
        self._fit = Fit(state["temperature"], state["noise_rate"], matrix)
        self._update_targets()
