"""What the callback asks a Lightning trainer."""

from __future__ import annotations

from typing import Any

from vista.core.vista import Vista
from vista.integrations import check_epoch, comes_with, positions

with comes_with("lightning"):
    from lightning.pytorch.callbacks import StochasticWeightAveraging


def validation(trainer: Any) -> tuple[list[list[int]], int]:
    """Which samples each batch holds, and how many there are: of several validation loaders VISTA hears the first.

    One that does not give them all is refused, but for a trial.
    """
    loaders = trainer.val_dataloaders
    several = [*loaders.values()] if isinstance(loaders, dict) else loaders
    loader = several[0] if isinstance(several, list) else several
    batches, samples = positions(loader), len(loader.dataset)
    given = sum(map(len, batches[: trainer.num_val_batches[0]])) * trainer.world_size  # each process has its part
    if given < samples and not is_trial(trainer):
        drop_last, limit = getattr(loader.batch_sampler, "drop_last", False), trainer.limit_val_batches
        raise ValueError(
            f"the validation loader gives {given} of its {samples} samples (drop_last={drop_last}, "
            f"limit_val_batches={limit}), but VISTA needs them all: use drop_last=False and limit_val_batches=1.0"
        )
    return batches, samples


def check_plan(trainer: Any, vista: Vista) -> None:
    """Refuse another number of epochs than VISTA plans with."""
    if trainer.max_epochs != vista.num_epochs and not is_trial(trainer):
        raise ValueError(f"max_epochs is {trainer.max_epochs}, but Vista plans epochs={vista.num_epochs}")


def check_start(trainer: Any, vista: Vista, loaded: bool) -> None:
    """Refuse to begin in another epoch than VISTA is in, or with a validation that could not end one."""
    if not is_trial(trainer):
        check_epoch(vista, trainer.current_epoch, "fit(..., ckpt_path=...)", loaded)
        if trainer.val_dataloaders is not None:
            validation(trainer)


def ends_epoch(trainer: Any, vista: Vista, validated: bool) -> bool:
    """Whether VISTA's epoch ends with the trainer's: not in a trial, cut short by ``max_steps``, or past the last."""
    if is_trial(trainer) or _learns_nothing(trainer, vista):
        return False
    cut_short = 0 <= trainer.max_steps <= trainer.global_step  # -1 stands for no limit
    if not validated and not cut_short:
        raise RuntimeError(f"epoch {vista.epoch + 1} had no validation: use check_val_every_n_epoch=1")
    return validated


def _learns_nothing(trainer: Any, vista: Vista) -> bool:
    """Whether it is the epoch that averaging of weights adds after the last one, for BatchNorm's statistics alone."""
    averages = any(isinstance(callback, StochasticWeightAveraging) for callback in trainer.callbacks)
    return averages and bool(trainer.current_epoch == vista.num_epochs)


def is_trial(trainer: Any) -> bool:
    """Whether it runs a batch or so of an epoch, to see that the parts fit: nothing is decided then."""
    return bool(trainer.fast_dev_run)
