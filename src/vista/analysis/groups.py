"""Several runs side by side: found, refused where they cannot be compared, grouped over their seeds."""

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
OWN_FILES = (folder.CONFIG, recorder.DESCRIPTION)  # by which a folder is a run itself
APART = "they have different validation sets, so report them apart"


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in their seeds alone."""

    name: str
    runs: tuple[Run, ...]

    @property
    def epochs(self) -> int:
        """How many epochs all of its runs have behind them."""
        return min(len(run) for run in self.runs)


def common_labels(groups: Sequence[Group]) -> Against:
    """What forgetting is judged by where groups stand side by side: true labels where all runs know them."""
    known = all(run.best_labels == "true" for group in groups for run in group.runs)
    return "true" if known else "given"


def read_runs(paths: Sequence[str | Path]) -> list[Run]:
    """Every run named, and every run below a folder that is none itself; refused where they cannot be compared."""
    if not paths:
        raise ValueError("no run was named: give a run's folder, or a folder with runs below it")
    places: dict[Path, Path] = {}  # by where they really are: a run may be named twice
    for path in paths:
        for place in _places(Path(path)):
            places.setdefault(place.resolve(), place)
    runs = [read_run(place) for place in places.values()]
    check_comparable(runs)
    return runs


def _places(path: Path) -> list[Path]:
    if path.is_file() or not path.exists() or any((path / name).is_file() for name in OWN_FILES):
        return [path]
    below = {run.path for run in find_runs(path)} | {file.parent for file in files_named(recorder.DESCRIPTION, path)}
    if not below:
        raise FileNotFoundError(f"{path} is no run: it has no {folder.CONFIG}, and there is no run below it")
    return sorted(below)


def check_comparable(runs: Sequence[Run]) -> None:
    """Runs of one seed must have one validation set, and every two groups must have one in common."""
    first = runs[0]
    for run in runs[1:]:
        size, own = first.record.sizes[VAL_GIVEN], run.record.sizes[VAL_GIVEN]
        if size != own:
            raise ValueError(f"{first.path} has {size} validation samples, but {run.path} has {own}: {APART}")
        for name in ("data", "noise"):
            if first.config.get(name, run.config.get(name)) != run.config.get(name, first.config.get(name)):
                ours, theirs = first.config[name], run.config[name]
                raise ValueError(f"{first.path} has {name} {ours}, but {run.path} has {theirs}: {APART}")
    groups = grouped(runs)
    for group in groups:
        _refuse_one_twice(group)
    for place, one in enumerate(groups):
        for other in groups[place:]:
            _check_same_validation(one, other)


def _refuse_one_twice(group: Group) -> None:
    """A copy of a run is no other seed: averaged in, it would make the error smaller than it is."""
    known: dict[str, Run] = {}
    for run in group.runs:
        seeds = json.dumps([run.config.get(name) for name in SEEDS], sort_keys=True)  # a recorder's may be a list
        first = known.setdefault(seeds, run)
        if first is not run and run.seed is not None:
            raise ValueError(f"{first.path} and {run.path} are one run twice, with seed {run.seed}: name one of them")


def _check_same_validation(one: Group, other: Group) -> None:
    common = False
    for a in one.runs:
        for b in other.runs:
            same = a.shares_validation(b)
            common |= same
            if a.seed is not None and a.seed == b.seed and not same:
                raise ValueError(
                    f"{a.path} and {b.path} have seed {a.seed} but other validation samples or labels: {APART}"
                )
    if not common:
        raise ValueError(f"{one.runs[0].path} and {other.runs[0].path} share no validation set: {APART}")


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Runs that differ in seeds alone, in the order they came; names tell the groups apart."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(_key(run), []).append(run)
    groups = list(found.values())
    methods = [str(members[0].config.get("method", members[0].name)) for members in groups]
    configs = [_flat(members[0].config) for members in groups]
    names = []
    for place, method in enumerate(methods):
        rivals = [configs[i] for i, other in enumerate(methods) if other == method]
        names.append(f"{method}{_difference(configs[place], rivals)}")
    alike = {name for name in names if names.count(name) > 1}
    return [
        Group(f"{name} [{members[0].path}]" if name in alike else name, tuple(members))
        for name, members in zip(names, groups, strict=True)
    ]


def _key(run: Run) -> str:
    if not run.config:
        return str(run.path)
    decisive = {name: value for name, value in run.config.items() if name not in (*SEEDS, *INCIDENTAL)}
    alike = json.loads(json.dumps(decisive), parse_int=float)  # 1 and 1.0 are one value, however they were given
    return json.dumps(alike, sort_keys=True)


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """What may tell two groups apart, the method's options beside the rest."""
    ignored = (*SEEDS, *INCIDENTAL, "options", "method", "format")
    options = config.get("options")
    return {
        **{name: value for name, value in config.items() if name not in ignored},
        **(options if isinstance(options, dict) else {}),
    }


def _difference(own: dict[str, Any], rivals: list[dict[str, Any]]) -> str:
    names = [n for n in sorted(own) if any(rival.get(n) != own[n] for rival in rivals)]
    return f" ({', '.join(f'{name}={own[name]}' for name in names)})" if names else ""
