"""How far a net has come, and a state that was loaded before there were data to make a ``Vista`` of."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from vista.core.vista import check_parts


class LoadedState:
    """Stands for a ``Vista`` until ``fit`` or ``partial_fit`` brings the data; an empty one is as good as none."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_parts(state)
        self.state = dict(state)

    def state_dict(self) -> dict[str, Any]:
        return self.state

    @property
    def epoch(self) -> int:
        return int(self.state["epoch"])


def epochs_to_go(net: Any, asked: int | None) -> int:
    """How many epochs a fit runs: those ``asked`` for, else all that are left of the plan."""
    if net.vista_ is None and (unknown := len(net.history) - net.warm_epochs_) > 0:
        raise ValueError(
            f"the history has {unknown} epochs of which the net has no VISTA state: save and load it with the rest by "
            "save_params(..., f_vista=FILE) and load_params(..., f_vista=FILE), or pickle the net; "
            "without f_history a new training begins from the weights"
        )
    done = net.vista_.epoch if net.vista_ else 0
    left = net.epochs - done
    if asked and 0 <= left < asked:
        raise ValueError(
            f"epochs is {asked}, but {done} of the {net.epochs} that VISTA plans with have ended: {left} are left"
        )
    if not left:
        warnings.warn(
            f"all {net.epochs} epochs that VISTA plans with have ended, so nothing is trained: "
            "fit() begins anew, after set_params(epochs=...) with more of them",
            stacklevel=5,
        )
    return asked or left
