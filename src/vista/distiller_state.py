"""What a state of :class:`vista.Vista` holds: its parts, and of which kind each is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

FORMAT = 1
STATE = ("identity", "epoch", "states", "counts", "coverage", "current", "seen", "predictions")


def check_parts(state: Mapping[str, Any]) -> None:
    """Refuse what is not whole, or of another format or kind; whether the parts fit together is seen later."""
    if not isinstance(state, Mapping):
        raise TypeError(f"the state is a {type(state).__name__}, but what state_dict() gave is needed")
    if state.get("format") != FORMAT:
        raise ValueError(f"the state has format {state.get('format')!r}, but this version reads format {FORMAT}")
    absent = [part for part in STATE if part not in state]
    if absent:
        raise ValueError(f"the state lacks {', '.join(absent)}: it is damaged, or not whole")
    fits = {
        "identity": ("named values are", lambda part: isinstance(part, Mapping)),
        "states": ("a list is", lambda part: isinstance(part, list | tuple)),
        "counts": ("a list is", lambda part: isinstance(part, list | tuple)),
        "coverage": ("a tensor is", lambda part: isinstance(part, Tensor)),
        "current": ("a tensor is", lambda part: isinstance(part, Tensor)),
        "seen": ("a tensor is", lambda part: isinstance(part, Tensor)),
        "predictions": ("a tensor for each state is", _are_predictions),
    }
    for name, (needed, is_that) in fits.items():
        if not is_that(state[name]):
            kind = type(state[name]).__name__
            raise ValueError(f"the state's {name} is a {kind}, but {needed} needed: it is damaged")


def _are_predictions(part: Any) -> bool:
    return isinstance(part, Mapping) and all(
        str(s).isdecimal() and isinstance(rows, Tensor) for s, rows in part.items()
    )
