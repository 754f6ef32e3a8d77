"""Bad values on a CUDA device: masked at once, reported at the next look, without a host sync in between."""

from __future__ import annotations

import torch
from torch import Tensor

NONE = torch.iinfo(torch.long).max
BAD_INDEX, BAD_LOGITS = 0, 1


class FirstFault:
    """The first bad row that came, in one device tensor.

    A row's code is ``(call, kind, row's index)`` packed into one integer, so that the smallest code is the first one.
    """

    def __init__(self, device: torch.device) -> None:
        self._code = torch.full((1,), NONE, dtype=torch.long, device=device)
        self._calls = torch.zeros(1, dtype=torch.long, device=device)

    def spare(self, index: Tensor, size: int, logits: Tensor | None) -> Tensor:
        """``index`` with every bad row sent to the spare row ``size``; the first bad one is remembered."""
        inside = index.clamp(0, size - 1) == index
        good = inside if logits is None else inside & torch.isfinite(logits.detach()).all(dim=1)
        code = (self._calls * 2 + inside) * (size + 2) + (index.clamp(-1, size) + 1)
        codes = torch.cat([self._code, torch.where(good, NONE, code)])  # never empty, whatever the batch
        self._code.copy_(codes.amin(0, keepdim=True))
        self._calls += 1
        return torch.where(good, index, size)

    def raise_if_any(self, epoch: int, size: int) -> None:
        """One look from the host; what was found is forgotten once it is raised."""
        code = int(self._code)
        if code == NONE:
            return
        self._code.fill_(NONE)
        kind, place = divmod(code, size + 2)
        if kind % 2 == BAD_INDEX:
            side = "below 0" if place == 0 else f"above {size - 1}"
            raise IndexError(f"an index {side} came in epoch {epoch}, but samples are numbered 0 to {size - 1}")
        raise FloatingPointError(
            f"logits were not finite in epoch {epoch}, first for sample {place - 1}; it was not stored"
        )

    def to(self, device: torch.device) -> FirstFault:
        self._code, self._calls = self._code.to(device), self._calls.to(device)
        return self
