"""Parameters ``vista__*`` of a net: which there are, and when they are read."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import signature

from vista.distiller import Vista

# skorch makes the component that a parameter belongs to anew; these belong to none and are read when a fit needs them.
READ_LATER = "vista__", "iterator_train__", "iterator_valid__", "dataset__"
GIVEN_BY_FIT = {"labels", "val_labels", "num_classes", "epochs", "tau"}


def check_options(names: Iterable[str]) -> None:
    """Refuse what looks like an option of ``Vista`` and is none, or is the net's own."""
    known = [f"vista__{name}" for name in signature(Vista).parameters if name not in GIVEN_BY_FIT]
    for name in names:
        if name.startswith("vista") and not name.endswith("_") and name not in known:
            raise ValueError(f"{name} is no parameter; there are epochs, tau and, for Vista, {', '.join(known)}")
