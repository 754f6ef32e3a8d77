"""Which batch size fits into GPU memory: the advice for a run that ran out of it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from vista.runs.config import TrainConfig
from vista.training.engine import Engine

SMALL, LARGER = 2, 4  # batch sizes that are measured
USABLE = 0.9  # of the free memory: allocation is not exact


def largest_batch(peak_bytes: Callable[[int], int], free: int, below: int) -> int | None:
    """The largest power of two that fits, by a line through two measurements.

    Args:
        peak_bytes: Bytes that a step with this number of samples needs.
        free: Bytes that are free.
        below: The batch size that did not fit.

    Returns:
        A power of two, at least 2 and less than ``below``; ``None`` if there is none.

    >>> largest_batch(lambda size: 1_000 + 100 * size, free=10_000, below=256)
    64
    """
    small, larger = peak_bytes(SMALL), peak_bytes(LARGER)
    per_sample = max((larger - small) / (LARGER - SMALL), 1.0)
    fitting = int(min((USABLE * free - small) / per_sample + SMALL, below - 1))
    return None if fitting < SMALL else 2 ** (fitting.bit_length() - 1)


class OutOfMemory(RuntimeError):
    """A run needs more GPU memory than is free; other runs may have the rest."""


def out_of_memory(config: TrainConfig, engine: Engine) -> OutOfMemory:
    """The error of a run that cannot continue, with a batch size that fits as far as that can be measured."""
    fits = None
    try:
        engine.free_memory()
        fits = largest_batch(engine.peak_bytes, torch.cuda.mem_get_info(engine.device)[0], config.batch_size)
    except RuntimeError:  # not even the smallest batch, or the failed step left the device unusable
        pass
    return OutOfMemory(explain(config, fits))


def explain(config: TrainConfig, fits: int | None) -> str:
    """One sentence with the remedy."""
    what = f"the GPU has too little memory for batch_size {config.batch_size} of network {config.network!r}"
    if fits is None:
        return f"{what}: use a smaller --batch-size, --image-size or --network, or end other programs on the GPU"
    groups = -(-config.batch_size * config.accumulate // fits)
    return (
        f"{what}: {fits} should fit, use --batch-size {fits} --fresh (adding --accumulate {groups} keeps the samples "
        "per optimiser step)"
    )
