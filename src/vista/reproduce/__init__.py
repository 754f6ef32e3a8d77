"""The paper's tables and figures again: one file each with its grid and the paper's numbers, found by name."""

from __future__ import annotations

import difflib
import importlib
import pkgutil

from vista.reproduce.grid import Study

_MACHINERY = ("grid", "ledger", "page", "protocol", "restore", "runs")


def names() -> list[str]:
    """Every table and figure."""
    return [module.name for module in pkgutil.iter_modules(__path__) if module.name not in _MACHINERY]


def study(name: str) -> Study:
    """The grid and numbers of a table or figure."""
    if name not in names():
        nearest = difflib.get_close_matches(name, names(), n=1, cutoff=0.0)
        raise ValueError(f"{name!r} is no table or figure; nearest is {nearest[0]!r} (known: {', '.join(names())})")
    found: Study = importlib.import_module(f"{__name__}.{name}").STUDY
    return found
