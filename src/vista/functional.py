"""Every pure function under one roof, for torch tensors and numpy arrays alike: what comes in decides what goes out."""

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
    as_integers,
    as_logits,
    as_numbers,
    check_classes,
    check_logits,
    check_shape,
    native,
    not_negative,
    plain_numbers,
    positive,
    real,
    unit_interval,
    whole,
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


def _for_both(function: Callable[P, Tensor]) -> Callable[P, Any]:
    """The same function of numpy arrays, too: they go in as tensors, and of arrays alone an array comes out."""

    @functools.wraps(function)
    def either(*args: P.args, **kwargs: P.kwargs) -> Any:
        given = [*args, *kwargs.values()]
        given += [value for each in given if isinstance(each, Mapping) for value in each.values()]
        if not any(isinstance(value, np.ndarray) for value in given):
            return function(*args, **kwargs)
        result: Any = function(*map(_as_tensor, args), **{name: _as_tensor(value) for name, value in kwargs.items()})
        return result if any(isinstance(value, Tensor) for value in given) else result.numpy()

    return either


def _as_tensor(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _as_tensor(each) for key, each in value.items()}
    return torch.from_numpy(native(value)) if isinstance(value, np.ndarray) else value


# Checked here alone: a training step calls what lies below, because on a card it would wait for a look at values.


@_for_both
@functools.wraps(losses.distillation_kl)
def distillation_kl(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    student, teacher = _float_logits(student, "student"), _float_logits(teacher, "teacher")
    check_shape(teacher, student.shape, "teacher")
    positive(real(temperature, "temperature"), "temperature")
    return losses.distillation_kl(student, teacher, temperature)


@_for_both
@functools.wraps(losses.one_hot)
def one_hot(labels: Tensor, num_classes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    labels, num_classes = as_integers(labels, "labels"), whole(num_classes, "num_classes")
    if not labels.is_cuda:
        check_classes(labels, num_classes, "labels", may_be_absent=True)
    return losses.one_hot(labels, num_classes, dtype)


@_for_both
def soft_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    reduction: losses.Reduction = "mean",
    sample_weight: Tensor | None = None,
    class_weight: Tensor | None = None,
) -> Tensor:
    r""":math:`-\sum_k c_k\,\tilde y_{ik} \log p_{ik}` for logits and targets ``[B, K]``, each row times its weight.

    ``mean`` divides by the number of rows whatever their weights.
    """
    logits = _float_logits(logits, "logits")
    size, classes = logits.shape
    targets = as_numbers(targets, logits, (size, classes), "targets")
    if sample_weight is not None:
        sample_weight = as_numbers(sample_weight, logits, (size,), "sample_weight")
    if class_weight is not None:
        class_weight = as_numbers(class_weight, logits, (classes,), "class_weight")
    return losses.soft_cross_entropy(logits, targets, reduction, sample_weight, class_weight)


@_for_both
def teacher(predictions: Mapping[int, Tensor], weights: Mapping[int, float]) -> Tensor:
    r""":math:`Q(x) = \sum_s w_s p_s(x)`, float32 ``[N, K]``, from predictions ``[N, K]`` of any float type.

    Summed in float32 in the order of the epochs, then renormalised, because float16 rows sum to one only roughly.
    """
    for name, values in (("predictions", predictions), ("weights", weights)):
        if not isinstance(values, Mapping):
            raise TypeError(
                f"{name} is a {type(values).__name__}, but a mapping by epochs is needed, such as {{1: ...}}"
            )
    rows: dict[int, Tensor] = {}
    for state, weight in weights.items():
        if state not in predictions:
            there = ", ".join(map(str, predictions))
            raise ValueError(f"weights names state {state}, but predictions has {there}")
        not_negative(real(weight, f"weights[{state}]"), f"weights[{state}]")
        rows[state] = plain_numbers(predictions[state], f"predictions[{state}]")
        if rows[state].dim() != 2:
            shape = tuple(rows[state].shape)
            raise ValueError(f"predictions[{state}] has shape {shape}, but rows of probabilities [n, K] are needed")
        check_shape(rows[state], rows[next(iter(weights))].shape, f"predictions[{state}]")
    if weights and sum(weights.values()) == 0:
        raise ValueError("weights sum to 0, but at least one must be greater than 0")
    mean = teachers.teacher(rows, weights)
    bad = (~torch.isfinite(mean).all(dim=1)).nonzero().flatten().tolist()
    if bad:
        total = sum(weight * float(rows[state][bad[0]].sum()) for state, weight in weights.items())
        raise ValueError(f"row {bad[0]} of predictions sums to {total:g} over all states, but probabilities are needed")
    return mean


@_for_both
@functools.wraps(teachers.blend)
def blend(hard: Tensor, soft: Tensor, beta: float) -> Tensor:
    hard, soft = plain_numbers(hard, "hard"), plain_numbers(soft, "soft")
    check_shape(soft, hard.shape, "soft")
    unit_interval(real(beta, "beta"), "beta")
    return teachers.blend(hard if hard.is_floating_point() else hard.to(soft.dtype), soft, beta)


def _float_logits(values: Any, name: str) -> Tensor:
    logits = as_logits(values, name)
    size, classes = logits.shape
    check_logits(logits, size, classes, name)
    return logits


def marginal_coverage(correct: Array, tau: float = 0.0, order: coverage.Order = "accuracy") -> Any:
    r"""Marginal coverage :math:`\Delta_s` of each state, int64 ``[n]``, from bool ``[n, m]``: one sweep, no history.

    Counts of at most ``tau * m`` are set to 0.

    >>> marginal_coverage(np.array([[1, 1, 0, 0], [0, 1, 1, 1]], bool)).tolist()
    [1, 3]
    """
    matrix = _matrix(correct)
    counts = coverage.sweep(coverage.pack(matrix), order)
    counts[~coverage.above_tolerance(counts, coverage.check_tau(tau), matrix.shape[1])] = 0
    return _like(counts, correct)


def light_coverage(correct: Array, tau: float) -> list[dict[int, int]]:
    """Algorithm 2 from the first state on: for every epoch the anchors, ``{epoch: count}`` with epochs from 1."""
    matrix = _matrix(correct)
    return list(coverage.light(coverage.pack(matrix), matrix.shape[1], tau))


def lifespans(correct: Array, tau: float = 0.0) -> Any:
    """Number of epochs each state was an anchor by Algorithm 2, int64 ``[E]``."""
    matrix = _matrix(correct)
    return _like(coverage.lifespans(coverage.pack(matrix), matrix.shape[1], tau), correct)


def deviation_gap(correct: Array) -> Any:
    """Share of samples right at epoch ``e`` and wrong at the end, float64 ``[E]``."""
    matrix = _matrix(correct)
    return _like(coverage.deviation_gap(coverage.pack(matrix), matrix.shape[1]), correct)


def aurc(probs: Array, labels: Array) -> float:
    """Area under the risk-coverage curve as a fraction; ties of confidence stay in the order of the samples."""
    return metrics.aurc(_array(probs), _array(labels))


def ece(probs: Array, labels: Array, bins: int = 15) -> float:
    """Expected calibration error as a fraction, over equal bins ``(lo, hi]``."""
    return metrics.ece(_array(probs), _array(labels), bins)


def _array(values: Array) -> NDArray[Any]:
    if not isinstance(values, Tensor):
        return np.asarray(values)
    return losses.wide(values.detach()).cpu().numpy()  # numpy knows no bfloat16


def _matrix(correct: Array) -> NDArray[np.bool_]:
    matrix = _array(correct)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"correct has shape {matrix.shape}, but a matrix of states x samples is needed")
    if matrix.dtype != np.bool_:
        if not np.isin(matrix, (0, 1)).all():
            raise ValueError(f"correct has type {matrix.dtype} and other values than 0 and 1, but bools are needed")
        matrix = matrix.astype(np.bool_)
    return matrix


def _like(values: NDArray[Any], like: Array) -> Any:
    return torch.from_numpy(values).to(like.device) if isinstance(like, Tensor) else values
