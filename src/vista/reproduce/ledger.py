"""The ledger: one small record per finished run, from which all tables are written.

A record holds the configuration with the hashes of labels and split, the environment (commit, machine, versions), a
line per epoch and the metrics. Where a figure or page needs them, the trajectory is stored beside the record and the
list of suspected labels in ``suspects/``. The ledger holds no weights.
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
from vista.files import atomic, reader
from vista.files.reader import DamagedFile
from vista.runs import folder as run_folder
from vista.runs import record
from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.training.resolve import choose_method, decisive, identity

FORMAT = 1
REMEDY = "restore the file, or delete it and repeat the run"
FOLDER, SUSPECTS = "runs", "suspects"  # below results/
PARTS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("config", "data", "environment", "metrics"), (dict,)),
    "epochs": (list,),
    "seconds": (int, float),
}
OF_NETWORK = tuple(f"{which}.test.{name}" for which in ("best", "last") for name in ("top1", "top5", "aurc"))
NUMBERS = (  # the numbers that tables show
    *OF_NETWORK,
    *(f"deviation_gap.{name}" for name in (record.VAL_GIVEN, record.VAL_TRUE, record.TEST)),
)


@dataclass(frozen=True)
class LedgerRecord:
    """A finished run in the ledger."""

    path: Path
    config: TrainConfig
    data: dict[str, Any]
    environment: dict[str, Any]
    metrics: dict[str, Any]
    epochs: list[dict[str, Any]]
    seconds: float

    def plain(self) -> LedgerRecord | None:
        """The record of the plain run that this run includes, if its method trains with cross-entropy alone."""
        alone = self.metrics.get("network")
        config = plain_config(self.config)
        if config is None or alone is None:  # the first such runs did not evaluate the network alone
            return None
        metrics = {key: value for key, value in self.metrics.items() if key != "network"} | alone
        if isinstance(fits := metrics.get("calibration"), dict):
            metrics["calibration"] = {which: fit for which, fit in fits.items() if which != "fused"}
        return dataclasses.replace(self, config=config, metrics=metrics)

    @property
    def cell(self) -> str:
        """The key of the cell that this run is a seed of."""
        return cell_key(self.config)

    @property
    def bits(self) -> Path:
        """File of its trajectory, which exists only where a figure needs it."""
        return self.path.with_suffix(".safetensors")

    @property
    def suspects(self) -> Path:
        """File of the labels that it suspects, which exists only where a page shows them."""
        return self.path.parent.parent / SUSPECTS / self.path.name


def plain_config(config: TrainConfig) -> TrainConfig | None:
    """The plain run that has the same network, if the method trains with cross-entropy alone."""
    if not choose_method(config).method.trains_plainly:
        return None
    return dataclasses.replace(config, method="ce", options={}, method_version=1)


def cell_key(config: TrainConfig) -> str:
    """A key shared by the seeds of a run: all settings that decide its result, without the seed."""
    settings = decisive(config)
    settings.pop("seed", None)
    return json.dumps(settings, sort_keys=True)


def group_by_cell(records: Iterable[LedgerRecord]) -> dict[str, list[LedgerRecord]]:
    """Group records that differ in the seed alone.

    Args:
        records: Records, as :func:`read` returns them.

    Returns:
        The records of each cell by their :func:`cell_key`.
    """
    cells: dict[str, list[LedgerRecord]] = {}
    for found in records:
        cells.setdefault(found.cell, []).append(found)
    return cells


def add(run: RunFolder, results: Path, *, with_bits: bool) -> Path:
    """Write the record of a finished run, replacing an earlier record of the same run.

    Args:
        run: The run.
        results: Folder of the ledger.
        with_bits: Also keep its trajectory and, if ``vista labels`` has written one, its list of suspected labels.

    Returns:
        The file of the record.
    """
    config, trajectory = run.config(), run.record()
    target = record_path(config, results)
    target.parent.mkdir(parents=True, exist_ok=True)
    kept = {
        "format": FORMAT,
        "config": {**config.to_json(), "root": None},
        "data": run.data().to_json(),
        "environment": run.environment(),
        "metrics": run.metrics(),
        "seconds": round(run.seconds(), 1),
        "epochs": [
            {name: value for name, value in line.items() if name != "anchor_weights"} for line in trajectory.lines
        ],
    }
    if with_bits:
        atomic.write(target.with_suffix(".safetensors"), reader.read_bytes(run.path / record.COVERAGE))
    if with_bits and (run.path / suspect_files.LIST).exists():
        (results / SUSPECTS).mkdir(exist_ok=True)
        atomic.write(results / SUSPECTS / target.name, reader.read_bytes(run.path / suspect_files.LIST))
    atomic.write(target, _compact(kept))
    return target


def record_path(config: TrainConfig, results: Path) -> Path:
    """The file of a run's record, existing or not; a method that has two names has one record."""
    name = "".join(c if c.isalnum() or c in ".-" else "-" for c in f"{config.data}-{config.noise}-{config.method}")
    existing = sorted((results / FOLDER).glob(f"*-seed{config.seed}-{identity(config)}.json"))
    return existing[0] if existing else results / FOLDER / f"{name}-seed{config.seed}-{identity(config)}.json"


def _compact(kept: dict[str, Any]) -> bytes:
    """JSON with a line per entry and per epoch, for readable diffs."""
    lines = [
        f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in kept.items() if key != "epochs"
    ]
    epochs = ",\n  ".join(json.dumps(line, sort_keys=True) for line in kept["epochs"])
    return ("{\n " + ",\n ".join(lines) + ',\n "epochs": [\n  ' + epochs + "\n ]\n}\n").encode()


def read(results: Path) -> list[LedgerRecord]:
    """Read all records.

    Args:
        results: Folder of the ledger.

    Returns:
        The records in the order of their file names, then the plain runs that other runs include and that have no
        record of their own. Two records of one run are an error: averaged, they would count as two seeds.
    """
    records: dict[str, LedgerRecord] = {}
    for path in sorted((results / FOLDER).glob("*.json")):
        found = read_record(path)
        first = records.setdefault(identity(found.config), found)
        if first is not found:
            raise ValueError(f"{path} is a record of the same run as {first.path.name}; delete one of them")
    for plain in [plain for found in records.values() if (plain := found.plain()) is not None]:
        records.setdefault(identity(plain.config), plain)
    return list(records.values())


def read_record(path: Path) -> LedgerRecord:
    """Read one record.

    Args:
        path: A file in ``results/runs/``.

    Returns:
        The record, checked to hold every number that tables show.
    """
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}; records are files in results/{FOLDER}/")
    kept = reader.read_object(path, REMEDY)
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
    return DamagedFile(path, what, REMEDY)


def check_writable(results: Path) -> None:
    """Check that records can be written, before hours are spent on runs."""
    folder = results / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"results must be a writable folder, got {str(results)!r}: {error}") from error


def find_finished(folder: Path) -> tuple[list[RunFolder], list[RunFolder]]:
    """Find the runs in a folder and below: the finished ones, and the others."""
    runs = run_folder.find_runs(folder)
    if not runs:
        raise FileNotFoundError(f"{folder} contains no run")
    finished = [run for run in runs if run.is_finished()]
    return finished, [run for run in runs if run not in finished]
