"""Which runs a table needs, which of them the ledger has, and how long the others will take."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vista.reproduce import names, protocol, study
from vista.reproduce.grid import Cell, Study
from vista.reproduce.ledger import LedgerRecord
from vista.training.config import TrainConfig

# Images per second of one ResNet-18 run on an H200 (results/engine-h200.json), and how much slower other networks are
# by their multiply-adds: for an estimate only.
IMAGES_PER_SECOND = 35_500
SLOWER = {"resnet18": 1.0, "densenet121": 2.5, "resnet101": 4.5, "vgg16": 0.6, "vgg19": 0.75}
SAMPLES = {"cifar100": 45_000, "tinyimagenet": 90_000}
PIXELS = {"cifar100": 1.0, "tinyimagenet": 4.0}


@dataclass(frozen=True)
class Wanted:
    """A run of a table."""

    cell: Cell
    config: TrainConfig
    record: LedgerRecord | None  # in the ledger already


def wanted(
    tables: Sequence[Study], records: list[LedgerRecord], seeds: int | None = None, only: Sequence[str] = ()
) -> list[Wanted]:
    """Every run of the tables once, seed by seed; of ``only`` any must be part of setting or method."""
    known = {record.config.identity(): record for record in records}
    parts = [part.lower() for part in only] or [""]
    runs: dict[str, Wanted] = {}
    for seed in range(max(table.seeds for table in tables) if seeds is None else seeds):
        for table in tables:
            for cell in table.cells if seeds is not None or seed < table.seeds else ():
                name = f"{cell.setting} {cell.method} {cell.note}".lower()
                if any(part in name for part in parts):
                    config = protocol.configuration(cell.method, cell.changes, seed)
                    runs.setdefault(config.identity(), Wanted(cell, config, known.get(config.identity())))
    if not runs:
        raise ValueError(f"only is {' '.join(only)!r}, but no setting or method asked for has that in its name")
    return list(runs.values())


def estimated_hours(config: TrainConfig) -> float:
    """On one H200, alone."""
    images = SAMPLES.get(config.data, 50_000) * config.epochs * SLOWER.get(config.network, 1.0)
    smaller_batches = 64 / min(config.batch_size, 64)
    return images * PIXELS.get(config.data, 1.0) * smaller_batches / IMAGES_PER_SECOND / 3600


def is_drawn(config: TrainConfig) -> bool:
    """Whether a figure needs the run's trajectory, whose bits the ledger then keeps."""
    if config.seed != 0:
        return False
    cells = (cell for name in names() if study(name).is_drawn for cell in study(name).cells)
    identities = {protocol.configuration(cell.method, cell.changes, 0).identity() for cell in cells}
    return config.identity() in identities


def out_folder(config: TrainConfig, root: Path) -> Path:
    """A place of its own for each run, the same each time, so that a stopped one goes on."""
    return root / f"{config.method.replace(':', '-')}-{config.identity()}"


def placed(config: TrainConfig, root: str | None, device: str) -> TrainConfig:
    """The run on this machine."""
    return dataclasses.replace(config, root=root, device=device)
