"""The weighted sum of many states in one kernel: a card reads each prediction once and writes the sum once.

Written in Triton, which comes with torch for CUDA and is not there for other devices: import this where it is used.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

NUMBERS_PER_PROGRAM = 1024


def fused_sum(states: Sequence[Tensor], shares: Sequence[float], out: Tensor) -> None:
    """``out`` = sum of ``shares[i] * states[i]``, in float32 and in this order.

    The states are contiguous, of one float type, and of ``out``'s shape and device.
    """
    addresses = _hand_over(torch.tensor([state.data_ptr() for state in states]), out.device)
    weights = _hand_over(torch.tensor(shares, dtype=torch.float32), out.device)
    programs = triton.cdiv(out.numel(), NUMBERS_PER_PROGRAM)
    with torch.cuda.device(out.device):
        _add_up[(programs,)](addresses, states[0], weights, out, out.numel(), len(states), NUMBERS_PER_PROGRAM)


def _hand_over(numbers: Tensor, device: torch.device) -> Tensor:
    """A copy on the card, for which the host does not wait."""
    return numbers.pin_memory().to(device, non_blocking=True)


@triton.jit(do_not_specialize=["size", "states"])
def _add_up(addresses, like, shares, out, size, states, width: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * width + tl.arange(0, width)
    inside = at < size
    total = tl.zeros((width,), dtype=tl.float32)
    for s in range(states):
        state = tl.load(addresses + s).to(like.dtype)
        total += tl.load(shares + s) * tl.load(state + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, total, mask=inside)
