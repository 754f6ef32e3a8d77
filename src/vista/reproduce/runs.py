"""Which runs a table needs, which of them the ledger has, and how long the others will take."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vista.methods import Chosen, choose
from vista.reproduce import names, protocol, study
from vista.reproduce.grid import Cell, Study
from vista.reproduce.ledger import LedgerRecord, cell_of, plain_of
from vista.runs.config import TrainConfig
from vista.training.resolve import choose_method, identity

# Images per second of one ResNet-18 run on an H200 (results/engine-h200.json), and how much slower other networks are
# by their multiply-adds: for an estimate only.
IMAGES_PER_SECOND = 35_500
SLOWER = {"resnet18": 1.0, "densenet121": 2.5, "resnet101": 4.5, "vgg16": 0.6, "vgg19": 0.75}
SAMPLES = {"cifar100": 50_000, "tinyimagenet": 100_000}
PIXELS = {"cifar100": 1.0, "tinyimagenet": 4.0}
# A step over cross-entropy's (results/methods-h200.json), of the methods that take noticeably longer.
SLOWER_STEP = {
    "ban": 1.4, "byot": 2.1, "cs-kd": 1.4, "ddgsd": 1.8, "dks": 2.3, "dlb": 2.1, "ema": 1.3, "frskd": 5.3,
    "meta-weight-net": 36.0, "sd-dropout": 1.3, "tf-kd-self": 1.4, "zipf-ls": 1.3,
}  # fmt: skip


@dataclass(frozen=True)
class Wanted:
    """A run of a table."""

    cell: Cell
    config: TrainConfig
    record: LedgerRecord | None  # in the ledger already
    comes_with: str = ""  # the method of a wanted run that is this one as well

    @property
    def is_missing(self) -> bool:
        """Whether it must be made."""
        return self.record is None and not self.comes_with


def wanted(
    tables: Sequence[Study], records: list[LedgerRecord], seeds: int | None = None, only: Sequence[str] = ()
) -> list[Wanted]:
    """Every run of the tables once, seed by seed; any part in ``only`` must begin a word of setting or method."""
    if seeds is not None and seeds < 1:
        raise ValueError(f"seeds is {seeds}, but at least 1 is needed")
    known = {identity(record.config): record for record in records}
    drawable = {record.cell for record in records if record.bits.exists()}
    runs: dict[str, Wanted] = {}
    for seed in range(max(table.seeds for table in tables) if seeds is None else seeds):
        for table in tables:
            for cell in table.cells if seeds is not None or seed < table.seeds else ():
                if is_named(cell, only):
                    config = protocol.configuration(cell.method, cell.changes, seed)
                    run = Wanted(cell, config, known.get(identity(config)))
                    if table.is_drawn and seed == 0 and cell_of(config) not in drawable:
                        run = Wanted(cell, config, None)  # its numbers may be there, but nothing to draw a figure from
                    if run.record is None or identity(config) not in runs:
                        runs[identity(config)] = run
    if not runs:
        raise ValueError(f"only is {' '.join(only)!r}, but no setting or method asked for has that in its name")
    beside = _plain_beside(run for run in runs.values() if run.record is None)
    return [
        dataclasses.replace(run, comes_with=beside[identity]) if run.record is None and identity in beside else run
        for identity, run in runs.items()
    ]


def _plain_beside(made: Iterable[Wanted]) -> dict[str, str]:
    """The plain runs, by identity, that need not be made beside these, and the method whose network is the same."""
    found: dict[str, str] = {}
    for run in made:
        if (plain := plain_of(run.config)) is not None:
            found.setdefault(identity(plain), run.cell.method)
    return found


def is_named(cell: Cell, parts: Sequence[str]) -> bool:
    """Whether any of the parts begins a word of the cell's setting or method: symmetric is not in asymmetric."""
    name = f"{cell.setting} {cell.method} {cell.note}"
    return not parts or any(re.search(rf"(?<!\w){re.escape(part)}", name, re.IGNORECASE) for part in parts)


def estimated_hours(config: TrainConfig) -> float:
    """On one H200, alone."""
    trained_on = SAMPLES.get(config.data, 50_000) * (1 - config.validation)
    images = trained_on * config.epochs * SLOWER.get(config.network, 1.0)
    smaller_batches = 64 / min(config.batch_size, 64)
    steps = _slower_steps(choose_method(config))
    return images * PIXELS.get(config.data, 1.0) * smaller_batches * steps / IMAGES_PER_SECOND / 3600


def _slower_steps(chosen: Chosen) -> float:
    """What a method's step costs over cross-entropy's, and with it a step of each run that it needs first."""
    own = SLOWER_STEP.get(chosen.name, SLOWER_STEP.get(chosen.method.name, 1.0))
    needed = chosen.method.earlier_runs(chosen.config)
    return own + sum(_slower_steps(choose(need.method, need.options)) for need in needed)


def is_drawn(config: TrainConfig) -> bool:
    """Whether a figure may be drawn from the run's trajectory, whose bits the ledger then keeps."""
    drawn = {run_of(cell) for name in names() if study(name).is_drawn for cell in study(name).cells}
    return any(cell_of(each) in drawn for each in (config, plain_of(config)) if each is not None)


def run_of(cell: Cell) -> str:
    """The run that a cell of a table asks for, whatever its seed, as the ledger names it."""
    return cell_of(protocol.configuration(cell.method, cell.changes, 0))


def out_folder(config: TrainConfig, root: Path) -> Path:
    """A place of its own for each run, the same each time, so that a stopped one goes on."""
    return root / f"{config.method.replace(':', '-')}-{identity(config)}"


def placed(config: TrainConfig, root: str | None, device: str) -> TrainConfig:
    """The run on this machine."""
    return dataclasses.replace(config, root=root, device=device)
