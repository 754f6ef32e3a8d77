"""Whether Triton's kernels work on a device."""

from __future__ import annotations

import functools
import subprocess

import torch


@functools.cache
def triton_works(device: torch.device) -> bool:
    """Add two numbers in a kernel: Triton is installed with torch for CUDA only, and needs a compiler.

    The first call for a device waits for the result, so it cannot be part of a captured graph.
    """
    two, out = torch.full((1,), 2.0, device=device), torch.zeros(1, device=device)
    try:
        from vista.core import teacher_kernel

        teacher_kernel.fused_sum([two, two], [1.0, 0.5], out)
    except (ImportError, RuntimeError, OSError, subprocess.SubprocessError):
        return False
    return out.item() == 3.0
