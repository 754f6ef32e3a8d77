"""VISTA as one object more in the tools that people already use; each file here needs the extra of its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data import DistributedSampler, SequentialSampler

from vista import exchange
from vista.distiller import Vista


@contextmanager
def comes_with(extra: str) -> Iterator[None]:
    """Imports inside say which extra to install where it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is not installed; it comes with: pip install 'vista-distill[{extra}]'", name=error.name
        ) from error


def shared_state(vista: Vista) -> dict[str, Any]:
    """The state of all processes, to be saved by one of them: every process must call it.

    In the middle of an epoch each process has recorded other samples than the rest.
    """
    state = vista.state_dict()
    exchange.merge_rows(state["current"], state["seen"])
    return state


def positions(loader: Any) -> list[list[int]]:
    """Which samples each batch of a validation loader holds, on this process."""
    kind = type(loader.sampler)
    if kind not in (SequentialSampler, DistributedSampler) or getattr(loader.sampler, "shuffle", False):
        raise ValueError(f"the validation loader draws by {kind.__name__}, but its samples must come in order")
    return list(loader.batch_sampler)
