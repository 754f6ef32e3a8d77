"""The paper's figures as data: pure functions from groups of runs to arrays. ``drawing.py`` and the page show them.

Shares are fractions. Where a group has several seeds a curve is their mean, in a band of one standard error to either
side; what cannot be averaged (which states are anchors) is shown of the first run, whose name the panel carries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vista.analysis import forgetting as forgotten
from vista.analysis import trajectory
from vista.analysis.groups import Group, common_labels
from vista.analysis.runs import Against, Run
from vista.core import coverage
from vista.metrics import mean_and_error

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Band:
    """A mean over the seeds at each epoch 1..E (or for each class), and the standard error of that mean."""

    mean: Floats
    se: Floats | None  # one run has none
    seeds: int = 1

    @property
    def low(self) -> Floats:
        """Lower edge of what is drawn: one standard error below the mean."""
        return self.mean if self.se is None else self.mean - self.se

    @property
    def high(self) -> Floats:
        return self.mean if self.se is None else self.mean + self.se


@dataclass(frozen=True)
class Mean:
    """A number over the seeds, and its standard error."""

    value: float
    se: float | None


@dataclass(frozen=True, eq=False)
class Forgetting:
    """Yellow bars: right at this epoch. Blue bars: of those, still right at the end. Between them: the gap."""

    name: str
    against: Against
    accuracy: Band
    residual: Band
    gap: Band
    mean_gap: Mean


@dataclass(frozen=True, eq=False)
class MarginalCoverage:
    """The anchors at the end of a run in the order of the sweep, and what each adds."""

    name: str
    run: str
    seeds: int  # of the group; the anchors are those of one
    kept: bool  # by the method itself; else as if it had been
    samples: int
    tau: float
    options: dict[str, Any]  # by which its anchors were ranked and weighted
    states: Counts  # epochs, best-ranked first
    sizes: Counts  # samples each gets right
    before: Counts  # samples that better-ranked states cover already
    gained: Counts  # samples it adds
    weights: Floats  # in the teacher


@dataclass(frozen=True, eq=False)
class LifeExpectancy:
    """``by_age[a, s - 1]``: samples that only state s covered at epoch s + a, summed over the seeds."""

    name: str
    seeds: int
    samples: int  # of one seed
    by_age: Counts
    lifespans: Band
    mean_lifespan: Mean


@dataclass(frozen=True, eq=False)
class EndOfTraining:
    """Share of the validation set that each state adds to the better-ranked ones, over all states at the end."""

    name: str
    share: Band


@dataclass(frozen=True, eq=False)
class ContributingSet:
    name: str
    tau: float
    kept: bool  # by the method itself; else as if it had been
    anchors: Band
    most: int  # at any epoch, of any seed
    bytes_each: int | None  # of one anchor's predictions


@dataclass(frozen=True, eq=False)
class TestAgainstValidation:
    name: str
    validation: Band
    validation_true: Band | None
    test: Band | None


@dataclass(frozen=True, eq=False)
class ForgottenClasses:
    """Validation samples per class, summed over all runs of a group, classes that lost the largest share first."""

    name: str
    against: Against
    classes: tuple[str, ...]
    samples: Counts
    lost: Counts
    times_lost: Counts
    share: Band  # of a class's samples that were lost


@dataclass(frozen=True, eq=False)
class Timeline:
    """``weights[t - 1, s - 1]``: weight of state s in the teacher made at the end of epoch t."""

    name: str
    run: str
    kept: bool
    weights: Floats


def forgetting(groups: Sequence[Group], against: Against | None = None) -> list[Forgetting]:
    """``against`` given or true labels; the true ones where all runs know them, if it is not said."""
    labels = against or common_labels(groups)
    panels = []
    for group in groups:
        matrices = _matrices(group, labels)
        gaps = [trajectory.deviation_gap(correct) for correct in matrices]
        panels.append(
            Forgetting(
                name=group.name,
                against=labels,
                accuracy=_band([trajectory.intermediate_accuracy(correct) for correct in matrices]),
                residual=_band([trajectory.structural_residual(correct) for correct in matrices]),
                gap=_band(gaps),
                mean_gap=_mean(gaps),
            )
        )
    return panels


def marginal_coverage(groups: Sequence[Group]) -> list[MarginalCoverage]:
    return [_marginal_coverage(group, group.runs[0]) for group in groups]


def _marginal_coverage(group: Group, run: Run) -> MarginalCoverage:
    correct, options = run.correct("given"), run.options
    table = trajectory.credit(correct, options["tau"], options["order"])
    epochs = len(correct)
    kept = table[-2] > 0 if epochs > 1 else np.zeros(epochs, np.bool_)
    swept = np.flatnonzero(kept | (np.arange(epochs) == epochs - 1))  # Algorithm 2 lets the newest join, then prunes
    ranked = swept[coverage.ranking(coverage.pack(correct[swept]), options["order"])]
    union = np.logical_or.accumulate(correct[ranked], axis=0).sum(axis=1)
    shown = table[-1][ranked] > 0
    states = ranked[shown]
    weights = trajectory.anchor_weights(correct, table, options["weights"])[-1]  # before smoothing; the page says so
    return MarginalCoverage(
        name=group.name,
        run=run.name,
        seeds=len(group.runs),
        kept=run.keeps_anchors,
        samples=correct.shape[1],
        tau=options["tau"],
        options=options,
        states=states + 1,
        sizes=correct[states].sum(axis=1),
        before=np.concatenate([[0], union[:-1]])[shown],
        gained=table[-1][states],
        weights=weights[states],
    )


def life_expectancy(groups: Sequence[Group], tau: float = 0.0) -> list[LifeExpectancy]:
    """All groups by the same tolerance, or their bars could not be compared."""
    panels = []
    for group in groups:
        matrices = _matrices(group, "given")
        tables = [trajectory.credit(correct, tau) for correct in matrices]
        spans = [trajectory.lifespans(table) for table in tables]
        panels.append(
            LifeExpectancy(
                name=group.name,
                seeds=len(group.runs),
                samples=matrices[0].shape[1],
                by_age=np.sum([trajectory.by_age(table) for table in tables], axis=0),
                lifespans=_band(spans),
                mean_lifespan=_mean(spans),
            )
        )
    return panels


def end_of_training(groups: Sequence[Group]) -> list[EndOfTraining]:
    def share(correct: trajectory.Matrix) -> Floats:
        return np.asarray(trajectory.end_of_training_coverage(correct) / correct.shape[1])

    return [EndOfTraining(g.name, _band([share(correct) for correct in _matrices(g, "given")])) for g in groups]


def contributing_set(groups: Sequence[Group]) -> list[ContributingSet]:
    """Each group by its own tolerance; one that keeps no anchors as Basic would."""
    return [_contributing_set(group, group.runs[0]) for group in groups]


def _contributing_set(group: Group, first: Run) -> ContributingSet:
    def count(correct: trajectory.Matrix) -> Counts:
        if first.options["smoothing"] > 1:  # any state may be the neighbour of an anchor yet to come: all are kept
            return np.arange(1, len(correct) + 1)
        table = trajectory.credit(correct, first.options["tau"], first.options["order"])
        return np.asarray((trajectory.anchor_weights(correct, table, first.options["weights"]) > 0).sum(axis=1))

    counts = [count(correct) for correct in _matrices(group, "given")]
    known = first.samples is not None and first.classes is not None
    each = int(trajectory.bytes_of(np.array(1), first.samples or 0, len(first.classes or ()))) if known else None
    most = int(np.max(counts))
    return ContributingSet(group.name, first.options["tau"], first.keeps_anchors, _band(counts), most, each)


def test_against_validation(groups: Sequence[Group]) -> list[TestAgainstValidation]:
    def curve(group: Group, against: Against) -> Band | None:
        if not all(run.has(against) for run in group.runs):
            return None
        return _band([trajectory.intermediate_accuracy(correct) for correct in _matrices(group, against)])

    panels = []
    for group in groups:
        validation = curve(group, "given")
        assert validation is not None
        true = curve(group, "true") if all(run.best_labels == "true" for run in group.runs) else None
        panels.append(TestAgainstValidation(group.name, validation, true, curve(group, "test")))
    return panels


def forgotten_classes(groups: Sequence[Group]) -> list[ForgottenClasses]:
    """Of groups whose validation labels are known."""
    labels = common_labels(groups)
    panels = []
    for group in groups:
        classes = group.runs[0].classes
        known = [run.val_true if labels == "true" else run.val_labels for run in group.runs]
        if classes is None or any(own is None for own in known):
            continue
        matrices = zip(_matrices(group, labels), known, strict=True)
        found = [forgotten.per_class(correct, own, len(classes)) for correct, own in matrices if own is not None]
        samples, lost, times = (
            np.sum([getattr(one, field) for one in found], axis=0) for field in ("samples", "lost", "times_lost")
        )
        share = _band_of_known(np.stack([one.lost for one in found]), np.stack([one.samples for one in found]))
        order = np.argsort(-share.mean, kind="stable")
        names = tuple(classes[k] for k in order)
        share = Band(share.mean[order], None if share.se is None else share.se[order], share.seeds)
        panels.append(ForgottenClasses(group.name, labels, names, samples[order], lost[order], times[order], share))
    return panels


def timeline(groups: Sequence[Group]) -> list[Timeline]:
    panels = []
    for group in groups:
        run = group.runs[0]
        correct, options = run.correct("given"), run.options
        table = trajectory.credit(correct, options["tau"], options["order"])
        weights = trajectory.anchor_weights(correct, table, options["weights"], options["smoothing"])
        panels.append(Timeline(group.name, run.name, run.keeps_anchors, weights))
    return panels


FIGURES: dict[str, Callable[[Sequence[Group]], Sequence[Any]]] = {
    "forgetting": forgetting,
    "marginal-coverage": marginal_coverage,
    "life-expectancy": life_expectancy,
    "end-of-training": end_of_training,
    "contributing-set": contributing_set,
    "test-vs-validation": test_against_validation,
}


def _matrices(group: Group, against: Against) -> list[trajectory.Matrix]:
    """What was right in the epochs that all runs of a group have behind them, a matrix for each run."""
    return [run.correct(against)[: group.epochs] for run in group.runs]


def _band(curves: Sequence[Floats | Counts]) -> Band:
    """Over the seeds: a curve for each."""
    values = np.stack(curves).astype(np.float64)
    error = values.std(axis=0, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else None
    return Band(values.mean(axis=0), error, len(values))


def _band_of_known(counts: Counts, sizes: Counts) -> Band:
    """Of shares ``counts / sizes``, ``[seeds, classes]``, over the seeds that have anything of a class.

    There is no standard error (NaN) where fewer than two have; a share of nothing is 0.
    """
    known = sizes > 0
    shares, n = np.where(known, counts / np.maximum(sizes, 1), 0.0), known.sum(axis=0)
    mean = shares.sum(axis=0) / np.maximum(n, 1)
    if len(counts) == 1:
        return Band(mean, None, 1)
    squares = np.where(known, (shares - mean) ** 2, 0.0).sum(axis=0)
    error = np.sqrt(squares / np.maximum(n - 1, 1) / np.maximum(n, 1))
    return Band(mean, np.where(n > 1, error, np.nan), len(counts))


def _mean(curves: Sequence[Floats | Counts]) -> Mean:
    """Over the seeds: of the mean of each curve."""
    return Mean(*mean_and_error([float(curve.mean()) for curve in curves]))
