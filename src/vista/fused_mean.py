"""The weighted mean of many states in two kernels: a card reads each prediction once, and writes the mean.

Written in Triton, which comes with torch for CUDA and is not there for other devices: import this where it is used.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

ALIGNMENT = 16  # bytes that a thread reads in one go; every tensor that is no part of another begins at such a place
WIDTH, STATES_AHEAD = 1024, 8  # numbers of a program, and states whose reads are under way at once
NUMBERS_OF_ROWS = 4096  # normalised by a program,
MOST_CLASSES = 2**14  # which holds whole rows


def can_sum(states: Sequence[Tensor], out: Tensor) -> bool:
    """Whether the kernel can go through all of these side by side: contiguous, of one float type, alike, aligned."""
    dtype, shape, device = states[0].dtype, out.shape, out.device
    return (
        out.is_contiguous()
        and shape[1] <= MOST_CLASSES
        and all(
            state.dtype is dtype
            and state.shape == shape
            and state.is_contiguous()
            and state.device == device
            and state.data_ptr() % ALIGNMENT == 0
            for state in states
        )
    )


def fused_mean(states: Sequence[Tensor], shares: Sequence[float], out: Tensor) -> None:
    """Rows of ``out`` = sum of ``shares[i] * states[i]``, in float32 and in this order, then brought to a sum of one.

    All are ``[N, K]``; ``can_sum`` says for which this works.
    """
    rows, classes = out.shape
    addresses = _hand_over(torch.tensor([state.data_ptr() for state in states]), out.device)
    weights = _hand_over(torch.tensor(shares, dtype=torch.float32), out.device)
    columns = triton.next_power_of_2(classes)
    at_once = max(1, NUMBERS_OF_ROWS // columns)
    with torch.cuda.device(out.device):
        _add_up[(triton.cdiv(out.numel(), WIDTH),)](
            addresses, states[0], weights, out, out.numel(), len(states), WIDTH, STATES_AHEAD, ALIGNMENT
        )
        _normalise[(triton.cdiv(rows, at_once),)](out, rows, classes, at_once, columns)


def _hand_over(numbers: Tensor, device: torch.device) -> Tensor:
    """A copy on the card, for which the host does not wait."""
    return numbers.pin_memory().to(device, non_blocking=True)


@triton.jit(do_not_specialize=["states"])
def _add_up(  # type: ignore[no-untyped-def]
    addresses,
    like,
    shares,
    out,
    size,
    states,
    width: tl.constexpr,
    ahead: tl.constexpr,
    alignment: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * width + tl.arange(0, width)
    inside = at < size
    total = tl.zeros((width,), dtype=tl.float32)
    for first in range(0, states, ahead):
        for place in tl.static_range(ahead):
            s = first + place
            is_state = s < states
            state = tl.load(addresses + s, mask=is_state, other=0).to(like.dtype)
            state = tl.multiple_of(state, alignment)  # or it would be read number by number
            share = tl.load(shares + s, mask=is_state, other=0.0)
            total += share * tl.load(state + at, mask=inside & is_state, other=0.0).to(tl.float32)
    tl.store(out + at, total, mask=inside)


@triton.jit(do_not_specialize=["rows"])
def _normalise(out, rows, classes, at_once: tl.constexpr, columns: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64) * at_once + tl.arange(0, at_once)[:, None]
    column = tl.arange(0, columns)[None, :]
    inside = (row < rows) & (column < classes)
    numbers = tl.load(out + row * classes + column, mask=inside, other=0.0)
    tl.store(out + row * classes + column, numbers / tl.sum(numbers, axis=1)[:, None], mask=inside)
