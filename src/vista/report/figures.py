"""The data of every figure: pure functions from groups of runs to arrays, for ``drawing.py`` and the page.

Shares are fractions. A group with several seeds is drawn as their mean with whiskers of one standard error to either
side. The anchors cannot be averaged; those panels show the first run of the group and name it. Figures of samples need
the groups of :func:`with_samples`.
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
        """Lower end of the whiskers."""
        return self.mean if self.se is None else self.mean - self.se

    @property
    def high(self) -> Floats:
        """Upper end of the whiskers."""
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
class Accuracy:
    """Accuracy per epoch of one method, for the axis that all methods share."""

    name: str
    against: Against
    curve: Band
    final: Mean | None  # of the metrics, where it is not the end of the curve
    restarts: tuple[int, ...]  # epochs that start with a higher learning rate after a falling one

    @property
    def what(self) -> str:
        """Which accuracy it is."""
        return "test accuracy" if self.against == "test" else f"validation accuracy on {self.against} labels"


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
class ContributingSet:
    """Number of anchors after each epoch."""

    name: str
    anchors: Band
    most: int  # at any epoch, of any seed
    bytes_each: int | None  # of one anchor's predictions, for the page's values below the figure
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
    """Validation samples per class, summed over the runs of a group; the class that lost most over all groups first."""

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


def shown(name: str, groups: Sequence[Group]) -> list[Group]:
    """The groups that have the data of a figure: anchors of their own, the correctness of single samples."""
    if name in OF_ANCHORS:
        groups = [group for group in groups if all(run.keeps_anchors for run in group.runs)]
    return with_samples(groups) if name in OF_SAMPLES else list(groups)


def with_samples(groups: Sequence[Group]) -> list[Group]:
    """The groups without the runs whose record holds no single samples; groups that are then empty are left out."""
    kept = [(group, tuple(run for run in group.runs if run.has_samples)) for group in groups]
    return [dataclasses.replace(group, runs=runs) for group, runs in kept if runs]


def accuracy(groups: Sequence[Group]) -> list[Accuracy]:
    """Test accuracy of every group; validation accuracy if a run has no test set."""
    runs = [run for group in groups for run in group.runs]
    against: Against = "test" if all(run.accuracy("test") is not None for run in runs) else "given"
    panels = []
    for group in groups:
        curves = [found[: group.epochs] for run in group.runs if (found := run.accuracy(against)) is not None]
        panels.append(Accuracy(group.name, against, _band(curves), _fused(group, against, curves), _restarts(group)))
    return panels


def _fused(group: Group, against: Against, curves: Sequence[Floats]) -> Mean | None:
    """The final accuracy of a method that fuses predictions; None if it is the end of the curves."""
    if against != "test" or any(run.metrics is None for run in group.runs):
        return None
    known = [float(run.metrics["last"]["test"]["top1"]) for run in group.runs if run.metrics is not None]
    is_end = np.allclose(known, [curve[-1] for curve in curves], atol=5e-4)
    return None if is_end else Mean(*mean_and_error(known))


def _restarts(group: Group) -> tuple[int, ...]:
    rates = [line.get("lr") for line in group.runs[0].record.lines[: group.epochs]]
    if not all(isinstance(rate, int | float) for rate in rates):
        return ()
    steps = np.diff(np.array(rates, dtype=np.float64))
    return tuple(int(k) + 3 for k in np.flatnonzero((steps[1:] > 0) & (steps[:-1] < 0)))


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
        found = [own[: group.epochs] for run in group.runs if (own := run.accuracy(against)) is not None]
        return _band(found) if len(found) == len(group.runs) else None

    panels = []
    for group in groups:
        validation = curve(group, "given")
        assert validation is not None
        true = curve(group, "true") if all(run.best_labels == "true" for run in group.runs) else None
        panels.append(TestAgainstValidation(group.name, validation, true, curve(group, "test")))
    return panels


def forgotten_classes(groups: Sequence[Group]) -> list[ForgottenClasses]:
    """Forgetting per class, for the groups whose validation labels are known; all panels have the same classes."""
    labels = common_labels(groups)
    known = [(g, own) for g in groups if (own := _validation_labels(g, labels)) and g.runs[0].classes is not None]
    if len({group.runs[0].classes for group, _ in known}) > 1:
        known = known[:1]
    found, shares = [], []
    for group, own in known:
        size = len(group.runs[0].classes or ())
        pairs = zip(_matrices(group, labels), own, strict=True)
        found.append([forgotten.per_class(correct, mine, size) for correct, mine in pairs])
        lost, samples = (np.stack([getattr(one, name) for one in found[-1]]) for name in ("lost", "samples"))
        shares.append(_band_of_known(lost, samples))
    if not known:
        return []
    order = np.argsort(-np.mean([share.mean for share in shares], axis=0), kind="stable")
    panels = []
    for (group, _), runs, share in zip(known, found, shares, strict=True):
        samples, lost, times = (
            np.sum([getattr(one, name) for one in runs], axis=0)[order] for name in ("samples", "lost", "times_lost")
        )
        names = tuple((group.runs[0].classes or ())[k] for k in order)
        band = Band(share.mean[order], None if share.se is None else share.se[order], share.seeds)
        panels.append(ForgottenClasses(group.name, labels, names, samples, lost, times, band))
    return panels


def _validation_labels(group: Group, labels: Against) -> list[NDArray[np.int64]]:
    """The labels of each run, or nothing where a run lacks them."""
    known = [run.val_true if labels == "true" else run.val_labels for run in group.runs]
    return [own for own in known if own is not None] if all(own is not None for own in known) else []


def timeline(groups: Sequence[Group]) -> list[Timeline]:
    """Teacher weights of the first run of each group."""
    panels = []
    for group in groups:
        run = group.runs[0]
        weights = trajectory.smooth_weights(run.anchor_weights, run.options["smoothing"])
        panels.append(Timeline(group.name, run.name, run.keeps_anchors, weights))
    return panels


FIGURES: dict[str, Callable[[Sequence[Group]], Sequence[Any]]] = {
    "accuracy": accuracy,
    "forgetting": forgetting,
    "timeline": timeline,
    "marginal-coverage": marginal_coverage,
    "contributing-set": contributing_set,
    "test-vs-validation": test_against_validation,
}
OF_ANCHORS = ("timeline", "marginal-coverage", "contributing-set")
OF_SAMPLES = ("forgetting", *OF_ANCHORS)


def whisker_label(panels: Sequence[Any]) -> str | None:
    """Legend of the whiskers in these panels, or None without whiskers."""
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
