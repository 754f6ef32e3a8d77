"""What the callback asks a Lightning trainer."""

from __future__ import annotations

from typing import Any

from vista.integrations import positions


def validation(trainer: Any) -> tuple[list[list[int]], int]:
    """Which samples each batch holds, and how many there are: of several validation loaders VISTA hears the first."""
    loaders = trainer.val_dataloaders
    several = [*loaders.values()] if isinstance(loaders, dict) else loaders
    loader = several[0] if isinstance(several, list) else several
    return positions(loader), len(loader.dataset)


def is_trial(trainer: Any) -> bool:
    """Whether it runs a batch or so of an epoch, to see that the parts fit: nothing is decided then."""
    return bool(trainer.fast_dev_run)
