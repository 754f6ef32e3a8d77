r"""Calibration without clean labels: temperature and label noise, fitted together on labels that may be wrong.

The likelihood is that of :mod:`vista.core.noise_fit`, with a weak prior around T = 1: :math:`-(\log T)^2 / 2`. It keeps
T finite where every validation sample is classified correctly, and hardly matters otherwise.

Which model of the noise is right is not known, and the wrong one makes probabilities worse: symmetric noise finds a
rate of zero where one class is mistaken for one other, and then takes the wrong labels for true. So several models are
compared by the likelihood of labels that they were not fitted on, among them those that leave T at 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from vista.core import noise_fit

Floats = NDArray[np.float64]
Noise = Literal["auto", "symmetric", "structured", "none"]
KINDS: tuple[Noise, ...] = get_args(Noise)

SMALLEST = 50  # labels; below, the standard error of the noise rate exceeds 0.07
FOLDS = 5  # parts of the labels, each predicted by a fit on the others
COARSE = 2  # rounds of the search for T in these fits, to 5 % of T
HIGHEST_RATE = 0.99  # of the rate (K - 1) / K at which labels carry no information
LEAST_GAIN = 1e-6  # of the mean log-likelihood, below which T stays 1
PRIOR = 1.0
WORST_CONDITION = 1e6  # of a noise matrix
ROUNDED_SUM = 1e-3  # how far from 1 the probabilities of a row may sum, for example after float16
Fit = Callable[..., tuple[Tensor, Tensor]]  # (scores, labels, rounds=) -> temperature and noise matrix


class CalibrationError(ValueError):
    """Logits and labels from which no calibration can be fitted."""


@dataclass(frozen=True, eq=False, repr=False)
class Calibration:
    """A fitted temperature and the label noise it was fitted with.

    Attributes:
        temperature: The T by which logits are divided; above 1 for overconfident logits.
        noise_rate: Estimated share of labels that are wrong.
        matrix: ``P(given label j | true class k)``, ``[K, K]``; rows sum to 1.
        samples: Number of labels used.
        noise: The model of the noise: ``"symmetric"``, ``"structured"``, ``"none"`` or ``"given"``.
        temperature_error: Standard error of ``temperature``; ``None`` where it is 1 because no other T was better, or
            where the labels do not determine it.
        noise_rate_error: Standard error of ``noise_rate``; ``None`` except for symmetric noise.
        gain: How much the temperature raises the mean log-likelihood of held-out labels, compared with T = 1; ``None``
            where the fit did not compare it.

    >>> Calibration(2.0, 0.1, np.array([[0.9, 0.1], [0.1, 0.9]]), 500, "symmetric").probabilities([[0.0, 2.0]]).round(2)
    array([[0.27, 0.73]])
    """

    temperature: float
    noise_rate: float
    matrix: Floats
    samples: int
    noise: str
    temperature_error: float | None = None
    noise_rate_error: float | None = None
    gain: float | None = None

    def __repr__(self) -> str:
        errors = [
            "" if error is None else f" ± {error:.2g}" for error in (self.temperature_error, self.noise_rate_error)
        ]
        return (
            f"Calibration(temperature {self.temperature:.3g}{errors[0]}, noise rate {self.noise_rate:.3g}{errors[1]}, "
            f"{self.samples:,} labels)"
        )

    def probabilities(self, logits: ArrayLike) -> Floats:
        """Calibrated probabilities of the true class.

        Args:
            logits: ``[n, K]``.

        Returns:
            ``softmax(logits / temperature)``, float64 ``[n, K]``.

        >>> Calibration(2.0, 0.1, np.array([[0.9, 0.1], [0.1, 0.9]]), 500, "symmetric").probabilities([[0.0, 0.0]])
        array([[0.5, 0.5]])
        """
        probs: Floats = (_as_tensor(logits).double() / self.temperature).softmax(dim=1).cpu().numpy()
        return probs


def calibrate(logits: ArrayLike, labels: ArrayLike, noise: Noise | ArrayLike = "auto") -> Calibration:
    """Fit a temperature on labels of which some may be wrong.

    The samples must not have been trained on: memorised labels look like confident, correct predictions.

    Args:
        logits: Outputs of the network before softmax, ``[n, K]``; log-probabilities work as well.
        labels: Given labels ``[n]``, 0 to K - 1; at least 50, of at least two classes.
        noise: ``"symmetric"`` fits one noise rate together with the temperature, ``"structured"`` a rate for every pair
            of classes, starting from the confident joint and shrunk towards symmetric noise. ``"auto"`` fits both, each
            also with T = 1, and takes the one under which labels that it was not fitted on are most likely (5 parts).
            ``"none"`` trusts the labels. A matrix ``[K, K]`` is used as ``P(given label | true class)``.

    Returns:
        The :class:`Calibration`. With ``"auto"``, T is 1 unless another T makes held-out labels more likely.

    Raises:
        CalibrationError: If the labels are too few or of one class, ``logits`` holds probabilities, or the noise matrix
            is singular.

    Example:
        >>> import numpy as np, vista
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(scale=3.0, size=(5000, 10))
        >>> labels = np.array([rng.choice(10, p=p) for p in np.exp(logits) / np.exp(logits).sum(1, keepdims=True)])
        >>> wrong = rng.random(5000) < 0.3
        >>> labels[wrong] = (labels[wrong] + rng.integers(1, 10, wrong.sum())) % 10
        >>> found = vista.calibrate(2 * logits, labels)
        >>> round(found.temperature, 1), round(found.noise_rate, 1), found.noise
        (2.0, 0.3, 'symmetric')
    """
    scores, given = _check_samples(logits, labels)
    classes = scores.shape[1]
    if not isinstance(noise, str):
        matrix = torch.from_numpy(_check_matrix(np.asarray(_as_tensor(noise).cpu().double()), classes))
        return _finish(scores, given, _with_matrix(matrix.to(scores.device)), "given")
    if noise not in KINDS:
        raise ValueError(f"noise must be one of {', '.join(KINDS)}, or a matrix [K, K], got {noise!r}")
    if noise == "auto":
        return _choose(scores, given)
    if noise == "none":
        return _finish(scores, given, _with_matrix(torch.eye(classes, dtype=scores.dtype, device=scores.device)), noise)
    found = _finish(scores, given, _symmetric() if noise == "symmetric" else _structured(), noise)
    if np.linalg.cond(found.matrix) > WORST_CONDITION:
        raise CalibrationError(
            "the estimated noise matrix is singular: use noise='symmetric', or more labels per class"
        )
    return found


# ---------------------------------------------------------------- models of the noise


def _symmetric(temperature: float | None = None) -> Fit:
    def fit(scores: Tensor, labels: Tensor, rounds: int = noise_fit.ROUNDS) -> tuple[Tensor, Tensor]:
        found, rate = noise_fit.fit_symmetric(
            scores, labels, temperature=temperature, most=HIGHEST_RATE, prior=PRIOR, rounds=rounds
        )
        return found, noise_fit.symmetric_matrix(rate, scores.shape[1])

    return fit


def _structured(temperature: float | None = None) -> Fit:
    def fit(scores: Tensor, labels: Tensor, rounds: int = noise_fit.ROUNDS) -> tuple[Tensor, Tensor]:
        return noise_fit.fit_matrix(scores, labels, temperature=temperature, prior=PRIOR, rounds=rounds)

    return fit


def _with_matrix(matrix: Tensor) -> Fit:
    def fit(scores: Tensor, labels: Tensor, rounds: int = noise_fit.ROUNDS) -> tuple[Tensor, Tensor]:
        return noise_fit.fit_temperature(scores, labels, matrix, prior=PRIOR, rounds=rounds), matrix

    return fit


def _choose(scores: Tensor, labels: Tensor) -> Calibration:
    """The model under which held-out labels are most likely; the first of equal ones."""
    unscaled: dict[str, Fit] = {"symmetric": _symmetric(1.0), "structured": _structured(1.0)}
    scaled: dict[str, Fit] = {"symmetric": _symmetric(), "structured": _structured()}
    folds = _folds(labels)
    without = {noise: _held_out(scores, labels, fit, folds) for noise, fit in unscaled.items()}
    held_out = {noise: _held_out(scores, labels, fit, folds) for noise, fit in scaled.items()}
    least = max(without.values())
    noise = max(held_out, key=lambda name: held_out[name])
    gain = (held_out[noise] - least) / len(labels)
    if gain > LEAST_GAIN:
        found = _finish(scores, labels, scaled[noise], noise, gain)
    else:
        noise = max(without, key=lambda name: without[name])
        found = _finish(scores, labels, unscaled[noise], noise, 0.0)
    carries_information = found.noise_rate < HIGHEST_RATE * (1 - 1 / scores.shape[1])
    if carries_information and np.linalg.cond(found.matrix) <= WORST_CONDITION:
        return found
    return _finish(scores, labels, unscaled["symmetric"], "symmetric", 0.0)


def _folds(labels: Tensor) -> Tensor:
    """Part of each sample ``[n]``, with the classes spread evenly over the parts."""
    folds = torch.empty_like(labels)
    order = labels.argsort(stable=True)
    folds[order] = torch.arange(len(labels), device=labels.device) % FOLDS
    return folds


def _held_out(scores: Tensor, labels: Tensor, fit: Fit, folds: Tensor) -> float:
    """Log-likelihood of every part of the labels under a fit on the other parts, summed."""
    total = torch.zeros((), dtype=scores.dtype, device=scores.device)
    for fold in range(FOLDS):
        rest = folds != fold
        temperature, matrix = fit(scores[rest], labels[rest], rounds=COARSE)
        total += noise_fit.log_likelihood(_given_probability(scores[~rest], labels[~rest], temperature, matrix))
    return float(total)


def _given_probability(scores: Tensor, labels: Tensor, temperature: Tensor, matrix: Tensor) -> Tensor:
    """Probability of the given labels, ``[n]``."""
    return ((scores / temperature).softmax(dim=1) * matrix.t()[labels]).sum(dim=1)


def _finish(scores: Tensor, labels: Tensor, fit: Fit, noise: str, gain: float | None = None) -> Calibration:
    """Fit a model to all labels, with its standard errors."""
    temperature, matrix = fit(scores, labels)
    probs, scaled = (scores / temperature).softmax(dim=1), scores / temperature
    weights, classes = matrix.t()[labels], scores.shape[1]
    label = (probs * weights).sum(dim=1).clamp(min=noise_fit.LEAST)
    centred = scaled - (probs * scaled).sum(dim=1, keepdim=True)
    by_log_t = -(probs * centred * weights).sum(dim=1) / label
    own = probs.gather(1, labels.unsqueeze(1)).squeeze(1)
    by_rate = ((1.0 - own) / (classes - 1) - own) / label
    rate = 1.0 - float((probs @ matrix.diagonal()).mean())
    derivatives = {"temperature": by_log_t, "noise_rate": by_rate}
    if gain == 0.0:  # T is 1, and was not fitted
        del derivatives["temperature"]
    if noise == "symmetric":
        rate = 1.0 - float(matrix[0, 0])
    else:
        del derivatives["noise_rate"]
    found = float(temperature)
    errors = _standard_errors({name: values.cpu().numpy() for name, values in derivatives.items()})
    log_error = errors.get("temperature")
    return Calibration(
        found,
        max(rate, 0.0),
        matrix.cpu().numpy(),
        len(labels),
        noise,
        None if log_error is None else log_error * found,
        errors.get("noise_rate"),
        gain,
    )


def _standard_errors(derivatives: dict[str, Floats]) -> dict[str, float | None]:
    """Standard errors of log T and of the rate from derivatives of the log-likelihood, by their outer product."""
    if not derivatives:
        return {}
    scores = np.stack(list(derivatives.values()))
    information = scores @ scores.T
    if "temperature" in derivatives:
        information[0, 0] += PRIOR
    if not np.isfinite(information).all() or np.linalg.cond(information) > 1 / np.finfo(np.float64).eps:
        return {}
    errors = np.sqrt(np.diag(np.linalg.inv(information)))
    return {name: float(error) for name, error in zip(derivatives, errors, strict=True)}


# ---------------------------------------------------------------- argument validation


def _as_tensor(values: Any) -> Tensor:
    return values.detach() if isinstance(values, Tensor) else torch.from_numpy(np.asarray(values))


def _check_samples(logits: ArrayLike, labels: ArrayLike) -> tuple[Tensor, Tensor]:
    scores, given = _as_tensor(logits).double(), _as_tensor(labels)
    if scores.ndim != 2 or scores.shape[1] < 2:
        found = tuple(scores.shape)
        raise ValueError(f"logits must have the shape [samples, classes] with at least 2 classes, got {found}")
    if given.shape != scores.shape[:1]:
        found = tuple(given.shape)
        raise ValueError(f"labels must have the shape [{len(scores)}], one per row of logits, got {found}")
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise TypeError(f"labels must be integers, got {str(given.dtype).removeprefix('torch.')}")
    if len(given) < SMALLEST:
        raise CalibrationError(f"labels must be at least {SMALLEST}, got {len(given)}: use a larger validation set")
    given = given.to(scores.device).long()
    outside = (given < 0) | (given >= scores.shape[1])
    if outside.any():
        first = int(outside.int().argmax())
        raise ValueError(f"labels[{first}] must be 0 to {scores.shape[1] - 1}, got {int(given[first])}")
    if (given == given[0]).all():
        raise CalibrationError(
            f"labels must be of at least 2 classes, got {int(given[0])} alone: use a validation set drawn from all "
            "classes"
        )
    finite = scores.isfinite()
    if not finite.all():
        row, column = map(int, (~finite).nonzero()[0])
        raise ValueError(f"logits[{row}, {column}] must be finite, got {float(scores[row, column])}")
    if ((scores >= 0) & (scores <= 1)).all() and ((scores.sum(dim=1) - 1).abs() < ROUNDED_SUM).all():
        raise CalibrationError("logits must be outputs before softmax, got probabilities: pass their logarithm")
    return scores, given


def _check_matrix(matrix: Floats, classes: int) -> Floats:
    if matrix.shape != (classes, classes):
        raise ValueError(f"noise must be a matrix [{classes}, {classes}], got the shape {matrix.shape}")
    if not (matrix >= 0).all() or (np.abs(matrix.sum(axis=1) - 1) > ROUNDED_SUM).any():
        raise ValueError("noise must have rows P(given label | true class) that are not negative and sum to 1")
    if np.linalg.cond(matrix) > WORST_CONDITION:
        raise CalibrationError(
            "noise must be an invertible matrix, got a singular one, under which two classes have the same labels: "
            "merge them, or use noise='symmetric'"
        )
    return matrix
