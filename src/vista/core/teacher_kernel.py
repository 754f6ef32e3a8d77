"""The weighted sum of many states in one Triton kernel: the GPU reads each prediction and writes each sum once.

Triton is installed with torch for CUDA only, so this module is imported where it is used.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

ALIGNMENT = 16  # bytes that a thread reads at once; a tensor that is not a view starts at a multiple of it
_SHAPE = {"width": 1024, "at_a_time": 8, "alignment": ALIGNMENT}  # values per program, states read ahead


def can_sum(states: Sequence[Tensor], out: Tensor) -> bool:
    """Whether the kernel can read these tensors: contiguous, aligned, and of one dtype, shape and device."""
    dtype, shape, device = states[0].dtype, out.shape, out.device
    return out.is_contiguous() and all(
        state.dtype is dtype
        and state.shape == shape
        and state.is_contiguous()
        and state.device == device
        and state.data_ptr() % ALIGNMENT == 0
        for state in states
    )


def fused_sum(states: Sequence[Tensor], shares: Sequence[float], out: Tensor) -> None:
    """Write the sum of ``shares[i] * states[i]`` to ``out``, in float32 and in this order, if :func:`can_sum`."""
    addresses = _copy_to_gpu(torch.tensor([state.data_ptr() for state in states]), out.device)
    weights = _copy_to_gpu(torch.tensor(shares, dtype=torch.float32), out.device)
    programs = triton.cdiv(out.numel(), _SHAPE["width"])
    with torch.cuda.device(out.device):
        _add_up[(programs,)](addresses, states[0], weights, out, out.numel(), len(states), **_SHAPE)


def _copy_to_gpu(numbers: Tensor, device: torch.device) -> Tensor:
    """Copy to the GPU without a host sync."""
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
    at_a_time: tl.constexpr,
    alignment: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * width + tl.arange(0, width)
    inside = at < size
    total = tl.zeros((width,), dtype=tl.float32)
    for first in range(0, states, at_a_time):
        for ahead in tl.static_range(at_a_time):
            s = first + ahead
            is_state = s < states
            state = tl.load(addresses + s, mask=is_state, other=0).to(like.dtype)
            state = tl.multiple_of(state, alignment)  # otherwise each value is read by itself
            share = tl.load(shares + s, mask=is_state, other=0.0)
            total += share * tl.load(state + at, mask=inside & is_state, other=0.0).to(tl.float32)
    tl.store(out + at, total, mask=inside)
