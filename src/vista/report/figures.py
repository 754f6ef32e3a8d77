"""The paper's figures as data: pure functions from groups of runs to arrays. ``drawing.py`` and the page show them.

Shares are fractions. Where a group has several seeds a curve is their mean, with its standard error as a band; what
cannot be averaged (which states are anchors) is shown of the first run, whose name the panel carries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vista import coverage
from vista.analysis import forgetting as forgotten
from vista.analysis import trajectory
from vista.analysis.runs import Against, Group, Run

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Band:
    """A curve over the epochs 1..E."""

    mean: Floats
    se: Floats | None  # one run has none


@dataclass(frozen=True, eq=False)
class Forgetting:
    """Yellow bars: right at this epoch. Blue bars: of those, still right at the end. Between them: the gap."""

    name: str
    against: Against
    accuracy: Band
    residual: Band
    mean_gap: float


@dataclass(frozen=True, eq=False)
class MarginalCoverage:
    """The anchors at the end of a run in the order of the sweep, and what each adds."""

    name: str
    run: str
    samples: int
    tau: float
    states: Counts  # epochs, best-ranked first
    sizes: Counts  # samples each gets right
    before: Counts  # samples that better-ranked states cover already
    gained: Counts  # samples it adds
    weights: Floats  # in the teacher


@dataclass(frozen=True, eq=False)
class LifeExpectancy:
    """``by_age[a, s - 1]``: samples that only state s covered at epoch s + a."""

    name: str
    run: str
    samples: int
    by_age: Counts
    lifespans: Counts


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
    bytes_each: int | None  # of one anchor's predictions


@dataclass(frozen=True, eq=False)
class TestAgainstValidation:
    name: str
    validation: Band
    validation_true: Band | None
    test: Band | None


@dataclass(frozen=True, eq=False)
class ForgottenClasses:
    """Validation samples per class, over all runs of a group, classes with the largest loss first."""

    name: str
    against: Against
    classes: tuple[str, ...]
    samples: Counts
    lost: Counts
    times_lost: Counts


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
        gaps = [float(trajectory.deviation_gap(_epochs(run, labels, group)).mean()) for run in group.runs]
        accuracy = _band(group, labels, trajectory.intermediate_accuracy)
        residual = _band(group, labels, trajectory.structural_residual)
        panels.append(Forgetting(group.name, labels, accuracy, residual, float(np.mean(gaps))))
    return panels


def marginal_coverage(groups: Sequence[Group]) -> list[MarginalCoverage]:
    return [_marginal_coverage(group.name, group.runs[0]) for group in groups]


def _marginal_coverage(name: str, run: Run) -> MarginalCoverage:
    correct, options = run.correct("given"), run.options
    table = trajectory.credit(correct, options["tau"], options["order"])
    epochs = len(correct)
    kept = table[-2] > 0 if epochs > 1 else np.zeros(epochs, np.bool_)
    swept = np.flatnonzero(kept | (np.arange(epochs) == epochs - 1))  # Algorithm 2 lets the newest join, then prunes
    ranked = swept[coverage.ranking(coverage.pack(correct[swept]), options["order"])]
    union = np.logical_or.accumulate(correct[ranked], axis=0).sum(axis=1)
    shown = table[-1][ranked] > 0
    states = ranked[shown]
    weights = trajectory.anchor_weights(correct, table, options["weights"])[-1]
    return MarginalCoverage(
        name=name,
        run=run.name,
        samples=correct.shape[1],
        tau=options["tau"],
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
        run = group.runs[0]
        correct = run.correct("given")
        table = trajectory.credit(correct, tau)
        spans = trajectory.lifespans(table)
        panels.append(LifeExpectancy(group.name, run.name, correct.shape[1], trajectory.by_age(table), spans))
    return panels


def end_of_training(groups: Sequence[Group]) -> list[EndOfTraining]:
    def share(correct: trajectory.Matrix) -> Floats:
        return np.asarray(trajectory.end_of_training_coverage(correct) / correct.shape[1])

    return [EndOfTraining(group.name, _band(group, "given", share)) for group in groups]


def contributing_set(groups: Sequence[Group]) -> list[ContributingSet]:
    """Each group by its own tolerance; one that keeps no anchors as Basic would."""
    panels = []
    for group in groups:
        first = group.runs[0]

        def count(correct: trajectory.Matrix, options: dict[str, Any] = first.options) -> Floats:
            table = trajectory.credit(correct, options["tau"], options["order"])
            weights = trajectory.anchor_weights(correct, table, options["weights"])
            return np.asarray((weights > 0).sum(axis=1), dtype=np.float64)

        known = first.samples is not None and first.classes is not None
        each = int(trajectory.bytes_of(np.array(1), first.samples or 0, len(first.classes or ()))) if known else None
        band = _band(group, "given", count)
        panels.append(ContributingSet(group.name, first.options["tau"], first.keeps_anchors, band, each))
    return panels


def test_against_validation(groups: Sequence[Group]) -> list[TestAgainstValidation]:
    def curve(group: Group, against: Against) -> Band | None:
        known = all(run.has(against) for run in group.runs)
        return _band(group, against, trajectory.intermediate_accuracy) if known else None

    panels = []
    for group in groups:
        validation = _band(group, "given", trajectory.intermediate_accuracy)
        true = curve(group, "true") if all(run.best_labels == "true" for run in group.runs) else None
        panels.append(TestAgainstValidation(group.name, validation, true, curve(group, "test")))
    return panels


def forgotten_classes(groups: Sequence[Group]) -> list[ForgottenClasses]:
    """Of groups whose validation labels are known."""
    labels = common_labels(groups)
    panels = []
    for group in groups:
        classes = group.runs[0].classes
        known = [(run, run.val_true if labels == "true" else run.val_labels) for run in group.runs]
        if classes is None or any(own is None for _, own in known):
            continue
        found = [forgotten.per_class(run.correct(labels), own, len(classes)) for run, own in known if own is not None]
        samples, lost, times = (
            np.sum([getattr(one, field) for one in found], axis=0) for field in ("samples", "lost", "times_lost")
        )
        order = np.argsort(-lost, kind="stable")
        names = tuple(classes[k] for k in order)
        panels.append(ForgottenClasses(group.name, labels, names, samples[order], lost[order], times[order]))
    return panels


def timeline(groups: Sequence[Group]) -> list[Timeline]:
    panels = []
    for group in groups:
        run = group.runs[0]
        correct, options = run.correct("given"), run.options
        table = trajectory.credit(correct, options["tau"], options["order"])
        weights = trajectory.anchor_weights(correct, table, options["weights"])
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


def common_labels(groups: Sequence[Group]) -> Against:
    """True labels where every run knows them, else the given ones."""
    known = all(run.best_labels == "true" for group in groups for run in group.runs)
    return "true" if known else "given"


def _epochs(run: Run, against: Against, group: Group) -> trajectory.Matrix:
    """The epochs that all runs of a group have behind them."""
    return run.correct(against)[: group.epochs]


def _band(group: Group, against: Against, curve: Callable[[trajectory.Matrix], Floats]) -> Band:
    curves = np.stack([curve(_epochs(run, against, group)) for run in group.runs])
    spread = curves.std(axis=0, ddof=1) / math.sqrt(len(curves)) if len(curves) > 1 else None
    return Band(curves.mean(axis=0), spread)
