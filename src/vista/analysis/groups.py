"""Find the runs to compare, check that they are comparable, and group them over their seeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vista.analysis import recorder
from vista.analysis.runs import Against, Run, read_run
from vista.runs import folder
from vista.runs.config import INCIDENTAL
from vista.runs.folder import files_named, find_runs
from vista.runs.record import VAL_GIVEN

SEEDS = ("seed", "noise_seed", "split_seed")
OWN_FILES = (folder.CONFIG, recorder.DESCRIPTION)  # a folder with one of these files is a run
APART = "they have different validation sets, so report them separately"


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ only in their seeds."""

    name: str
    runs: tuple[Run, ...]

    @property
    def epochs(self) -> int:
        """Number of epochs that all runs of the group have completed."""
        return min(len(run) for run in self.runs)


def common_labels(groups: Sequence[Group]) -> Against:
    """The labels to compare forgetting by: the true labels if all runs know them, else the given ones."""
    known = all(run.best_labels == "true" for group in groups for run in group.runs)
    return "true" if known else "given"


def read_runs(paths: Sequence[str | Path]) -> list[Run]:
    """Read the runs to compare.

    Args:
        paths: Runs, and folders with runs below them. A run that is named twice is read once.

    Returns:
        The runs. Runs with different validation sets raise a ``ValueError``.
    """
    if not paths:
        raise ValueError("no run given: name a run folder, or a folder with runs below it")
    found: dict[Path, Path] = {}  # by resolved path, because a run may be named twice
    for path in paths:
        for run in _run_paths(Path(path)):
            found.setdefault(run.resolve(), run)
    runs = [read_run(path) for path in found.values()]
    check_comparable(runs)
    return runs


def _run_paths(path: Path) -> list[Path]:
    if path.is_file() or not path.exists() or any((path / name).is_file() for name in OWN_FILES):
        return [path]
    below = {run.path for run in find_runs(path)} | {file.parent for file in files_named(recorder.DESCRIPTION, path)}
    if not below:
        raise FileNotFoundError(f"{path} is not a run: it has no {folder.CONFIG}, and no run is below it")
    return sorted(below)


def check_comparable(runs: Sequence[Run]) -> None:
    """Check that runs of one seed have one validation set, and that every two groups share one."""
    first = runs[0]
    for run in runs[1:]:
        size, own = first.record.sizes[VAL_GIVEN], run.record.sizes[VAL_GIVEN]
        if size != own:
            raise ValueError(f"{first.path} has {size} validation samples, but {run.path} has {own}: {APART}")
        for name in ("data", "noise"):
            if first.config.get(name, run.config.get(name)) != run.config.get(name, first.config.get(name)):
                ours, theirs = first.config[name], run.config[name]
                raise ValueError(f"{first.path} has {name} {ours}, but {run.path} has {theirs}: {APART}")
    groups = group_runs(runs)
    for group in groups:
        _check_distinct(group)
    for index, one in enumerate(groups):
        for other in groups[index:]:
            _check_same_validation(one, other)


def _check_distinct(group: Group) -> None:
    """Reject a copy of a run: counted as another seed, it would make the standard error too small."""
    known: dict[str, Run] = {}
    for run in group.runs:
        seeds = json.dumps([run.config.get(name) for name in SEEDS], sort_keys=True)  # any JSON value
        first = known.setdefault(seeds, run)
        if first is not run and run.seed is not None:
            raise ValueError(f"{first.path} and {run.path} are copies of one run (seed {run.seed}): name one of them")


def _check_same_validation(one: Group, other: Group) -> None:
    common = False
    for a in one.runs:
        for b in other.runs:
            same = a.shares_validation(b)
            common |= same
            if a.seed is not None and a.seed == b.seed and not same:
                raise ValueError(
                    f"{a.path} and {b.path} have seed {a.seed} but different validation samples or labels: {APART}"
                )
    if not common:
        raise ValueError(f"{one.runs[0].path} and {other.runs[0].path} share no validation set: {APART}")


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Group runs that differ only in their seeds.

    Args:
        runs: Runs, as from :func:`read_runs`.

    Returns:
        The groups in order of appearance, under distinct names.

    >>> [group.name for group in group_runs(read_runs(["runs/demo"]))]  # doctest: +SKIP
    ['ce', 'vista', 'vista-light']
    """
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(_key(run), []).append(run)
    groups = list(found.values())
    methods = [str(members[0].config.get("method", members[0].name)) for members in groups]
    configs = [_flat(members[0].config) for members in groups]
    names = []
    for index, method in enumerate(methods):
        rivals = [configs[i] for i, other in enumerate(methods) if other == method]
        names.append(f"{method}{_difference(configs[index], rivals)}")
    alike = {name for name in names if names.count(name) > 1}
    return [
        Group(f"{name} [{members[0].path}]" if name in alike else name, tuple(members))
        for name, members in zip(names, groups, strict=True)
    ]


def _key(run: Run) -> str:
    if not run.config:
        return str(run.path)
    decisive = {name: value for name, value in run.config.items() if name not in (*SEEDS, *INCIDENTAL)}
    alike = json.loads(json.dumps(decisive), parse_int=float)  # 1 and 1.0 are the same setting
    return json.dumps(alike, sort_keys=True)


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """The settings that may distinguish two groups, with the method's options on the same level."""
    ignored = (*SEEDS, *INCIDENTAL, "options", "method", "format")
    options = config.get("options")
    return {
        **{name: value for name, value in config.items() if name not in ignored},
        **(options if isinstance(options, dict) else {}),
    }


def _difference(own: dict[str, Any], rivals: list[dict[str, Any]]) -> str:
    names = [n for n in sorted(own) if any(rival.get(n) != own[n] for rival in rivals)]
    return f" ({', '.join(f'{name}={own[name]}' for name in names)})" if names else ""
