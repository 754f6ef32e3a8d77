"""Coverage: which validation samples each past state gets right, and what each adds to the better-ranked ones.

Everything here is a pure function of a packed bit matrix: ``pack`` turns a bool matrix of states x samples into
uint64 words, and the sweep is then one cumulative OR and one population count, without a loop over states or samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from vista.core.validation import real

Order = Literal["accuracy", "newest"]
ORDERS: tuple[Order, ...] = get_args(Order)
Bits = NDArray[np.uint64]
Counts = NDArray[np.int64]


def pack(correct: NDArray[np.bool_]) -> Bits:
    """Pack bool ``[n, m]`` into uint64 ``[n, ceil(m / 64)]``; the unused last bits are zero."""
    n, m = correct.shape
    words = -(-m // 64)
    packed = np.zeros((n, words * 8), dtype=np.uint8)
    packed[:, : -(-m // 8)] = np.packbits(correct, axis=1)
    return packed.view(np.uint64)


def sizes(bits: Bits) -> Counts:
    """``|C_s|`` for each row."""
    counts: Counts = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
    return counts


def ranking(bits: Bits, order: Order = "accuracy") -> NDArray[np.intp]:
    """Rows in the order of the sweep; rows are given oldest first.

    ``accuracy``: by integer count of correct samples, high to low, ties to the older. The order of two states then
    never changes as others join, which Claim 1 (a state at zero stays at zero) rests on.
    """
    if order == "accuracy":
        return np.argsort(-sizes(bits), kind="stable")
    if order == "newest":
        return np.arange(len(bits))[::-1]
    raise ValueError(f"order is {order!r}, but it must be one of {', '.join(ORDERS)}")


def sweep(bits: Bits, order: Order = "accuracy") -> Counts:
    r"""Marginal coverage :math:`\Delta_s = |C_s \setminus \bigcup_{j \text{ before } s} C_j|`, a count per row."""
    ranked = ranking(bits, order)
    covered = sizes(np.bitwise_or.accumulate(bits[ranked], axis=0)) if len(bits) else np.zeros(0, np.int64)
    counts = np.empty(len(bits), dtype=np.int64)
    counts[ranked] = np.diff(covered, prepend=0)
    return counts


def above_tolerance(counts: Counts, tau: float, m: int) -> NDArray[np.bool_]:
    r"""Which states are anchors: :math:`\Delta_s > \tau m`, compared in float64."""
    return counts > np.float64(tau) * m


def check_tau(tau: float) -> float:
    """``tau`` as a float, or an error that says what would do."""
    tau = real(tau, "tau")
    if not 0 <= tau < 1:
        raise ValueError(f"tau is {tau}, but it is a fraction of the validation set: 0 <= tau < 1 (0.01 is Light's)")
    return tau


def admit(
    states: Sequence[int],
    bits: Bits,
    epoch: int,
    newest: Bits,
    *,
    m: int,
    tau: float,
    order: Order = "accuracy",
    prunes: bool = True,
) -> tuple[list[int], Counts, Bits]:
    """Algorithm 2, lines 1 to 3: state ``epoch`` joins the kept ones, and what adds too little leaves.

    ``bits`` ``[n, words]`` belong to ``states``, oldest first, and ``newest`` ``[1, words]`` to the one that joins. The
    states that stay come back with their counts and their bits.
    """
    joined = np.concatenate([bits, newest])
    counts = sweep(joined, order)
    stays = above_tolerance(counts, tau, m) if prunes else np.ones(len(counts), np.bool_)
    kept = [s for s, stay in zip([*states, epoch], stays, strict=True) if stay]
    return kept, counts[stays], np.ascontiguousarray(joined[stays])


def light(bits: Bits, m: int, tau: float, order: Order = "accuracy") -> Iterator[dict[int, int]]:
    """Algorithm 2 from the start: for each epoch ``t`` the anchors ``{epoch: count}``, oldest first.

    What is pruned never returns; the count of a survivor may then grow. ``tau=0`` prunes what Basic gives weight 0.
    """
    tau, kept, rows = check_tau(tau), list[int](), bits[:0]
    for t in range(1, len(bits) + 1):
        kept, counts, rows = admit(kept, rows, t, bits[t - 1 : t], m=m, tau=tau, order=order)
        yield dict(zip(kept, counts.tolist(), strict=True))


def lifespans(bits: Bits, m: int, tau: float) -> Counts:
    """For each state the number of epochs ``t >= s`` with ``s`` an anchor, its own included; 0 if it never was one."""
    spans = np.zeros(len(bits), dtype=np.int64)
    for anchors in light(bits, m, tau):
        spans[np.array(list(anchors), dtype=np.intp) - 1] += 1
    return spans


def deviation_gap(bits: Bits, m: int) -> NDArray[np.float64]:
    r"""Share of samples right at epoch ``e`` and wrong at the end: :math:`|C_e \setminus C_E| / m`, for each ``e``."""
    return sizes(bits & ~bits[-1]) / m
