r"""Posterior targets: the probability of the true class, given the label and the teacher, by Bayes' rule.

The target is :math:`\propto Q_k^{1/T} P(y \mid k)` for the teacher Q, a temperature T and label noise that are fitted
together after each epoch, on validation labels that may be wrong as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vista.core import collectives, noise_fit, teacher
from vista.core.coverage import Order
from vista.core.losses import at_least_float32, one_hot
from vista.core.noise_fit import COLDEST, HOTTEST
from vista.core.options import Record
from vista.core.teacher import Weights
from vista.core.validation import (
    Integers,
    as_float,
    as_integers,
    as_logits,
    check_all_named,
    check_finite,
    check_index,
    check_logits,
    not_negative,
    unit_interval,
)
from vista.core.vista import Summary, Vista

Noise = Literal["symmetric", "structured", "auto", "pooled"]

SMALLEST = 2.0**-24  # the smallest positive float16: a stored 0 means less than that
ROWS_AT_A_TIME = 65_536
LARGEST_EXCESS, BISECTIONS = 1000.0, 60  # of log-odds


# ---------------------------------------------------------------- Bayes' rule


def compute_log_probs(probs: Tensor, temperature: float) -> Tensor:
    r""":math:`\log p_k` with :math:`p_k \propto Q_k^{1/T}`, ``[N, K]``, for probabilities :math:`Q` ``[N, K]``."""
    return (probs.clamp(min=SMALLEST).log_() / temperature).log_softmax(dim=1)


def compute_posterior(
    probs: Tensor, labels: Tensor, temperature: float, noise: float | Tensor, excess: float = 0.0
) -> Tensor:
    r"""Probability of the true class given the teacher and the label, by Bayes' rule.

    :math:`\propto Q_k^{1/T} P(y \mid k)`; with a noise rate :math:`\eta`, :math:`P(y \mid k) = 1 - \eta` for
    :math:`k = y` and :math:`\eta / (K - 1)` otherwise.

    Args:
        probs: Probabilities :math:`Q` of the teacher, ``[N, K]``.
        labels: Given labels ``[N]``, -1 for a missing label, whose row is :math:`Q^{1/T}` normalised.
        temperature: T, greater than 0.
        noise: :math:`\eta`, at least 0 and less than 1, or the matrix ``P(given label | true class)``, ``[K, K]``.
        excess: Subtracted from the log-odds of the given label.

    Returns:
        Probabilities ``[N, K]``.

    >>> compute_posterior(torch.tensor([[0.2, 0.8]]), torch.tensor([0]), temperature=1.0, noise=0.2)
    tensor([[0.5000, 0.5000]])
    """
    scores = _log_joint(probs, labels, temperature, noise)
    if excess:
        scores -= excess * one_hot(labels, scores.shape[1])
    return scores.softmax(dim=1)


def given_log_odds(probs: Tensor, labels: Tensor, temperature: float, noise: float | Tensor) -> Tensor:
    """Log-odds of the given labels ``[N]``, all of them known, in :func:`compute_posterior`: float64 ``[N]``."""
    scores = _log_joint(probs, labels, temperature, noise)
    own = scores.gather(1, labels.unsqueeze(1)).squeeze(1).double()
    others = scores.masked_fill_(one_hot(labels, scores.shape[1]) > 0, -torch.inf)
    return own - others.logsumexp(dim=1).double()


def _log_joint(probs: Tensor, labels: Tensor, temperature: float, noise: float | Tensor) -> Tensor:
    r"""Logarithm of :math:`Q_k^{1/T} P(y \mid k)` up to a constant, ``[N, K]``."""
    if not isinstance(noise, Tensor):
        rate = torch.tensor(noise, dtype=torch.float64, device=probs.device)
        noise = noise_fit.symmetric_matrix(rate, probs.shape[1])
    evidence = noise.log().to(probs.dtype).t()[labels.clamp(min=0)]
    evidence.masked_fill_((labels < 0).unsqueeze(1), 0.0)
    return compute_log_probs(probs, temperature) + evidence


def fit_excess(odds: Tensor, expected: Tensor) -> Tensor:
    """How much log-odds exceed those whose mean probability is expected.

    Args:
        odds: Log-odds of the given label of each sample, float64 ``[N]``.
        expected: Their mean probability if the samples had not been trained on, a float64 scalar.

    Returns:
        The number that, subtracted from all log-odds, makes the mean probability ``expected``; 0 if it is not above it.

    >>> odds = torch.tensor([2.0, 1.0]).double()
    >>> excess = fit_excess(odds, torch.tensor(0.5).double())
    >>> torch.sigmoid(odds - excess).mean()
    tensor(0.5000, dtype=torch.float64)
    """
    low, high = torch.zeros_like(expected), torch.full_like(expected, LARGEST_EXCESS)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        is_less = torch.sigmoid(odds - middle).mean() > expected
        low, high = torch.where(is_less, middle, low), torch.where(is_less, high, middle)
    return low


# ---------------------------------------------------------------- temperature and noise


class Fit(NamedTuple):
    """A fitted temperature and the noise it was fitted with."""

    temperature: float
    noise_rate: float
    matrix: Tensor | None = None  # P(given label | true class), float64 [K, K], of structured noise

    @property
    def noise(self) -> float | Tensor:
        """The noise as :func:`compute_posterior` takes it."""
        return self.noise_rate if self.matrix is None else self.matrix


NO_NOISE = Fit(1.0, 0.0)  # the targets are the labels


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
        noise: ``"symmetric"`` has one rate, ``"structured"`` one for every pair of classes; ``"auto"`` and ``"pooled"``
            choose by the labels of the most confident predictions; structured noise of ``"pooled"`` has one rate for
            all classes, and one for every pair only of what the wrong labels are.
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
    matrix = noise_fit.confident_matrix(logs.exp(), labels) if noise in ("auto", "pooled") else None
    if noise != "structured" and matrix is None:
        fitted = noise_fit.fit_symmetric(logs, labels, temperature=temperature, noise_rate=noise_rate, prior=prior)
        return as_fit(torch.stack(fitted))
    if matrix is None or noise == "pooled":
        common = noise_fit.confident_rate(logs.exp(), labels) if noise == "pooled" else None
        found, matrix = noise_fit.fit_matrix(logs, labels, temperature=temperature, prior=prior, common=common)
    elif temperature is None:
        found = noise_fit.fit_temperature(logs, labels, matrix, prior=prior)
    else:
        found = torch.tensor(temperature, dtype=logs.dtype, device=logs.device)
    rate = 1.0 - ((logs / found).softmax(dim=1) @ matrix.diagonal()).mean()
    return as_fit(torch.stack([found, rate.clamp(min=0.0)]), matrix)


def as_fit(numbers: Tensor, matrix: Tensor | None = None) -> Fit:
    """The fit of a temperature and a noise rate ``[2]``, which are read from the device together."""
    temperature, noise_rate = numbers.tolist()
    return Fit(temperature, noise_rate, matrix)


# ---------------------------------------------------------------- options


@dataclass(frozen=True)
class PosteriorOptions:
    """Options of :class:`Posterior` beyond those of :class:`vista.Vista`."""

    ramp: float = 0.2
    """Share of the epochs over which the posterior replaces the label as the target."""
    noise_model: Noise = "symmetric"
    """Noise with one rate, with a rate for every pair of classes (structured), or chosen after each epoch (auto);
    pooled chooses as well, and all classes then have as many wrong labels."""
    noise_rate: float | None = None
    """A known rate of symmetric noise; fitted if not given."""
    temperature: float | None = None
    """A known temperature of the teacher, such as 0.5; fitted after each epoch if not given."""
    prior: float = 0.0
    """The c of a prior, -c (log T)^2 / 2, which keeps the temperature T near 1; 0 has none."""
    matched: bool = False
    """Lower the odds of the given labels of training samples until their mean probability is that of validation labels:
    memorised labels look certain. With the noise model pooled only while the noise is symmetric."""

    def __post_init__(self) -> None:
        unit_interval(self.ramp, "ramp")
        if self.noise_model not in get_args(Noise):
            raise ValueError(f"noise_model must be one of {', '.join(get_args(Noise))}, got {self.noise_model!r}")
        if self.noise_rate is not None:
            rate = as_float(self.noise_rate, "noise_rate")
            if not 0.0 <= rate < 1.0:
                raise ValueError(f"noise_rate must be at least 0 and less than 1, got {self.noise_rate}")
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

    def share(self, epoch: int, epochs: int) -> float:
        """Share of the posterior in the targets after ``epoch`` of ``epochs``: 0 before the first, 1 after the ramp."""
        ramp = self.ramp * epochs
        return min(1.0, epoch / ramp) if ramp else float(epoch > 0)


# ---------------------------------------------------------------- the method


@dataclass(frozen=True)
class PosteriorSummary(Summary):
    """The result of :meth:`Posterior.end_epoch`; ``beta`` is the share of the posterior in the next targets.

    Attributes:
        temperature: The T of the teacher.
        noise_rate: Estimated share of wrong labels.
        excess: What ``matched`` subtracts from the log-odds of the given labels.
    """

    temperature: float = 1.0
    noise_rate: float = 0.0
    excess: float = 0.0


@dataclass(frozen=True)
class _Estimate:
    """What the posterior is computed with."""

    val: dict[int, Tensor] = field(default_factory=dict)  # validation predictions of each anchor, float16 [m, K]
    fit: Fit = NO_NOISE
    excess: float = 0.0


class Posterior(Vista):
    """Targets that are the probability of the true class, given the label and the teacher of :class:`vista.Vista`.

    It is used like ``Vista`` in a training loop; ``end_epoch`` needs logits, not which samples are right.

    Args:
        labels: Given labels of the training samples, ``[N]``; -1 or ``ignore_index`` means no label.
        num_classes: Number of classes K.
        epochs: Planned number of epochs, at least 2.
        val_labels: Given labels of the validation samples, ``[m]``; they may be as noisy.
        ramp: Share of the epochs over which the posterior replaces the label as the target.
        noise_model: ``"symmetric"`` noise has one rate, ``"structured"`` one for every pair of classes; ``"auto"``
            and ``"pooled"`` choose after each epoch.
        noise_rate: A known rate of symmetric noise.
        temperature: A known temperature of the teacher.
        prior: The c of a prior, -c (log T)^2 / 2, which keeps the temperature T near 1.
        matched: Correct for memorised labels: see :class:`PosteriorOptions`.
        tau: Prune states that add at most this fraction of the validation set.
        record: ``"train"`` or ``"eval"``, as in ``Vista``.
        order: Which states claim validation samples first: accuracy or newest.
        weights: What a state's weight is computed from: coverage, accuracy or uniform.
        topk: Keep only the largest probabilities of each prediction.
        ignore_index: Another value than -1 that means no label.
        checks: ``False`` skips checks per batch.
        device: Device of the targets and predictions; by default that of the first logits.

    >>> import torch
    >>> posterior = Posterior([0, 1, 1, 0], num_classes=2, epochs=2, val_labels=[0, 1])
    >>> network = torch.nn.Linear(3, 2)
    >>> for epoch in posterior.epochs():
    ...     for index in torch.tensor([[0, 1], [2, 3]]):
    ...         posterior.loss(network(torch.rand(2, 3)), index).backward()
    ...     summary = posterior.end_epoch(torch.eye(2))
    >>> summary.epoch, summary.beta
    (2, 1.0)
    """

    def __init__(
        self,
        labels: Integers,
        *,
        num_classes: int,
        epochs: int,
        val_labels: Integers,
        ramp: float = 0.2,
        noise_model: Noise = "symmetric",
        noise_rate: float | None = None,
        temperature: float | None = None,
        prior: float = 0.0,
        matched: bool = False,
        tau: float = 0.01,
        record: Record = "train",
        order: Order = "accuracy",
        weights: Weights = "coverage",
        topk: int | None = None,
        ignore_index: int = -1,
        checks: bool = True,
        device: torch.device | str | None = None,
    ) -> None:
        self._how = PosteriorOptions(ramp, noise_model, noise_rate, temperature, prior, matched)
        self._estimate, self._newest = _Estimate(), torch.empty(0)
        super().__init__(
            labels, num_classes=num_classes, epochs=epochs, val_labels=val_labels, tau=tau, record=record, order=order,
            weights=weights, topk=topk, ignore_index=ignore_index, checks=checks, device=device,
            store="device",  # its targets are computed for all samples at once
        )  # fmt: skip

    @torch.no_grad()
    def end_epoch(
        self,
        val_logits: Tensor | NDArray[Any],
        val_index: Integers | None = None,
        train_logits: Tensor | NDArray[Any] | None = None,
    ) -> PosteriorSummary:
        """End the epoch: update the anchors, fit temperature and noise, and make the targets of the next epoch.

        Args:
            val_logits: Logits of the validation samples, ``[m, K]``, as for :meth:`vista.Vista.end_epoch`.
            val_index: Validation sample number of each row.
            train_logits: Logits of all training samples from a clean pass; only with ``record="eval"``.

        Returns:
            The summary of ``Vista`` with the fitted temperature and noise rate.

        >>> posterior = Posterior([0, 1], num_classes=2, epochs=2, val_labels=[0, 1])
        >>> posterior.record(torch.eye(2), [0, 1])
        >>> posterior.end_epoch(torch.eye(2)).noise_rate
        0.0
        """
        self._newest = self._val_probs(as_logits(val_logits, "val_logits"), val_index)
        summary = super().end_epoch(val_logits, val_index, train_logits)
        about = {name: getattr(summary, name) for name in Summary.__dataclass_fields__}
        fit, excess = self._estimate.fit, self._estimate.excess
        return PosteriorSummary(**about, temperature=fit.temperature, noise_rate=fit.noise_rate, excess=excess)

    @torch.no_grad()
    def posterior(self) -> Tensor:
        """Compute the posterior without a ramp, from the last fit.

        Returns:
            Probability of the true class of each training sample, ``[N, K]``.

        >>> Posterior([0, 1], num_classes=2, epochs=2, val_labels=[0]).posterior()
        tensor([[1., 0.],
                [0., 1.]])
        """
        return self._compute(1.0) if self._estimate.val else self.teacher()

    def record_unmixed(self, logits: Tensor, index: Tensor, share: Tensor) -> None:
        """Store ``softmax(logits)`` of a batch that CutMix has not mixed, and nothing of one that it has.

        Args:
            logits: Logits of the batch, ``[B, K]``.
            index: Sample numbers of its rows, ``[B]``, on the device of the logits.
            share: Share of the image that belongs to ``index``, ``[1]``, on that device; below 1 it is mixed. It is not
                read on the host.

        >>> posterior = Posterior([0, 1], num_classes=2, epochs=2, val_labels=[0])
        >>> posterior.record_unmixed(torch.eye(2), torch.tensor([0, 1]), share=torch.ones(1))
        """
        rows = torch.where(share == 1.0, index, len(self._labels))  # only the spare row, which nothing reads, repeats
        self._store.write(rows, at_least_float32(logits.detach()).softmax(dim=-1), unique=True)

    def to(self, device: torch.device | str) -> Posterior:
        """Move targets and predictions, in place.

        Args:
            device: The new device.

        Returns:
            This object.

        >>> Posterior([0, 1], num_classes=2, epochs=2, val_labels=[0]).to("cpu").device
        device(type='cpu')
        """
        super().to(device)
        val = {s: rows.to(self.device) for s, rows in self._estimate.val.items()}
        matrix = self._estimate.fit.matrix
        fit = self._estimate.fit._replace(matrix=None if matrix is None else matrix.to(self.device))
        self._estimate = _Estimate(val, fit, self._estimate.excess)
        return self

    # ---------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """Return all state, from which a ``Posterior`` with the same arguments continues exactly.

        Returns:
            The state of :meth:`vista.Vista.state_dict`, with the anchors' validation predictions and the last fit.

        >>> posterior, resumed = (Posterior([0, 1], num_classes=2, epochs=2, val_labels=[0]) for _ in range(2))
        >>> resumed.load_state_dict(posterior.state_dict())
        """
        fit = self._estimate.fit
        return {
            **super().state_dict(),
            "val_predictions": {str(s): rows for s, rows in self._estimate.val.items()},
            "temperature": fit.temperature,
            "noise_rate": fit.noise_rate,
            "excess": self._estimate.excess,
            **({} if fit.matrix is None else {"matrix": fit.matrix}),
        }

    def load_state_dict(self, state: Mapping[str, Any], mapped: bool = False) -> None:
        """Continue from a state. An invalid state raises an error and changes nothing.

        Args:
            state: The result of :meth:`state_dict` of a ``Posterior`` with the same labels and options.
            mapped: The predictions are memory-mapped from verified files.

        >>> posterior = Posterior([0, 1], num_classes=2, epochs=2, val_labels=[0])
        >>> posterior.load_state_dict(posterior.state_dict())
        """
        if missing := [
            name for name in ("val_predictions", "temperature", "noise_rate", "excess") if name not in state
        ]:
            raise ValueError(f"the state is not one of a Posterior: it lacks {', '.join(missing)}")
        before, shape = self._estimate, (len(self._val_labels), self.num_classes)
        val = {int(s): rows.to(self.device) for s, rows in state["val_predictions"].items()}
        matrix = state["matrix"].to(self.device) if "matrix" in state else None
        known = {*map(int, state.get("predictions", val))}
        if any(rows.shape != shape for rows in val.values()) or not known >= {*val}:
            raise ValueError("the state is damaged: invalid val_predictions")
        fit = Fit(float(state["temperature"]), float(state["noise_rate"]), matrix)
        self._estimate = _Estimate(val, fit, float(state["excess"]))
        try:
            super().load_state_dict(state, mapped)
        except Exception:
            self._estimate = before
            raise

    def _describe(self) -> dict[str, Any]:
        how = {name: getattr(self._how, name) for name in self._how.__dataclass_fields__}
        return {**super()._describe(), "targets": "posterior", **how}

    # ---------------------------------------------------------------- targets

    def _val_probs(self, logits: Tensor, index: Integers | None) -> Tensor:
        """Validation predictions of all processes, float16 ``[m, K]``."""
        m = len(self._val_labels)
        rows = torch.arange(m) if index is None else check_index(as_integers(index, "val_index").cpu(), m, "val_index")
        check_logits(logits, len(rows), self.num_classes, "val_logits")
        check_finite(logits, rows, self.epoch + 1, "val_logits")
        first = torch.full((m,), -1)
        first[rows.flip(0)] = torch.arange(len(rows)).flip(0)  # of a repeated sample the first row counts
        seen = first >= 0
        probs = at_least_float32(logits.detach()).softmax(dim=1).to(self.device, torch.float16)
        found = torch.zeros(m, self.num_classes, dtype=torch.float16, device=self.device)
        found[seen.to(self.device)] = probs[first[seen].to(self.device)]
        collectives.merge_rows(found, seen)
        check_all_named(seen)
        return found

    def _beta(self) -> float:
        return self._how.share(self.epoch, self.num_epochs)

    def _teacher_weights(self) -> dict[int, float]:
        return self._anchors()  # known as soon as the state is added; nothing is smoothed over epochs

    def _add_state(self, epoch: int, correct: NDArray[np.bool_]) -> None:
        super()._add_state(epoch, correct)
        weights = self._teacher_weights()
        val = {**self._estimate.val, epoch: self._newest}
        self._estimate = self._fit({s: val[s] for s in weights}, weights) if weights else _Estimate()

    def _fit(self, val: dict[int, Tensor], weights: dict[int, float]) -> _Estimate:
        """Fit temperature, noise and excess to the anchors' predictions; every process uses those of the first."""
        how, labels = self._how, self._val_labels.to(self.device)
        probs = teacher.teacher(val, weights)
        fit = fit_noise(
            probs, labels, how.noise_model, temperature=how.temperature, noise_rate=how.noise_rate, prior=how.prior
        )
        excess = torch.zeros((), dtype=torch.float64)
        labelled = (self._labels >= 0).nonzero().flatten()
        with_noise = fit.noise_rate > 0 if fit.matrix is None else how.noise_model != "pooled"
        if how.matched and len(labelled) and with_noise:
            own = compute_posterior(probs, labels, fit.temperature, fit.noise)
            expected = own.gather(1, labels.unsqueeze(1)).double().mean()
            excess = fit_excess(self._given_log_odds(labelled, fit), expected)
        numbers = torch.tensor([fit.temperature, fit.noise_rate, float(excess)], dtype=torch.float64)
        collectives.broadcast(numbers)
        matrix = None
        if collectives.broadcast_int(fit.matrix is not None):
            size = self.num_classes, self.num_classes
            matrix = probs.new_empty(size, dtype=torch.float64) if fit.matrix is None else fit.matrix
            collectives.broadcast(matrix)
        temperature, noise_rate, subtracted = numbers.tolist()
        return _Estimate(val, Fit(temperature, noise_rate, matrix), subtracted)

    def _make_targets(self) -> None:
        if not self._estimate.val:  # without an anchor the targets are the labels
            super()._make_targets()
            return
        assert self._targets is not None
        self._weights = self._teacher_weights()
        self._targets[:-1].copy_(self._compute(self._beta()))

    def _given_log_odds(self, rows: Tensor, fit: Fit) -> Tensor:
        """Log-odds of the given labels of the training samples ``rows``."""
        probs, parts = self.teacher(), rows.split(ROWS_AT_A_TIME)
        return torch.cat([given_log_odds(probs[p], self._labels[p], fit.temperature, fit.noise) for p in parts])

    def _compute(self, share: float) -> Tensor:
        """Posterior of the training samples ``[N, K]``, blended with the one-hot labels unless ``share`` is 1."""
        probs, blended, fit = self.teacher(), torch.tensor(share), self._estimate.fit
        for part, labels in zip(probs.split(ROWS_AT_A_TIME), self._labels.split(ROWS_AT_A_TIME), strict=True):
            found = compute_posterior(part, labels, fit.temperature, fit.noise, self._estimate.excess)
            part.copy_(teacher.blend_labelled(one_hot(labels, self.num_classes), found, blended))
        return probs
