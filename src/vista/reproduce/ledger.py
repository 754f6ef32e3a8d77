"""The ledger: one small record per finished run, from which every table is written.

A record says what was run (configuration, seed, hashes of labels and split), where (commit, machine, versions), how it
went (a line per epoch) and what it came to. The bits of the trajectory lie beside it where a figure needs them, and the
labels that it suspects in a folder of their own where a page shows them. No weights.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vista.analysis import suspect_files
from vista.files import atomic
from vista.runs import folder as run_folder
from vista.runs import record
from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.training.resolve import choose_method, decisive, identity

FORMAT = 1
FOLDER, SUSPECTS = "runs", "suspects"  # below results/
PARTS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("config", "data", "environment", "metrics"), (dict,)),
    "epochs": (list,),
    "seconds": (int, float),
}
OF_NETWORK = tuple(f"{which}.test.{name}" for which in ("best", "last") for name in ("top1", "top5", "aurc"))
NUMBERS = (  # what tables are made of
    *OF_NETWORK,
    *(f"deviation_gap.{name}" for name in (record.VAL_GIVEN, record.VAL_TRUE, record.TEST)),
)


@dataclass(frozen=True)
class LedgerRecord:
    """A finished run."""

    path: Path
    config: TrainConfig
    data: dict[str, Any]
    environment: dict[str, Any]
    metrics: dict[str, Any]
    epochs: list[dict[str, Any]]
    seconds: float

    def plain(self) -> LedgerRecord | None:
        """The plain run that this one was as well, where its method trains plainly and only then goes another way."""
        alone = self.metrics.get("network")
        config = plain_of(self.config)
        if config is None or alone is None:  # a record made before has no numbers of the network alone
            return None
        metrics = {key: value for key, value in self.metrics.items() if key != "network"} | alone
        return dataclasses.replace(self, config=config, metrics=metrics)

    @property
    def cell(self) -> str:
        """What the run is an instance of: everything that decides it but the seed."""
        return cell_of(self.config)

    @property
    def bits(self) -> Path:
        """Where its trajectory lies, if it was kept."""
        return self.path.with_suffix(".safetensors")

    @property
    def suspects(self) -> Path:
        """Where the labels that it suspects lie, if they were kept."""
        return self.path.parent.parent / SUSPECTS / self.path.name


def plain_of(config: TrainConfig) -> TrainConfig | None:
    """The plain run whose network the run's own is, if its method trains plainly."""
    return dataclasses.replace(config, method="ce", options={}) if choose_method(config).method.trains_plainly else None


def cell_of(config: TrainConfig) -> str:
    """A run without its seed."""
    settings = decisive(config)
    settings.pop("seed", None)
    return json.dumps(settings, sort_keys=True)


def by_cell(records: Iterable[LedgerRecord]) -> dict[str, list[LedgerRecord]]:
    """The seeds of each run together."""
    cells: dict[str, list[LedgerRecord]] = {}
    for found in records:
        cells.setdefault(found.cell, []).append(found)
    return cells


def add(run: RunFolder, results: Path, *, with_bits: bool) -> Path:
    """Write a finished run's record into the ledger; the same run again replaces its record.

    With the bits goes the list of suspected labels, where ``vista labels`` has written one.
    """
    config, trajectory = run.config(), run.record()
    target = place(config, results)
    target.parent.mkdir(parents=True, exist_ok=True)
    kept = {
        "format": FORMAT,
        "config": {**config.to_json(), "root": None},
        "data": run.data().to_json(),
        "environment": run.environment(),
        "metrics": run.metrics(),
        "seconds": round(run.seconds(), 1),
        "epochs": trajectory.lines,
    }
    if with_bits:
        atomic.write(target.with_suffix(".safetensors"), (run.path / record.COVERAGE).read_bytes())
    if with_bits and (run.path / suspect_files.LIST).exists():
        (results / SUSPECTS).mkdir(exist_ok=True)
        atomic.write(results / SUSPECTS / target.name, (run.path / suspect_files.LIST).read_bytes())
    atomic.write(target, _compact(kept))
    return target


def place(config: TrainConfig, results: Path) -> Path:
    """Where the run's record lies, or would: a method that goes by two names has one record."""
    plain = "".join(c if c.isalnum() or c in ".-" else "-" for c in f"{config.data}-{config.noise}-{config.method}")
    there = sorted((results / FOLDER).glob(f"*-seed{config.seed}-{identity(config)}.json"))
    return there[0] if there else results / FOLDER / f"{plain}-seed{config.seed}-{identity(config)}.json"


def _compact(kept: dict[str, Any]) -> bytes:
    """JSON with a line per entry, and a line per epoch: readable in a diff."""
    lines = [
        f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in kept.items() if key != "epochs"
    ]
    epochs = ",\n  ".join(json.dumps(line, sort_keys=True) for line in kept["epochs"])
    return ("{\n " + ",\n ".join(lines) + ',\n "epochs": [\n  ' + epochs + "\n ]\n}\n").encode()


def read(results: Path) -> list[LedgerRecord]:
    """Every record, in the order of its name; then the plain runs without one that another run was as well.

    Two of one run are refused: averaged, they would look like two seeds.
    """
    records: dict[str, LedgerRecord] = {}
    for path in sorted((results / FOLDER).glob("*.json")):
        found = read_record(path)
        first = records.setdefault(identity(found.config), found)
        if first is not found:
            raise ValueError(f"{path} is a record of the same run as {first.path.name}: delete one of them")
    for plain in [plain for found in records.values() if (plain := found.plain()) is not None]:
        records.setdefault(identity(plain.config), plain)
    return list(records.values())


def read_record(path: Path) -> LedgerRecord:
    """One of them."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}: records of runs are files in results/{FOLDER}/")
    kept = atomic.read_object(path)
    if kept.get("format") != FORMAT:
        raise ValueError(f"{path} has format {kept.get('format')!r}, but this version reads {FORMAT}")
    for name, kind in PARTS.items():
        if not isinstance(kept.get(name), kind):
            raise _damaged(path, f"it has no usable {name!r}")
    of_network = [f"network.{name}" for name in OF_NETWORK] if "network" in kept["metrics"] else []
    if found := run_folder.lacking(kept["metrics"], (*NUMBERS, *of_network)):
        raise _damaged(path, found)
    for name in ("device", "torch", "commit"):
        if name not in kept["environment"] or not isinstance(kept["environment"][name], str | None):
            raise _damaged(path, f"its environment has no usable {name!r}")
    try:
        config = TrainConfig.from_json(kept["config"])
        identity(config)
    except ValueError as error:
        raise ValueError(f"{path} cannot be used: {error}") from error
    return LedgerRecord(
        path, config, kept["data"], kept["environment"], kept["metrics"], kept["epochs"], float(kept["seconds"])
    )


def _damaged(path: Path, what: str) -> ValueError:
    return ValueError(f"{path} is damaged: {what}; put the file back, or delete it and make the run again")


def check_place(results: Path) -> None:
    """Refuse a ledger that cannot be written, before hours are spent on what should go there."""
    folder = results / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"results is {str(results)!r}, but no record can be written there: {error}") from error


def finished_below(folder: Path) -> tuple[list[RunFolder], list[RunFolder]]:
    """The runs in a folder and below: those that have finished, and the others."""
    runs = run_folder.find_runs(folder)
    if not runs:
        raise FileNotFoundError(f"there is no run in {folder}")
    finished = [run for run in runs if run.is_finished()]
    return finished, [run for run in runs if run not in finished]
