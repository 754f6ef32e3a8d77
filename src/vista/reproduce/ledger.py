"""The ledger: one small record per finished run, from which every table is written.

A record says what was run (configuration, seed, hashes of labels and split), where (commit, machine, versions), how it
went (a line per epoch) and what it came to. The bits of the trajectory lie beside it where a figure needs them, and the
labels that it suspects in a folder of their own where a page shows them. No weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vista import durable
from vista.analysis import suspect_files
from vista.training import record, run_folder
from vista.training.config import TrainConfig
from vista.training.run_folder import RunFolder

FORMAT = 1
FOLDER, SUSPECTS = "runs", "suspects"  # below results/


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


def cell_of(config: TrainConfig) -> str:
    """A run without its seed."""
    decisive = config.decisive()
    decisive.pop("seed", None)
    return json.dumps(decisive, sort_keys=True)


def differing_fields(one: TrainConfig, other: TrainConfig) -> list[str]:
    """The settings beside the seed in which two runs differ."""
    a, b = one.decisive(), other.decisive()
    return [key for key in sorted({*a, *b} - {"seed"}) if a.get(key) != b.get(key)]


def add(run: RunFolder, results: Path, *, with_bits: bool) -> Path:
    """Write a finished run's record into the ledger; the same run again replaces its record.

    With the bits goes the list of suspected labels, where ``vista labels`` has written one.
    """
    config, trajectory = run.config(), run.record()
    name = _name(config)
    target = results / FOLDER / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    seconds = sum(t["train_seconds"] + t["evaluate_seconds"] for t in trajectory.timings)
    kept = {
        "format": FORMAT,
        "config": {**config.to_json(), "root": None},
        "data": run.data(),
        "environment": run.environment(),
        "metrics": run.metrics(),
        "seconds": round(seconds, 1),
        "epochs": trajectory.lines,
    }
    if with_bits:
        durable.write(target.with_suffix(".safetensors"), (run.path / record.COVERAGE).read_bytes())
    if with_bits and (run.path / suspect_files.LIST).exists():
        (results / SUSPECTS).mkdir(exist_ok=True)
        durable.write(results / SUSPECTS / target.name, (run.path / suspect_files.LIST).read_bytes())
    durable.write(target, _compact(kept))
    return target


def _name(config: TrainConfig) -> str:
    plain = "".join(c if c.isalnum() or c in ".-" else "-" for c in f"{config.data}-{config.noise}-{config.method}")
    return f"{plain}-seed{config.seed}-{config.identity()}"


def _compact(kept: dict[str, Any]) -> bytes:
    """JSON with a line per entry, and a line per epoch: readable in a diff."""
    lines = [
        f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in kept.items() if key != "epochs"
    ]
    epochs = ",\n  ".join(json.dumps(line, sort_keys=True) for line in kept["epochs"])
    return ("{\n " + ",\n ".join(lines) + ',\n "epochs": [\n  ' + epochs + "\n ]\n}\n").encode()


def read(results: Path) -> list[LedgerRecord]:
    """Every record, in the order of its name."""
    return [read_record(path) for path in sorted((results / FOLDER).glob("*.json"))]


def read_record(path: Path) -> LedgerRecord:
    """One of them."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: records of runs lie in results/{FOLDER}/")
    kept = durable.read_json(path)
    if kept.get("format") != FORMAT:
        raise ValueError(f"{path} has format {kept.get('format')!r}, but this version reads {FORMAT}")
    config = TrainConfig.from_json(kept["config"])
    return LedgerRecord(
        path, config, kept["data"], kept["environment"], kept["metrics"], kept["epochs"], float(kept["seconds"])
    )


def finished_below(folder: Path) -> Iterator[RunFolder]:
    """The finished runs in a folder and below."""
    runs = run_folder.find_runs(folder)
    if not runs:
        raise FileNotFoundError(f"there is no run in {folder}")
    yield from (run for run in runs if run.is_finished())
