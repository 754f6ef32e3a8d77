"""Order, names and colours of the methods: the same in every figure, the baseline first and in grey, then VISTA."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from vista.analysis.groups import Group

BASELINE = "ce"
NAMES = {
    "ce": "cross-entropy",
    "vista": "VISTA",
    "vista-light": "VISTA Light",
    "sat": "SAT",
    "kf": "KF",
    "elr": "ELR",
}


def ordered(groups: Sequence[Group]) -> list[Group]:
    """The groups under the names that readers see: the baseline, VISTA, its variants, then all others as they came."""
    found = sorted(groups, key=lambda group: _rank(method_of(group)))
    names = [_shown(group) for group in found]
    return [
        group if names.count(name) > 1 else dataclasses.replace(group, name=name)
        for group, name in zip(found, names, strict=True)
    ]


def positions(groups: Sequence[Group]) -> dict[str, int]:
    """The position in :func:`vista.report.style.line_style` of each group by its name; 0 is the baseline's grey."""
    first = next((group for group in groups if method_of(group) == BASELINE), None)
    others = [group.name for group in groups if group is not first]
    return ({} if first is None else {first.name: 0}) | {name: place for place, name in enumerate(others, 1)}


def baseline(groups: Sequence[Group]) -> Group | None:
    """Plain training, if it is among the groups."""
    return next((group for group in groups if method_of(group) == BASELINE), None)


def method_of(group: Group) -> str:
    return str(group.runs[0].config.get("method", ""))


def _rank(method: str) -> int:
    return 0 if method == BASELINE else 1 if method == "vista" else 2 if method.startswith("vista") else 3


def _shown(group: Group) -> str:
    method = method_of(group)
    is_named = method in NAMES and group.name.startswith(method)
    return NAMES[method] + group.name.removeprefix(method) if is_named else group.name
