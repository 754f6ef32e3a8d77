"""VISTA inside other libraries, one module per library; each needs the extra of the same name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch.utils.data import BatchSampler, DistributedSampler, SequentialSampler

from vista.core import collectives
from vista.core.vista import Summary, Vista

FITTED = "temperature", "noise_rate"  # of posterior targets


@contextmanager
def require_extra(extra: str) -> Iterator[None]:
    """Name the extra to install when an import inside this block fails.

    Args:
        extra: An optional dependency group of ``pyproject.toml``.

    Raises:
        ModuleNotFoundError: With the ``pip`` command that installs the extra.

    >>> with require_extra("skorch"):
    ...     import no_such_package
    Traceback (most recent call last):
    ModuleNotFoundError: no_such_package is not installed; run: pip install 'vista-distill[skorch]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is not installed; run: pip install 'vista-distill[{extra}]'", name=error.name
        ) from error


def merge_state(vista: Vista) -> dict[str, Any]:
    """Return the state of all processes, for one of them to save. A collective call: every process must make it.

    In the middle of an epoch each process has recorded different samples.

    Args:
        vista: The ``Vista`` of this process.

    Returns:
        The result of ``vista.state_dict()`` with the predictions of all processes.

    >>> merge_state(Vista([0, 1], num_classes=2, epochs=2, val_labels=[0]))["epoch"]
    0
    """
    state = vista.state_dict()
    collectives.merge_rows(state["current"], state["seen"])
    return state


def fitted_values(values: Summary | Mapping[str, Any]) -> dict[str, float]:
    """Return what :class:`vista.Posterior` has fitted in an epoch, for logs; nothing for :class:`vista.Vista`.

    Args:
        values: The result of ``end_epoch``, or the epoch's line in a record.

    Returns:
        ``temperature`` and ``noise_rate``.

    >>> fitted_values({"beta": 0.5, "temperature": 1.2, "noise_rate": 0.3})
    {'temperature': 1.2, 'noise_rate': 0.3}
    """
    known = values if isinstance(values, Mapping) else vars(values)
    return {name: float(known[name]) for name in FITTED if name in known}


def check_epoch(vista: Vista, completed: int, resume: str, loaded: bool = True) -> None:
    """Check that VISTA and a trainer have completed the same number of epochs, so that targets belong to the next one.

    Args:
        vista: The trainer's ``Vista``.
        completed: Epochs that the trainer has completed.
        resume: The call that resumes from a checkpoint, for the error message.
        loaded: Whether a checkpoint restored VISTA's state.

    >>> check_epoch(Vista([0, 1], num_classes=2, epochs=2, val_labels=[0]), 0, "fit(ckpt_path=...)")
    """
    if vista.epoch == completed:
        return
    if vista.epoch > completed:
        advice = f"create a new Vista, or resume from a checkpoint with {resume}"
    elif loaded:
        advice = "the checkpoint was saved before the validation of its last epoch; resume from one saved after it"
    else:
        advice = "no checkpoint restored VISTA's state; load only the weights and start with a new trainer"
    raise ValueError(
        f"vista has completed {vista.epoch} of its {vista.num_epochs} epochs, but the trainer has completed "
        f"{completed}: {advice}"
    )


def list_batch_indices(loader: Any) -> list[list[int]]:
    """Return the sample indices of each batch of a validation loader on this process; it must not shuffle.

    Args:
        loader: The validation loader.

    Returns:
        A list of indices per batch.

    >>> from torch.utils.data import DataLoader
    >>> list_batch_indices(DataLoader(range(3), batch_size=2))
    [[0, 1], [2]]
    """
    batches = loader.batch_sampler
    sampler = getattr(batches, "sampler", None)
    in_order = type(sampler) in (SequentialSampler, DistributedSampler) and not getattr(sampler, "shuffle", False)
    if type(batches) is not BatchSampler or not in_order:
        kind = type(sampler if type(batches) is BatchSampler else batches).__name__
        raise ValueError(f"the validation loader must read its samples in order and in batches, got {kind}")
    return list(batches)
