r"""Calibration without clean labels: temperature and noise rate, fitted together on labels that may be wrong.

With the probabilities :math:`p = \mathrm{softmax}(z / T)` of the true class and a noise matrix
:math:`M_{kj} = P(\text{given label } j \mid \text{true class } k)`, the given label y has the probability
:math:`q = (p M)_y`. With symmetric noise of rate :math:`\eta` over K classes this is

.. math:: q = (1 - \eta)\, p_y + \frac{\eta}{K - 1} (1 - p_y).

The fit maximises :math:`\sum_i \log q_i - (\log T)^2 / 2`. The second term is a weak prior around T = 1: it
keeps T finite where every validation sample is classified correctly, and hardly matters otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Noise = Literal["symmetric", "structured", "none"]
KINDS: tuple[Noise, ...] = ("symmetric", "structured", "none")

SMALLEST = 50  # labels; below, the standard error of the noise rate exceeds 0.07
COLDEST, HOTTEST = 0.05, 20.0  # temperatures
GRID, TOLERANCE = 33, 1e-7  # points of the first search over log T; width of the last interval
ROUNDS, STEPS = 2, 30  # of the search for a noise matrix
HIGHEST_RATE = 0.99  # of the rate (K - 1) / K at which labels carry no information
WORST_CONDITION = 1e6  # of a noise matrix
ROUNDED_SUM = 1e-3  # how far from 1 the probabilities of a row may sum, for example after float16
LEAST = 1e-300  # probability whose logarithm is taken instead of that of 0


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
        temperature_error: Standard error of ``temperature``; ``None`` where the labels do not determine it.
        noise_rate_error: Standard error of ``noise_rate``; ``None`` where it was given, or is not determined.
    """

    temperature: float
    noise_rate: float
    matrix: Floats
    samples: int
    temperature_error: float | None = None
    noise_rate_error: float | None = None

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
        """
        return _softmax(_as_array(logits, np.float64), self.temperature)


def calibrate(logits: ArrayLike, labels: ArrayLike, noise: Noise | ArrayLike = "symmetric") -> Calibration:
    """Fit a temperature on labels of which some may be wrong.

    The samples must not have been trained on: memorised labels look like confident, correct predictions.

    Args:
        logits: Outputs of the network before softmax, ``[n, K]``; log-probabilities work as well.
        labels: Given labels ``[n]``, 0 to K - 1; at least 50, of at least two classes.
        noise: ``"symmetric"`` fits one noise rate together with the temperature. ``"structured"`` then fits a rate for
            every pair of classes, starting from the confident joint and shrunk towards the symmetric rate by K samples
            per class. ``"none"`` trusts the labels. A matrix ``[K, K]`` is used as ``P(given label | true class)``.

    Returns:
        The :class:`Calibration`.

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
        >>> round(found.temperature, 1), round(found.noise_rate, 1)
        (2.0, 0.3)
    """
    scores, given = _check_samples(logits, labels)
    classes = scores.shape[1]
    if not isinstance(noise, str):
        matrix = _check_matrix(_as_array(noise, np.float64), classes)
        return _fit_temperature(scores, given, matrix)
    if noise not in KINDS:
        raise ValueError(f"noise must be one of {', '.join(KINDS)}, or a matrix [K, K], got {noise!r}")
    if noise == "none":
        return _fit_temperature(scores, given, np.eye(classes))
    symmetric = _fit_symmetric(scores, given)
    if noise == "symmetric":
        return symmetric
    return _fit_structured(scores, given, symmetric)


def symmetric_matrix(rate: float, classes: int) -> Floats:
    """The noise matrix ``[K, K]`` whose labels are wrong with this rate, every other class being equally likely."""
    matrix = np.full((classes, classes), rate / (classes - 1))
    np.fill_diagonal(matrix, 1.0 - rate)
    return matrix


def confident_joint(probs: Floats, labels: Labels) -> Floats:
    """Number of samples by confident class and given label, ``[K, K]`` (Northcutt et al., 2021).

    A sample is confidently of class k if :math:`p_k` is at least the mean of :math:`p_k` over the samples labelled k;
    of several such classes the most probable one counts. Columns are scaled to the number of samples with that label.
    """
    classes = probs.shape[1]
    counts = np.bincount(labels, minlength=classes)
    totals = np.bincount(labels, weights=probs[np.arange(len(labels)), labels], minlength=classes)
    thresholds = np.divide(totals, counts, out=np.full(classes, np.inf), where=counts > 0)
    confident = np.where(probs >= thresholds, probs, -1.0)
    chosen = confident.argmax(axis=1)
    is_confident = confident.max(axis=1) >= 0
    joint = np.zeros((classes, classes))
    np.add.at(joint, (chosen[is_confident], labels[is_confident]), 1.0)
    columns = joint.sum(axis=0)
    return np.asarray(joint * np.divide(counts, columns, out=np.zeros(classes), where=columns > 0))


def shrink_joint(joint: Floats, towards: Floats) -> Floats:
    """Rows of a joint as probabilities, with K samples per class distributed as ``towards`` ``[K, K]`` added."""
    pseudo = len(joint)
    return np.asarray((joint + pseudo * towards) / (joint.sum(axis=1, keepdims=True) + pseudo))


# ---------------------------------------------------------------- fits


def _fit_symmetric(scores: Floats, labels: Labels) -> Calibration:
    classes = scores.shape[1]

    def profile(log_t: float) -> float:
        own = _own_probability(scores, labels, np.exp(log_t))
        return _log_likelihood(_label_probability(own, _best_rate(own, classes), classes), log_t)

    temperature = float(np.exp(_maximise(profile)))
    own = _own_probability(scores, labels, temperature)
    rate = _best_rate(own, classes)
    label = _label_probability(own, rate, classes)
    slope = 1.0 - rate * classes / (classes - 1)
    by_log_t = slope * _derivative_by_log_t(scores, labels, temperature) / label
    by_rate = ((1.0 - own) / (classes - 1) - own) / label
    errors = _standard_errors(np.stack([by_log_t, by_rate]))
    matrix = symmetric_matrix(rate, classes)
    return Calibration(temperature, rate, matrix, len(labels), _scaled(errors[0], temperature), errors[1])


def _fit_temperature(scores: Floats, labels: Labels, matrix: Floats) -> Calibration:
    """The temperature for a fixed noise matrix."""
    weights = matrix.T[labels]  # P(given label | class k), [n, K]

    def likelihood(log_t: float) -> float:
        return _log_likelihood((_softmax(scores, np.exp(log_t)) * weights).sum(axis=1), log_t)

    temperature = float(np.exp(_maximise(likelihood)))
    probs = _softmax(scores, temperature)
    label = np.maximum((probs * weights).sum(axis=1), LEAST)
    scaled = scores / temperature
    centred = scaled - (probs * scaled).sum(axis=1, keepdims=True)
    errors = _standard_errors((-(probs * centred * weights).sum(axis=1) / label)[None])
    rate = 1.0 - float((probs @ np.diag(matrix)).mean())
    return Calibration(temperature, max(rate, 0.0), matrix, len(labels), _scaled(errors[0], temperature))


def _fit_structured(scores: Floats, labels: Labels, symmetric: Calibration) -> Calibration:
    """A noise matrix by expectation-maximisation from the confident joint, in turn with the temperature.

    The confident joint alone counts uncertain predictions as noise: it has a rate of 0.38 where 0.30 is true.
    """
    matrix = shrink_joint(confident_joint(symmetric.probabilities(scores), labels), symmetric.matrix)
    found = symmetric
    for _ in range(ROUNDS):
        probs = found.probabilities(scores)
        for _ in range(STEPS):
            expected = probs * matrix.T[labels]  # of true classes given label and prediction, [n, K]
            expected /= np.maximum(expected.sum(axis=1, keepdims=True), LEAST)
            joint = np.zeros_like(matrix)
            np.add.at(joint.T, labels, expected)
            matrix = shrink_joint(joint, symmetric.matrix)
        found = _fit_temperature(scores, labels, matrix)
    if np.linalg.cond(matrix) > WORST_CONDITION:
        raise CalibrationError(
            "the estimated noise matrix is singular: use noise='symmetric', or more labels per class"
        )
    return found


def _maximise(function: Callable[[float], float]) -> float:
    """The log T with the highest value: the best of a grid, then golden-section search between its neighbours."""
    grid = np.linspace(np.log(COLDEST), np.log(HOTTEST), GRID)
    best = int(np.argmax([function(float(point)) for point in grid]))
    low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, GRID - 1)])
    ratio = (np.sqrt(5.0) - 1.0) / 2.0
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > TOLERANCE:
        if at_left >= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
    return (low + high) / 2.0


def _best_rate(own: Floats, classes: int) -> float:
    """The noise rate with the highest likelihood, a concave function of it, by bisection of its derivative."""
    change = (1.0 - own) / (classes - 1) - own
    low, high = 0.0, HIGHEST_RATE * (classes - 1) / classes

    def rises(rate: float) -> bool:
        return bool((change / np.maximum(own + rate * change, LEAST)).sum() > 0)

    if not rises(low):
        return low
    if rises(high):
        return high
    while high - low > TOLERANCE:
        middle = (low + high) / 2.0
        low, high = (middle, high) if rises(middle) else (low, middle)
    return (low + high) / 2.0


def _label_probability(own: Floats, rate: float, classes: int) -> Floats:
    return np.maximum((1.0 - rate) * own + rate * (1.0 - own) / (classes - 1), LEAST)


def _log_likelihood(label: Floats, log_t: float) -> float:
    return float(np.log(np.maximum(label, LEAST)).sum()) - log_t**2 / 2.0


def _softmax(scores: Floats, temperature: float) -> Floats:
    scaled = scores / temperature
    raised = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def _own_probability(scores: Floats, labels: Labels, temperature: float) -> Floats:
    """Probability of the class that is the given label, ``[n]``."""
    return _softmax(scores, temperature)[np.arange(len(labels)), labels]


def _derivative_by_log_t(scores: Floats, labels: Labels, temperature: float) -> Floats:
    rows = np.arange(len(labels))
    probs, scaled = _softmax(scores, temperature), scores / temperature
    return np.asarray(-probs[rows, labels] * (scaled[rows, labels] - (probs * scaled).sum(axis=1)))


def _standard_errors(scores: Floats) -> list[float | None]:
    """Standard errors from the derivatives of the log-likelihood ``[parameters, n]``, by their outer product."""
    information = scores @ scores.T
    information[0, 0] += 1.0  # of the prior
    if not np.isfinite(information).all() or np.linalg.cond(information) > 1 / np.finfo(np.float64).eps:
        return [None] * len(scores)
    return [float(np.sqrt(variance)) for variance in np.diag(np.linalg.inv(information))]


def _scaled(error: float | None, temperature: float) -> float | None:
    """The error of T from that of log T."""
    return None if error is None else error * temperature


# ---------------------------------------------------------------- argument validation


def _as_array(values: Any, dtype: Any) -> NDArray[Any]:
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if values.is_floating_point() and values.itemsize < 4 else values
        values = values.numpy()
    return np.asarray(values, dtype=dtype)


def _check_samples(logits: ArrayLike, labels: ArrayLike) -> tuple[Floats, Labels]:
    scores, given = _as_array(logits, np.float64), _as_array(labels, None)
    if scores.ndim != 2 or scores.shape[1] < 2:
        raise ValueError(f"logits must have the shape [samples, classes] with at least 2 classes, got {scores.shape}")
    if given.shape != scores.shape[:1]:
        raise ValueError(f"labels must have the shape [{len(scores)}], one per row of logits, got {given.shape}")
    if not np.issubdtype(given.dtype, np.integer):
        raise TypeError(f"labels must be integers, got {given.dtype}")
    if len(given) < SMALLEST:
        raise CalibrationError(f"labels must be at least {SMALLEST}, got {len(given)}: use a larger validation set")
    outside = (given < 0) | (given >= scores.shape[1])
    if outside.any():
        first = int(outside.argmax())
        raise ValueError(f"labels[{first}] must be 0 to {scores.shape[1] - 1}, got {given[first]}")
    if (given == given[0]).all():
        raise CalibrationError(
            f"labels must be of at least 2 classes, got {given[0]} alone: use a validation set drawn from all classes"
        )
    finite = np.isfinite(scores)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise ValueError(f"logits[{row}, {column}] must be finite, got {scores[row, column]}")
    if ((scores >= 0) & (scores <= 1)).all() and (np.abs(scores.sum(axis=1) - 1) < ROUNDED_SUM).all():
        raise CalibrationError("logits must be outputs before softmax, got probabilities: pass their logarithm")
    return scores, given.astype(np.int64)


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
