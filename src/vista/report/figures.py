"""The data of every figure: pure functions from groups of runs to arrays, for ``drawing.py`` and the page.

Shares are fractions. A group with several seeds is drawn as their mean with a band of one standard error to either
side. The anchors cannot be averaged; those panels show the first run of the group and name it.
"""

from __future__ import annotations

import dataclasses
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
from vista.core.store import readable
from vista.metrics import mean_and_error
from vista.report.style import REPLAYED

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Band:
    """A mean over the seeds at each epoch 1..E (or for each class) and its standard error."""

    mean: Floats
    se: Floats | None  # None for a single run
    seeds: int = 1

    @property
    def low(self) -> Floats:
        """Lower edge of the band."""
        return self.mean if self.se is None else self.mean - self.se

    @property
    def high(self) -> Floats:
        """Upper edge of the band."""
        return self.mean if self.se is None else self.mean + self.se


@dataclass(frozen=True)
class Mean:
    """A number over the seeds and its standard error."""

    value: float
    se: float | None

    def show(self, factor: float, digits: int) -> str:
        """``value`` or ``value ± se``, times ``factor``."""
        error = "" if self.se is None else f" ± {factor * self.se:.{digits}f}"
        return f"{factor * self.value:.{digits}f}{error}"


@dataclass(frozen=True, eq=False)
class Forgetting:
    """Accuracy per epoch, the part of it that is still right at the end, and the gap between them."""

    name: str
    against: Against
    accuracy: Band
    residual: Band
    gap: Band
    mean_gap: Mean
    note: str


@dataclass(frozen=True, eq=False)
class MarginalCoverage:
    """The anchors at the end of a run in the order of the sweep, with the samples that each adds."""

    name: str
    run: str
    seeds: int  # of the group; the anchors are those of one run
    kept: bool  # by the method; otherwise replayed as VISTA Basic
    samples: int
    tau: float
    options: dict[str, Any]  # that rank and weight the anchors
    states: Counts  # epochs, best-ranked first
    sizes: Counts  # samples each gets right
    before: Counts  # samples that better-ranked states already cover
    gained: Counts  # samples it adds
    weights: Floats  # in the teacher


@dataclass(frozen=True, eq=False)
class LifeExpectancy:
    """``by_age[a, s - 1]``: samples that state s adds at epoch s + a, summed over the seeds."""

    name: str
    seeds: int
    samples: int  # of one seed
    by_age: Counts
    lifespans: Band
    mean_lifespan: Mean
    note: str


@dataclass(frozen=True, eq=False)
class EndOfTraining:
    """Share of the validation set that each state adds to the better-ranked ones, ranked over all states at the end."""

    name: str
    share: Band


@dataclass(frozen=True, eq=False)
class ContributingSet:
    """Number of anchors after each epoch."""

    name: str
    anchors: Band
    most: int  # at any epoch, of any seed
    bytes_each: int | None  # of one anchor's predictions
    detail: str  # for the legend


@dataclass(frozen=True, eq=False)
class TestAgainstValidation:
    """Accuracy per epoch on each set of samples and labels."""

    name: str
    validation: Band
    validation_true: Band | None
    test: Band | None


@dataclass(frozen=True, eq=False)
class ForgottenClasses:
    """Validation samples per class, summed over the runs of a group; the class that lost the largest share first."""

    name: str
    against: Against
    classes: tuple[str, ...]
    samples: Counts
    lost: Counts
    times_lost: Counts
    share: Band  # of the samples of a class that were lost


@dataclass(frozen=True, eq=False)
class Timeline:
    """``weights[t - 1, s - 1]``: weight of state s in the teacher after epoch t."""

    name: str
    run: str
    kept: bool
    weights: Floats


def forgetting(groups: Sequence[Group], against: Against | None = None) -> list[Forgetting]:
    """Forgetting against ``"given"`` or ``"true"`` labels; default: the true ones if all runs know them."""
    labels = against or common_labels(groups)
    panels = []
    for group in groups:
        matrices = _matrices(group, labels)
        gaps = [trajectory.deviation_gap(correct) for correct in matrices]
        mean_gap = _mean(gaps)
        panels.append(
            Forgetting(
                name=group.name,
                against=labels,
                accuracy=_band([trajectory.intermediate_accuracy(correct) for correct in matrices]),
                residual=_band([trajectory.structural_residual(correct) for correct in matrices]),
                gap=_band(gaps),
                mean_gap=mean_gap,
                note=f"mean deviation gap {mean_gap.show(100, 2)} %",
            )
        )
    return panels


def marginal_coverage(groups: Sequence[Group]) -> list[MarginalCoverage]:
    """The final anchors of the first run of each group."""
    return [_marginal_coverage(group, group.runs[0]) for group in groups]


def _marginal_coverage(group: Group, run: Run) -> MarginalCoverage:
    correct, options = run.correct("given"), run.options
    weights = run.anchor_weights
    epochs, samples = correct.shape
    # The last step of Algorithm 2: the newest state joins the anchors of the epoch before, then the sweep prunes.
    before = weights[-2] > 0 if epochs > 1 else np.zeros(epochs, np.bool_)
    swept = np.flatnonzero(before | (np.arange(epochs) == epochs - 1))
    bits = coverage.pack(correct[swept])
    order = coverage.ranking(bits, options["order"])
    gained = coverage.sweep(bits, options["order"])[order]
    shown = coverage.above_tolerance(gained, options["tau"], samples)
    states = swept[order][shown]
    return MarginalCoverage(
        name=group.name,
        run=run.name,
        seeds=len(group.runs),
        kept=run.keeps_anchors,
        samples=samples,
        tau=options["tau"],
        options=options,
        states=states + 1,
        sizes=correct[states].sum(axis=1),
        before=(np.cumsum(gained) - gained)[shown],
        gained=gained[shown],
        weights=weights[-1, states],
    )


def life_expectancy(groups: Sequence[Group], tau: float = 0.0) -> list[LifeExpectancy]:
    """Credit by age, always replayed: all groups must have the same tolerance to be comparable."""
    panels = []
    for group in groups:
        matrices = _matrices(group, "given")
        tables = [trajectory.credit(correct, tau) for correct in matrices]
        spans = [trajectory.lifespans(table) for table in tables]
        mean_lifespan = _mean(spans)
        panels.append(
            LifeExpectancy(
                name=group.name,
                seeds=len(group.runs),
                samples=matrices[0].shape[1],
                by_age=np.sum([trajectory.by_age(table) for table in tables], axis=0),
                lifespans=_band(spans),
                mean_lifespan=mean_lifespan,
                note=f"mean lifespan {mean_lifespan.show(1, 1)} epochs",
            )
        )
    return panels


def end_of_training(groups: Sequence[Group]) -> list[EndOfTraining]:
    """One sweep over all states of each run at its end."""

    def share(correct: trajectory.Matrix) -> Floats:
        return np.asarray(trajectory.end_of_training_coverage(correct) / correct.shape[1])

    return [EndOfTraining(g.name, _band([share(correct) for correct in _matrices(g, "given")])) for g in groups]


def contributing_set(groups: Sequence[Group]) -> list[ContributingSet]:
    """Number of anchors of each group, by its own tolerance; a method that keeps none is replayed as VISTA Basic."""
    return [_contributing_set(group, group.runs[0]) for group in groups]


def _contributing_set(group: Group, first: Run) -> ContributingSet:
    if first.options["smoothing"] > 1:  # any state may become the neighbour of an anchor, so all are kept
        counts = [np.arange(1, group.epochs + 1) for _ in group.runs]
    else:
        counts = [(run.anchor_weights[: group.epochs] > 0).sum(axis=1) for run in group.runs]
    known = first.samples is not None and first.classes is not None
    each = int(trajectory.bytes_of(np.array(1), first.samples or 0, len(first.classes or ()))) if known else None
    most = int(np.max(counts))
    size = "" if each is None else f", {readable(most * each)}"
    tau = f", τ = {first.options['tau']}" if first.options["tau"] else ""
    detail = f": at most {most}{size}{tau if first.keeps_anchors else f', {REPLAYED}'}"
    return ContributingSet(group.name, _band(counts), most, each, detail)


def test_against_validation(groups: Sequence[Group]) -> list[TestAgainstValidation]:
    """Accuracy curves; None where a run of the group lacks the set."""

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
    """Forgetting per class, for the groups whose validation labels are known."""
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
    """Teacher weights of the first run of each group."""
    panels = []
    for group in groups:
        run = group.runs[0]
        weights = trajectory.smooth_weights(run.anchor_weights, run.options["smoothing"])
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


def band_label(panels: Sequence[Any]) -> str | None:
    """Legend of the bands in these panels, or None without a band."""
    values = [getattr(panel, field.name) for panel in panels for field in dataclasses.fields(panel)]
    seeds = sorted({value.seeds for value in values if isinstance(value, Band) and value.se is not None})
    if not seeds:
        return None
    count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return f"mean ± standard error, {count} seeds"


def _matrices(group: Group, against: Against) -> list[trajectory.Matrix]:
    """A matrix for each run, cut to the epochs that all runs of the group have completed."""
    return [run.correct(against)[: group.epochs] for run in group.runs]


def _band(curves: Sequence[Floats | Counts]) -> Band:
    """Mean and standard error over one curve per seed."""
    values = np.stack(curves).astype(np.float64)
    error = values.std(axis=0, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else None
    return Band(values.mean(axis=0), error, len(values))


def _band_of_known(counts: Counts, sizes: Counts) -> Band:
    """Mean and standard error of ``counts / sizes``, ``[seeds, classes]``, over the seeds that have samples of a class.

    The standard error is NaN where fewer than two seeds have samples; the share is 0 where none has.
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
    """Mean and standard error of the means of the curves, one per seed."""
    return Mean(*mean_and_error([float(curve.mean()) for curve in curves]))
