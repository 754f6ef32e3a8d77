"""Coverage: which validation samples each past state predicts correctly, and how many it adds to better-ranked states.

All functions are pure functions of a packed bit matrix: ``pack`` turns a bool matrix of states x samples into uint64
words, and the sweep is one cumulative OR and one population count, without a loop over states or samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from vista.core.validation import as_float

Order = Literal["accuracy", "newest"]
ORDERS: tuple[Order, ...] = get_args(Order)
Bits = NDArray[np.uint64]
Counts = NDArray[np.int64]


def pack(correct: NDArray[np.bool_]) -> Bits:
    """Pack bool ``[n, m]`` into uint64 ``[n, ceil(m / 64)]``; the unused last bits are zero."""
    return as_words(np.packbits(correct, axis=1))


def as_words(packed: NDArray[np.uint8]) -> Bits:
    """Pad the bits of a record, uint8 ``[n, ceil(m / 8)]``, to uint64 ``[n, ceil(m / 64)]``."""
    padded = np.zeros((len(packed), -(-packed.shape[1] // 8) * 8), dtype=np.uint8)  # in C order, as the view needs
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint64)


def sizes(bits: Bits) -> Counts:
    """Count the correct samples of each row, ``|C_s|``."""
    counts: Counts = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
    return counts


def ranking(bits: Bits, order: Order = "accuracy") -> NDArray[np.intp]:
    """Return the row numbers in the order of the sweep; rows are given oldest first.

    ``accuracy``: by integer count of correct samples, high to low; of equal states the older comes first. The order of
    two states never changes when others are added. Claim 1 (a state at zero stays at zero) depends on this.
    """
    if order == "accuracy":
        return np.argsort(-sizes(bits), kind="stable")
    if order == "newest":
        return np.arange(len(bits))[::-1]
    raise ValueError(f"order must be one of {', '.join(ORDERS)}, got {order!r}")


def sweep(bits: Bits, order: Order = "accuracy") -> Counts:
    r"""Compute marginal coverage :math:`\Delta_s = |C_s \setminus \bigcup_{j \text{ before } s} C_j|` of each row."""
    ranked = ranking(bits, order)
    covered = sizes(np.bitwise_or.accumulate(bits[ranked], axis=0)) if len(bits) else np.zeros(0, np.int64)
    counts = np.empty(len(bits), dtype=np.int64)
    counts[ranked] = np.diff(covered, prepend=0)
    return counts


def above_tolerance(counts: Counts, tau: float, m: int) -> NDArray[np.bool_]:
    r"""Select the anchors: :math:`\Delta_s > \tau m`, compared in float64."""
    return counts > np.float64(tau) * m


def check_tau(tau: float) -> float:
    """Return ``tau`` as a float if it is a fraction in [0, 1)."""
    tau = as_float(tau, "tau")
    if not 0 <= tau < 1:
        raise ValueError(f"tau must be a fraction of the validation set, 0 <= tau < 1 (Light uses 0.01), got {tau}")
    return tau


def add_state(
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
    """Add state ``epoch`` to the kept states and prune those that add too little (Algorithm 2, lines 1 to 3).

    Args:
        states: Epochs of the kept states, oldest first.
        bits: Their coverage, ``[n, words]``.
        epoch: Epoch of the new state.
        newest: Its coverage, ``[1, words]``.
        m: Number of validation samples.
        tau: States with a marginal coverage of at most ``tau * m`` are pruned.
        order: Order of the sweep.
        prunes: Whether to prune at all.

    Returns:
        The remaining states, their marginal coverage and their bits.
    """
    joined = np.concatenate([bits, newest])
    counts = sweep(joined, order)
    stays = above_tolerance(counts, tau, m) if prunes else np.ones(len(counts), np.bool_)
    kept = [s for s, stay in zip([*states, epoch], stays, strict=True) if stay]
    return kept, counts[stays], np.ascontiguousarray(joined[stays])


def light(bits: Bits, m: int, tau: float, order: Order = "accuracy") -> Iterator[dict[int, int]]:
    """Replay Algorithm 2 from the first epoch: yield the anchors ``{epoch: count}`` of each epoch, oldest first.

    A pruned state never returns, so the count of a kept state may grow. ``tau=0`` prunes only states of weight 0.
    """
    tau, kept, rows = check_tau(tau), list[int](), bits[:0]
    for t in range(1, len(bits) + 1):
        kept, counts, rows = add_state(kept, rows, t, bits[t - 1 : t], m=m, tau=tau, order=order)
        yield dict(zip(kept, counts.tolist(), strict=True))


def lifespans(bits: Bits, m: int, tau: float) -> Counts:
    """Count for each state the epochs ``t >= s`` in which it is an anchor, its own included; 0 if it never is one."""
    spans = np.zeros(len(bits), dtype=np.int64)
    for anchors in light(bits, m, tau):
        spans[np.array(list(anchors), dtype=np.intp) - 1] += 1
    return spans


def deviation_gap(bits: Bits, m: int) -> NDArray[np.float64]:
    r"""Compute for each epoch the share of samples right then and wrong at the end: :math:`|C_e \setminus C_E| / m`."""
    return sizes(bits & ~bits[-1]) / m
