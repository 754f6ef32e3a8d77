"""The pure functions that a training uses, for torch tensors and numpy arrays.

Each function converts and checks its arguments, then calls the function of :mod:`vista.core` that trains. Training
calls that one directly, because checking values on a GPU would need a host sync. The result is a numpy array if all
array arguments are, otherwise a tensor.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vista import metrics
from vista.core import coverage, losses
from vista.core import teacher as teachers
from vista.core.options import beta
from vista.core.validation import (
    as_float,
    as_int,
    as_integers,
    as_logits,
    as_numbers,
    as_tensor,
    check_classes,
    check_logits,
    check_shape,
    native,
    not_negative,
    positive,
    unit_interval,
)

Array = Tensor | NDArray[Any]
P = ParamSpec("P")

__all__ = [
    "aurc",
    "beta",
    "blend",
    "deviation_gap",
    "distillation_kl",
    "ece",
    "lifespans",
    "light_coverage",
    "marginal_coverage",
    "one_hot",
    "soft_cross_entropy",
    "teacher",
]


def _accept_arrays(function: Callable[P, Tensor]) -> Callable[P, Any]:
    """Let a function of tensors accept numpy arrays too, and return an array if all its array arguments are."""

    @functools.wraps(function)
    def convert(*args: P.args, **kwargs: P.kwargs) -> Any:
        given = [*args, *kwargs.values()]
        given += [value for each in given if isinstance(each, Mapping) for value in each.values()]
        if not any(isinstance(value, np.ndarray) for value in given):
            return function(*args, **kwargs)
        result: Any = function(*map(_to_tensor, args), **{name: _to_tensor(value) for name, value in kwargs.items()})
        return result if any(isinstance(value, Tensor) for value in given) else result.numpy()

    return convert


def _to_tensor(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _to_tensor(each) for key, each in value.items()}
    return torch.from_numpy(native(value)) if isinstance(value, np.ndarray) else value


# ---------------------------------------------------------------- targets


@_accept_arrays
def one_hot(labels: Tensor, num_classes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Encode labels as rows with a one at the label.

    Args:
        labels: Class numbers, ``[B]``; -1 means no label and gives a row of zeros. On a GPU they are not checked.
        num_classes: Number of classes K.
        dtype: Type of the result.

    Returns:
        Rows ``[B, K]``.

    >>> one_hot(torch.tensor([1, -1]), 2)
    tensor([[0., 1.],
            [0., 0.]])
    """
    labels, num_classes = as_integers(labels, "labels"), as_int(num_classes, "num_classes")
    if not labels.is_cuda:
        check_classes(labels, num_classes, "labels", may_be_absent=True)
    return losses.one_hot(labels, num_classes, dtype)


@_accept_arrays
def teacher(predictions: Mapping[int, Tensor], weights: Mapping[int, float]) -> Tensor:
    r"""Average the predictions of several states: :math:`Q(x) = \sum_s w_s p_s(x)`.

    The sum is taken in float32 in the order of the epochs, then renormalised: float16 rows sum to one only
    approximately.

    Args:
        predictions: Probabilities ``[N, K]`` of any float type, by epoch.
        weights: Weight of each state, by epoch.

    Returns:
        The teacher, float32 ``[N, K]``.

    >>> teacher({1: torch.tensor([[0.9, 0.1]]), 2: torch.tensor([[0.5, 0.5]])}, {1: 0.25, 2: 0.75})
    tensor([[0.6000, 0.4000]])
    """
    for name, values in (("predictions", predictions), ("weights", weights)):
        if not isinstance(values, Mapping):
            raise TypeError(f"{name} must be a mapping by epoch, such as {{1: ...}}, got a {type(values).__name__}")
    rows: dict[int, Tensor] = {}
    for state, weight in weights.items():
        if state not in predictions:
            raise ValueError(
                f"weights must name states of predictions ({', '.join(map(str, predictions))}), got {state}"
            )
        not_negative(as_float(weight, f"weights[{state}]"), f"weights[{state}]")
        rows[state] = as_tensor(predictions[state], f"predictions[{state}]")
        if rows[state].dim() != 2:
            shape = tuple(rows[state].shape)
            raise ValueError(f"predictions[{state}] must be rows of probabilities [n, K], got shape {shape}")
        check_shape(rows[state], rows[next(iter(weights))].shape, f"predictions[{state}]")
    if weights and sum(weights.values()) == 0:
        raise ValueError("weights must have a positive sum, got 0")
    mean = teachers.teacher(rows, weights)
    bad = (~torch.isfinite(mean).all(dim=1)).nonzero().flatten().tolist()
    if bad:
        total = sum(weight * float(rows[state][bad[0]].sum()) for state, weight in weights.items())
        raise ValueError(f"predictions must be probabilities, got row {bad[0]} with a sum of {total:g} over all states")
    return mean


@_accept_arrays
def blend(hard: Tensor, soft: Tensor, beta: float) -> Tensor:
    r"""Blend labels and teacher to targets :math:`\tilde y = (1 - \beta)\,\text{hard} + \beta\,\text{soft}`.

    Args:
        hard: One-hot labels, ``[B, K]``.
        soft: Teacher, of the same shape.
        beta: Weight of the teacher, between 0 and 1; at 0 the result is exactly ``hard``.

    Returns:
        Targets ``[B, K]``.

    >>> blend(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.6, 0.4]]), 0.5)
    tensor([[0.3000, 0.7000]])
    """
    hard, soft = as_tensor(hard, "hard"), as_tensor(soft, "soft")
    check_shape(soft, hard.shape, "soft")
    unit_interval(as_float(beta, "beta"), "beta")
    return teachers.blend(hard if hard.is_floating_point() else hard.to(soft.dtype), soft, beta)


# ---------------------------------------------------------------- losses


@_accept_arrays
def soft_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    reduction: losses.Reduction = "mean",
    sample_weight: Tensor | None = None,
    class_weight: Tensor | None = None,
) -> Tensor:
    r"""Compute :math:`-\sum_k c_k\,\tilde y_{ik} \log p_{ik}`, each row times its weight.

    Args:
        logits: Logits, ``[B, K]``.
        targets: Targets, ``[B, K]``.
        reduction: One of mean, sum, none; the mean divides by the number of rows, whatever their weights.
        sample_weight: Weight of each row, ``[B]``.
        class_weight: Weight of each class, ``[K]``.

    Returns:
        The loss, a scalar, or ``[B]`` without reduction.

    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    >>> soft_cross_entropy(logits, torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    tensor(0.4701)
    """
    logits = _as_float_logits(logits, "logits")
    size, classes = logits.shape
    targets = as_numbers(targets, logits, (size, classes), "targets")
    if sample_weight is not None:
        sample_weight = as_numbers(sample_weight, logits, (size,), "sample_weight")
    if class_weight is not None:
        class_weight = as_numbers(class_weight, logits, (classes,), "class_weight")
    return losses.soft_cross_entropy(logits, targets, reduction, sample_weight, class_weight)


@_accept_arrays
def distillation_kl(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    r"""Compute the Kullback-Leibler divergence of softened predictions.

    :math:`T^2 \cdot \frac1B \sum_i \mathrm{KL}(\sigma(\text{teacher}_i / T) \,\|\, \sigma(\text{student}_i / T))`

    Args:
        student: Logits, ``[B, K]``.
        teacher: Logits, ``[B, K]``.
        temperature: T, greater than 0.

    Returns:
        The mean over the batch (not over classes), with the factor :math:`T^2` included.

    >>> distillation_kl(torch.tensor([[2.0, 0.0]]), torch.tensor([[2.0, 0.0]]), temperature=4.0)
    tensor(0.)
    """
    student, teacher = _as_float_logits(student, "student"), _as_float_logits(teacher, "teacher")
    check_shape(teacher, student.shape, "teacher")
    positive(as_float(temperature, "temperature"), "temperature")
    return losses.distillation_kl(student, teacher, temperature)


def _as_float_logits(values: Any, name: str) -> Tensor:
    logits = as_logits(values, name)
    rows, classes = logits.shape
    check_logits(logits, rows, classes, name)
    return logits


# ---------------------------------------------------------------- coverage


def marginal_coverage(correct: Array, tau: float = 0.0, order: coverage.Order = "accuracy") -> Any:
    r"""Count for each state the samples that no better-ranked state predicts correctly, :math:`\Delta_s`.

    Args:
        correct: Correct samples of each state, oldest first, bool ``[n, m]``.
        tau: Counts of at most ``tau * m`` are set to 0.
        order: ``"accuracy"`` ranks by number of correct samples, ties to the older; ``"newest"`` by age.

    Returns:
        Counts, int64 ``[n]``: one sweep, without pruning in earlier epochs.

    >>> marginal_coverage(np.array([[1, 1, 0, 0], [0, 1, 1, 1]], bool)).tolist()
    [1, 3]
    """
    matrix = _as_matrix(correct)
    counts = coverage.sweep(coverage.pack(matrix), order)
    counts[~coverage.above_tolerance(counts, coverage.check_tau(tau), matrix.shape[1])] = 0
    return _like(counts, correct)


def light_coverage(correct: Array, tau: float) -> list[dict[int, int]]:
    """Replay Algorithm 2 from the first epoch, with pruning.

    Args:
        correct: Correct samples of each epoch, bool ``[E, m]``.
        tau: States that add at most ``tau * m`` samples are pruned and never return.

    Returns:
        For every epoch its anchors, ``{epoch: count}`` with epochs from 1.

    >>> light_coverage(np.array([[1, 1, 0, 0], [0, 1, 1, 1]], bool), tau=0.25)
    [{1: 2}, {2: 3}]
    """
    matrix = _as_matrix(correct)
    return list(coverage.light(coverage.pack(matrix), matrix.shape[1], tau))


def lifespans(correct: Array, tau: float = 0.0) -> Any:
    """Count the epochs in which each state is an anchor by Algorithm 2.

    Args:
        correct: Correct samples of each epoch, bool ``[E, m]``.
        tau: States that add at most ``tau * m`` samples are pruned.

    Returns:
        Counts, int64 ``[E]``; a state's own epoch is included.

    >>> lifespans(np.array([[1, 1, 0, 0], [0, 1, 1, 1]], bool)).tolist()
    [2, 1]
    """
    matrix = _as_matrix(correct)
    return _like(coverage.lifespans(coverage.pack(matrix), matrix.shape[1], tau), correct)


def deviation_gap(correct: Array) -> Any:
    """Compute the share of samples that are right at each epoch and wrong at the end.

    Args:
        correct: Correct samples of each epoch, bool ``[E, m]``.

    Returns:
        Fractions, float64 ``[E]``.

    >>> deviation_gap(np.array([[1, 1, 0, 0], [0, 1, 1, 1]], bool)).tolist()
    [0.25, 0.0]
    """
    matrix = _as_matrix(correct)
    return _like(coverage.deviation_gap(coverage.pack(matrix), matrix.shape[1]), correct)


def _as_matrix(correct: Array) -> NDArray[np.bool_]:
    matrix = _as_array(correct)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"correct must be a matrix of states x samples, got shape {matrix.shape}")
    if matrix.dtype != np.bool_:
        if not np.isin(matrix, (0, 1)).all():
            raise ValueError(f"correct must be bools, or numbers 0 and 1, got other values of type {matrix.dtype}")
        matrix = matrix.astype(np.bool_)
    return matrix


def _like(values: NDArray[Any], like: Array) -> Any:
    return torch.from_numpy(values).to(like.device) if isinstance(like, Tensor) else values


# ---------------------------------------------------------------- metrics


def aurc(probs: Array, labels: Array) -> float:
    """Compute the area under the risk-coverage curve, see :func:`vista.metrics.aurc`.

    Args:
        probs: Probabilities, ``[n, K]``.
        labels: Classes, ``[n]``.

    Returns:
        A fraction, the lower the better.

    >>> round(aurc(np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), np.array([0, 1, 1])), 3)
    0.111
    """
    return metrics.aurc(_as_array(probs), _as_array(labels))


def ece(probs: Array, labels: Array, bins: int = 15) -> float:
    """Compute the expected calibration error, see :func:`vista.metrics.ece`.

    Args:
        probs: Probabilities, ``[n, K]``.
        labels: Classes, ``[n]``.
        bins: Number of equal bins ``(lo, hi]`` of confidence.

    Returns:
        A fraction, the lower the better.

    >>> round(ece(np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), np.array([0, 1, 1])), 3)
    0.3
    """
    return metrics.ece(_as_array(probs), _as_array(labels), bins)


def _as_array(values: Array) -> NDArray[Any]:
    if not isinstance(values, Tensor):
        return np.asarray(values)
    return losses.at_least_float32(values.detach()).cpu().numpy()  # numpy has no bfloat16
