"""Record the predictions of a batch in one Triton kernel; torch needs about twelve.

Triton is installed with torch for CUDA only, so this module is imported where it is used.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl
from torch import Tensor


def record(logits: Tensor, index: Tensor, current: Tensor, count: Tensor, total: Tensor) -> None:
    """Write the classes of ``logits`` ``[B, K]`` to ``current``, and add to ``count`` and ``total``.

    Args:
        logits: Logits, contiguous.
        index: The samples of the batch, each of which occurs once.
        current: Predicted class per sample, int32 ``[N]``.
        count: Predictions per sample, int32 ``[N]``.
        total: Sum of the probabilities, float32 ``[N, K]``, or ``[N, 0]``.
    """
    batch, classes = logits.shape
    _record[(batch,)](
        logits, index, current, count, total, classes, triton.next_power_of_2(classes), total.shape[1] > 0,
        num_warps=1 if classes <= 256 else 4,
    )  # fmt: skip


@triton.jit
def _record(logits, index, current, count, total, K: tl.constexpr, BLOCK: tl.constexpr, ADDS: tl.constexpr):
    b = tl.program_id(0)
    sample = tl.load(index + b).to(tl.int64)
    k = tl.arange(0, BLOCK)
    v = tl.load(logits + b * K + k, mask=k < K, other=-float("inf")).to(tl.float32)
    largest = tl.max(v, 0)
    tl.store(current + sample, tl.min(tl.where(v == largest, k, K - 1), 0))
    tl.store(count + sample, tl.load(count + sample) + 1)
    if ADDS:
        e = tl.exp(v - largest)
        at = total + sample * K + k
        tl.store(at, tl.load(at, mask=k < K, other=0.0) + e / tl.sum(e, 0), mask=k < K)
