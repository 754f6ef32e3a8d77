"""VISTA as one object more in the tools that people already use; each file here needs the extra of its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data import BatchSampler, DistributedSampler, SequentialSampler

from vista.core import collectives
from vista.core.vista import Vista


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
    collectives.merge_rows(state["current"], state["seen"])
    return state


def check_epoch(vista: Vista, ended: int, resume: str, loaded: bool = True) -> None:
    """Refuse targets that belong to another epoch than a trainer begins; ``loaded``: a checkpoint brought some."""
    if vista.epoch != ended:
        advice = f"make a new Vista, or go on from a checkpoint by {resume}"
        if vista.epoch < ended and loaded:
            advice = "the checkpoint lacks the validation of its last epoch, take one that was saved after it"
        elif vista.epoch < ended:
            advice = "no checkpoint brought VISTA's state, load the weights alone and begin with a new trainer"
        raise ValueError(
            f"vista has ended {vista.epoch} of its {vista.num_epochs} epochs, but this training {ended}: {advice}"
        )


def positions(loader: Any) -> list[list[int]]:
    """Which samples each batch of a validation loader holds, on this process."""
    batches = loader.batch_sampler
    if batches is None:
        raise ValueError("the validation loader has batch_size=None, but batches of a known size are needed")
    sampler = getattr(batches, "sampler", None)
    in_order = type(sampler) in (SequentialSampler, DistributedSampler) and not getattr(sampler, "shuffle", False)
    if type(batches) is not BatchSampler or not in_order:
        kind = type(batches if type(batches) is not BatchSampler else sampler).__name__
        raise ValueError(f"the validation loader draws by {kind}, but its samples must come in order")
    return list(batches)
