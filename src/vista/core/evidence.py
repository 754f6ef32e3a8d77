"""What a training predicted for its own training samples: the class in every epoch, and the mean probabilities.

The predictions are those of the training pass itself (augmented view, before the step), so recording them costs no
extra forward pass. Review of labels, trust and calibration read them from the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vista.core import collectives
from vista.core.losses import at_least_float32
from vista.core.triton_support import triton_works

MISSING = -1  # class of a sample that was not predicted in an epoch
LARGEST_MEAN = 2**31  # bytes; with more samples x classes the mean prediction is not kept


class Evidence:
    """Predictions of the training pass, recorded batch by batch without a host sync.

    Args:
        samples: Number of training samples N.
        num_classes: Number of classes K.
        device: Where the logits are.
    """

    def __init__(self, samples: int, num_classes: int, device: torch.device) -> None:
        self.current = torch.full((samples,), MISSING, dtype=torch.int32, device=device)
        self.count = torch.zeros(samples, dtype=torch.int32, device=device)
        keeps_mean = 4 * samples * num_classes <= LARGEST_MEAN
        self.total = torch.zeros(samples, num_classes if keeps_mean else 0, device=device)
        self.dtype = next(kind for kind in (np.int8, np.int16, np.int32) if num_classes - 1 <= np.iinfo(kind).max)
        self.history: list[NDArray[Any]] = []  # a row [N] per epoch that has ended

    @torch.no_grad()
    def record(self, logits: Tensor, index: Tensor) -> None:
        """Record the predictions ``logits`` ``[B, K]`` of the samples ``index`` ``[B]``, each of which occurs once."""
        if logits.is_cuda and logits.dtype is not torch.float64 and triton_works(logits.device):
            from vista.core import evidence_kernel

            evidence_kernel.record(logits.contiguous(), index, self.current, self.count, self.total)
            return
        probs = at_least_float32(logits.detach()).softmax(dim=-1).float()
        self.current.index_copy_(0, index, probs.argmax(dim=-1).int())
        self.count.index_copy_(0, index, self.count.index_select(0, index) + 1)
        if self.total.shape[1]:
            self.total.index_copy_(0, index, self.total.index_select(0, index) + probs)

    def end_epoch(self) -> None:
        """Append the epoch's classes to the history; with several processes, those of all of them."""
        collectives.merge_rows(self.current, self.current != MISSING)
        self.history.append(self.current.cpu().numpy().astype(self.dtype))
        self.current.fill_(MISSING)

    def classes(self) -> NDArray[Any]:
        """Predicted class per epoch and training sample, ``[epochs, N]``; -1 where there is none."""
        return np.stack(self.history) if self.history else np.zeros((0, len(self.current)), self.dtype)

    def mean(self) -> NDArray[np.float16]:
        """Mean predicted probabilities per sample ``[N, K]``; a sample that was never predicted has a row of zeros.

        With more than 2 GiB of float32 values the mean is not kept, and the result has the shape ``[N, 0]``.
        """
        total, count = collectives.total(self.total), collectives.total(self.count)
        mean: NDArray[np.float16] = (total / count.clamp(min=1).unsqueeze(1)).cpu().numpy().astype(np.float16)
        return mean

    def nbytes(self, epochs: int) -> int:
        """Upper bound on the size of :meth:`state`."""
        history = epochs * len(self.current) * np.dtype(self.dtype).itemsize
        return self.current.nbytes + self.count.nbytes + self.total.nbytes + history

    def state(self) -> dict[str, Any]:
        """All state, for a checkpoint."""
        return {"current": self.current, "count": self.count, "total": self.total, "history": self.classes()}

    def load(self, state: Mapping[str, Any] | None, epochs_done: int) -> None:
        """Restore :meth:`state` in place; a checkpoint without it leaves the epochs before it missing."""
        if state is None:
            self.history = [np.full(len(self.current), MISSING, self.dtype) for _ in range(epochs_done)]
            return
        for name in ("current", "count", "total"):
            getattr(self, name).copy_(state[name])
        self.history = list(np.asarray(state["history"]))
