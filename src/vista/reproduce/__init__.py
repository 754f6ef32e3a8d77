"""Reproduction of the paper's tables and figures: the runs they need, and our numbers next to the paper's."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from vista.core.validation import suggest
from vista.reproduce import studies
from vista.reproduce.grid import Study


@functools.cache
def _all_studies() -> dict[str, Study]:
    found: dict[str, Study] = {}
    for module in pkgutil.iter_modules(studies.__path__, f"{studies.__name__}."):
        found |= importlib.import_module(module.name).STUDIES
    return dict(sorted(found.items()))


def study_names() -> list[str]:
    """The names of all tables and figures, sorted.

    Returns:
        The names that :func:`load_study` and ``vista reproduce`` accept.

    >>> study_names()[:3]
    ['ablations', 'beta', 'calibration']
    """
    return list(_all_studies())


def load_study(name: str) -> Study:
    """Load a table or figure by its name.

    Args:
        name: One of :func:`study_names`.

    Returns:
        Its cells with the paper's numbers.

    >>> load_study("beta").title
    'The schedule of beta'
    """
    if name not in _all_studies():
        raise ValueError(f"table or figure {name!r} is unknown; {suggest(name, study_names())}")
    return _all_studies()[name]
