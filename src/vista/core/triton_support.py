"""Whether Triton's kernels work on a device."""

from __future__ import annotations

import functools
import warnings

import torch


@functools.cache
def triton_works(device: torch.device) -> bool:
    """Add two numbers in a kernel; a warning says once if that fails.

    Triton is installed with torch for CUDA only, needs a compiler, and does not support every GPU. The first call for a
    device waits for the result, so it cannot be part of a captured graph.
    """
    two, out = torch.full((1,), 2.0, device=device), torch.zeros(1, device=device)
    reason = "it computes wrong numbers"
    try:
        from vista.core import teacher_kernel

        teacher_kernel.fused_sum([two, two], [1.0, 0.5], out)
        if out.item() == 3.0:
            return True
    except Exception as error:  # also of Triton's compiler, which has errors of many kinds
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
    warnings.warn(f"Triton does not work on {device} ({reason}): torch's own kernels are used, slower", stacklevel=2)
    return False
