"""The runs that tables need: which of them the ledger has, and an estimate of the hours that the others take."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vista.methods import Chosen, choose
from vista.reproduce import load_study, study_names
from vista.reproduce.grid import Cell, Study
from vista.reproduce.ledger import LedgerRecord, cell_key, plain_config
from vista.runs.config import TrainConfig
from vista.training.resolve import choose_method, identity

# Images per second of one ResNet-18 run on an H200 (results/engine-h200.json), and the cost of other networks relative
# to it by their multiply-adds: for an estimate only.
IMAGES_PER_SECOND = 35_500
SLOWER = {"resnet18": 1.0, "resnet34": 2.1, "densenet121": 2.5, "resnet101": 4.5, "vgg16": 0.6, "vgg19": 0.75}
SAMPLES = {"cifar100": 50_000, "cifar100-small": 1_000, "tinyimagenet": 100_000, "digits": 1_437}
PIXELS = {"cifar100": 1.0, "tinyimagenet": 4.0, "digits": 1 / 16}
# Step time relative to cross-entropy (results/methods-h200.json), for methods that are noticeably slower.
SLOWER_STEP = {
    "ban": 1.4, "byot": 2.1, "cs-kd": 1.4, "ddgsd": 1.8, "dks": 2.3, "dlb": 2.1, "ema": 1.3, "frskd": 5.3,
    "meta-weight-net": 36.0, "sd-dropout": 1.3, "tf-kd-self": 1.4, "zipf-ls": 1.3,
}  # fmt: skip


@dataclass(frozen=True)
class PlannedRun:
    """A run that a table needs."""

    cell: Cell
    config: TrainConfig
    record: LedgerRecord | None  # None if the ledger does not have it
    provided_by: str = ""  # method of another planned run whose network is also the network of this one

    @property
    def is_missing(self) -> bool:
        """Whether it has to be run."""
        return self.record is None and not self.provided_by


def plan_runs(
    studies: Sequence[Study],
    records: list[LedgerRecord],
    seeds: int | None = None,
    only: Sequence[Sequence[str]] = (),
) -> list[PlannedRun]:
    """List the runs of tables and figures, each once, seed by seed.

    Args:
        studies: The tables and figures.
        records: The ledger.
        seeds: Number of seeds; by default each table's own.
        only: Alternatives, each a list of terms that a run's name must all contain (see :func:`select`).

    Returns:
        The runs, with their records where the ledger has them.
    """
    if seeds is not None and seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    known = {identity(record.config): record for record in records}
    drawable = {record.cell for record in records if record.bits.exists()}
    runs: dict[str, PlannedRun] = {}
    for study, cell, seed in select(studies, seeds, only):
        config = cell.config(seed)
        run = PlannedRun(cell, config, known.get(identity(config)))
        if study.is_drawn and seed == study.first_seed and cell_key(config) not in drawable:
            run = PlannedRun(cell, config, None)  # the ledger may have its numbers, but not its trajectory
        if run.record is None or identity(config) not in runs:
            runs[identity(config)] = run
    if not runs:
        terms = " or ".join(" ".join(f"'{term}'" for term in terms) for terms in only)
        raise ValueError(f"only must match a run, got {terms}; `--dry-run` without --only lists all runs")
    provided = _provided_plain_runs(run for run in runs.values() if run.record is None)
    return [
        dataclasses.replace(run, provided_by=provided[identity]) if run.record is None and identity in provided else run
        for identity, run in runs.items()
    ]


def select(studies: Sequence[Study], seeds: int | None, only: Sequence[Sequence[str]]) -> list[tuple[Study, Cell, int]]:
    """Select cells and seeds by terms of their names, such as ``symmetric 40 %, vista-light, seed 1``.

    A run is selected if all terms of one alternative in ``only`` match. A term matches without regard to case where it
    begins a word and does not cut a number short: ``symmetric 4`` matches neither ``asymmetric 4 %`` nor
    ``symmetric 40 %``. A term that is a complete setting, method or run name matches only that:
    ``vista`` does not match ``vista-light``.
    """
    runs = [
        (study, cell, study.first_seed + number)
        for number in range(max(study.seeds for study in studies) if seeds is None else seeds)
        for study in studies
        for cell in (study.cells if seeds is not None or number < study.seeds else ())
    ]
    complete = {name for _, cell, seed in runs for name in _complete_names(cell, seed)}

    def matches(term: str, cell: Cell, seed: int) -> bool:
        if term.lower() in complete:
            return term.lower() in _complete_names(cell, seed)
        pattern = rf"(?<!\w){re.escape(term)}(?!(?<=\d)\d)"
        return re.search(pattern, cell.run_name(seed), re.IGNORECASE) is not None

    return [
        (study, cell, seed)
        for study, cell, seed in runs
        if not only or any(all(matches(term, cell, seed) for term in terms) for terms in only)
    ]


def _complete_names(cell: Cell, seed: int) -> set[str]:
    return {cell.setting.lower(), cell.method.lower(), cell.run_name(seed).lower()}


def _provided_plain_runs(runs: Iterable[PlannedRun]) -> dict[str, str]:
    """Identities of the plain runs whose network these runs train anyway, and the method that does."""
    found: dict[str, str] = {}
    for run in runs:
        if (plain := plain_config(run.config)) is not None:
            found.setdefault(identity(plain), run.cell.method)
    return found


def estimate_hours(config: TrainConfig) -> float:
    """Estimate the hours of a run that has one H200 to itself."""
    samples = SAMPLES.get(config.data, 50_000)
    held_out = config.validation if config.validation >= 1 else config.validation * samples
    images = (
        (samples if config.clean_validation else samples - held_out) * config.epochs * SLOWER.get(config.network, 1.0)
    )
    smaller_batches = 64 / min(config.batch_size, 64)
    steps = _relative_step_time(choose_method(config))
    return images * PIXELS.get(config.data, 1.0) * smaller_batches * steps / IMAGES_PER_SECOND / 3600


def _relative_step_time(chosen: Chosen) -> float:
    """Step time relative to cross-entropy, summed over the method and the runs that it needs first."""
    own = SLOWER_STEP.get(chosen.name, SLOWER_STEP.get(chosen.method.name, 1.0))
    needed = chosen.method.earlier_runs(chosen.config)
    return own + sum(_relative_step_time(choose(need.method, need.options)) for need in needed)


def needs_trajectory(config: TrainConfig) -> bool:
    """Whether a figure is drawn from the run, so that the ledger keeps its trajectory."""
    figures = filter(lambda study: study.is_drawn, map(load_study, study_names()))
    drawn = {cell_key(cell.config()) for figure in figures for cell in figure.cells}
    return any(cell_key(each) in drawn for each in (config, plain_config(config)) if each is not None)


def run_path(config: TrainConfig, out: Path) -> Path:
    """The folder of a run below ``out``: the same for every call, so that an interrupted run resumes."""
    return out / f"{config.method.replace(':', '-')}-{identity(config)}"
