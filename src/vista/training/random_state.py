"""What a network from outside draws from torch's own generators, as ``nn.Dropout`` does: a run's place in them.

Networks of ours draw from the generator of their run. Torch's own ones belong to everybody in the process, so a run
takes them for the time it works, from where it left them, and gives them back as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from vista import exchange

STREAM = 500  # keeps these draws apart from those of loader and method


class Draws:
    """The states of the CPU's generator and, on CUDA, of the device's."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.device = device
        own = [torch.Generator(), *([torch.Generator(device)] if device.type == "cuda" else [])]
        self._states = [generator.manual_seed(seed * 1000 + STREAM + exchange.rank()).get_state() for generator in own]
        self._taken = False

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Draws inside go on where those of this run stopped; outside nothing changes."""
        before = self._read()
        self._write(self._states)
        self._taken = True
        try:
            yield
        finally:
            self._states, self._taken = self._read(), False
            self._write(before)

    def state(self) -> list[Tensor]:
        return self._read() if self._taken else self._states

    def load(self, states: Sequence[Tensor]) -> None:
        """Go on from ``states``; a generator that the run did not have where it was saved begins anew."""
        known = [state.cpu() for state in states[: len(self._states)]]
        self._states = [*known, *self._states[len(known) :]]
        if self._taken:
            self._write(self._states)

    def _read(self) -> list[Tensor]:
        on_device = [torch.cuda.get_rng_state(self.device)] if self.device.type == "cuda" else []
        return [torch.get_rng_state(), *on_device]

    def _write(self, states: Sequence[Tensor]) -> None:
        torch.set_rng_state(states[0])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(states[1], self.device)
