"""Every pure function under one roof, for torch tensors and numpy arrays alike: what comes in decides what goes out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vista import coverage, losses, metrics
from vista import teacher as teachers
from vista.checks import native
from vista.schedule import beta
from vista.teacher import blend

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


distillation_kl = _for_both(losses.distillation_kl)
one_hot = _for_both(losses.one_hot)
soft_cross_entropy = _for_both(losses.soft_cross_entropy)
teacher = _for_both(teachers.teacher)


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
