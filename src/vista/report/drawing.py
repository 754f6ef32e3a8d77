"""The figures' data drawn by matplotlib, to PNG, SVG or PDF: a function for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vista.analysis.groups import Group
from vista.core.store import readable
from vista.report import figures
from vista.report.drawn_parts import (
    BLUE,
    INK,
    YELLOW,
    band_over_bars,
    epochs_of,
    figure_of,
    leftmost,
    legend_below,
    legend_of_lines,
    line,
    note,
    places_in,
    shown,
    stacked,
    styled,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Format = Literal["png", "svg", "pdf"]
ROWS_SHOWN = 14
SPAN = 1  # the line over the heat map: apart from all of its colours


def draw(name: str, groups: Sequence[Group]) -> Figure:
    """The figure called ``name``, ready to be saved."""
    if name not in DRAWINGS:
        raise ValueError(f"figure {name!r} is unknown; known are {', '.join(DRAWINGS)}")
    data = [_printable(panel) for panel in figures.FIGURES[name](groups)]
    with styled() as make:
        return DRAWINGS[name](make, data)


def _printable(panel: Any) -> Any:
    """A byte of a path that is no UTF-8 is shown as its escape."""
    texts = {f.name: value for f in dataclasses.fields(panel) if isinstance(value := getattr(panel, f.name), str)}
    escaped = {name: text.encode(errors="backslashreplace").decode() for name, text in texts.items()}
    return dataclasses.replace(panel, **escaped)


def save(figure: Figure, path: Path) -> None:
    """To the format of the path's suffix; the same data give the same file."""
    dates = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with styled():
        figure.savefig(path, dpi=200, facecolor="white", metadata=dates.get(path.suffix))


def save_all(groups: Sequence[Group], folder: Path, names: Sequence[str], formats: Sequence[Format]) -> list[Path]:
    """Every figure in every format."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in names:
        figure = draw(name, groups)
        for suffix in formats:
            paths.append(folder / f"{name}.{suffix}")
            save(figure, paths[-1])
    return paths


def _forgetting(make: Any, panels: Sequence[figures.Forgetting]) -> Figure:
    figure, axes = figure_of(make, len(panels), 4.2, 3.2, sharey=True)
    for ax, panel in zip(axes, panels, strict=True):
        epochs = epochs_of(panel.accuracy)
        ax.bar(epochs, 100 * panel.accuracy.mean, width=0.86, color=YELLOW, linewidth=0, label="right at this epoch")
        ax.bar(epochs, 100 * panel.residual.mean, width=0.86, color=BLUE, linewidth=0,
               label="of those, still right at the end")  # fmt: skip
        band_over_bars(ax, panel.accuracy, INK)
        band_over_bars(ax, panel.residual, "white")
        ax.set(title=panel.name, xlabel="epoch", xlim=(0.3, len(epochs) + 0.7))
        ax.grid(axis="x", visible=False)
        note(ax, f"mean deviation gap {shown(panel.mean_gap, 100, 2)} %")
    for ax in leftmost(axes):
        ax.set_ylabel(f"validation samples (%), {panels[0].against} labels")
    legend_below(figure, axes, [panel.accuracy for panel in panels])
    return figure


def _marginal_coverage(make: Any, panels: Sequence[figures.MarginalCoverage]) -> Figure:
    rows, columns = stacked(panels)
    bars = [max(min(len(panel.states), ROWS_SHOWN), 2) + 1.5 for panel in panels]
    heights = [max(bars[row * columns : (row + 1) * columns]) for row in range(rows)]
    figure: Figure = make(figsize=(8.4 * columns, 0.24 * sum(heights) + 0.9 * rows), layout="constrained")
    grid = list(figure.subplots(rows, 2 * columns, squeeze=False, height_ratios=heights).reshape(-1, 2))
    for spare in (ax for pair in grid[len(panels) :] for ax in pair):
        spare.remove()
    pairs = grid[: len(panels)]
    for (left, right), panel in zip(pairs, panels, strict=True):
        largest = np.sort(np.argsort(-panel.gained, kind="stable")[:ROWS_SHOWN])
        places = np.arange(len(largest))
        share = 100 / panel.samples
        names = [f"epoch {state}" for state in panel.states[largest]]
        left.barh(places, share * panel.sizes[largest], color=YELLOW, height=0.72)
        right.barh(places, share * panel.before[largest], color="#e6e8eb", height=0.72)
        right.barh(places, share * panel.gained[largest], left=share * panel.before[largest], color=BLUE, height=0.72)
        for y, k in zip(places, largest, strict=True):
            text = f"+{panel.gained[k]}, weight {panel.weights[k]:.2f}"
            right.text(1.02, y, text, transform=right.get_yaxis_transform(), va="center", fontsize=8, color=INK)
        left.set_yticks(places, names)
        right.set_yticks([])
        for ax in (left, right):
            ax.set(xlim=(0, 100), ylim=(max(len(places), 2) - 0.4, -0.6))
            ax.grid(axis="y", visible=False)
        hidden = len(panel.states) - len(largest)
        more = f"; {hidden} more states add {panel.gained.sum() - panel.gained[largest].sum()}" if hidden else ""
        left.set_title(panel.name)
        if panel.seeds > 1:
            note(left, f"one of {panel.seeds} seeds: {panel.run}")
        right.set_title(f"what each adds{more}")
    for left, right in pairs[-columns:]:
        left.set_xlabel("validation samples right (%), best state first")
        right.set_xlabel("validation samples covered so far (%), new ones in blue")
    return figure


def _life_expectancy(make: Any, panels: Sequence[figures.LifeExpectancy]) -> Figure:
    from matplotlib.colors import LogNorm

    rows, columns = stacked(panels)
    figure: Figure = make(figsize=(7.2 if columns == 1 else 4.8 * columns, 2.5 * rows + 0.4), layout="constrained")
    axes = places_in(figure, rows, columns, len(panels), sharex=True, sharey=True)
    shares = [100 * panel.by_age / (panel.samples * panel.seeds) for panel in panels]
    highest = max(share.max() for share in shares)
    lowest = min(100 / (panel.samples * panel.seeds) for panel in panels)
    longest = [np.flatnonzero(panel.by_age.any(axis=1)).max(initial=-1) + 1 for panel in panels]  # of any seed
    tallest = max(*longest, *(panel.lifespans.high.max() for panel in panels))
    image: Any = None
    for ax, panel, share in zip(axes, panels, shares, strict=True):
        epochs = len(share)
        norm = LogNorm(lowest, max(highest, 2 * lowest))
        image = ax.imshow(np.ma.masked_equal(share, 0), origin="lower", aspect="auto", cmap="cividis_r", norm=norm,
                          interpolation="nearest", extent=(0.5, epochs + 0.5, 0, epochs))  # fmt: skip
        ax.grid(visible=False)
        if panel.lifespans.se is not None:
            line(ax, panel.lifespans, 1, SPAN, "mean lifespan of a state", dash="-")
        ax.set(title=panel.name, ylim=(0, tallest * 1.04 + 0.5))
        note(ax, f"mean lifespan {shown(panel.mean_lifespan, 1, 1)} epochs")
    axes[0].set_xlim(0.5, max(map(len, shares)) + 0.5)  # shared by all
    for ax in leftmost(axes):
        ax.set_ylabel("epochs as anchor")
    for ax in axes[-columns:]:
        ax.set_xlabel("epoch of the state")
        ax.tick_params(labelbottom=True)
    bar = figure.colorbar(image, ax=axes, pad=0.015, aspect=28)
    several = next((ax for ax, panel in zip(axes, panels, strict=True) if panel.seeds > 1), None)
    bar.set_label(f"marginal coverage (% of validation samples{', mean of the seeds' if several else ''})")
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    bar.ax.yaxis.set_minor_formatter(lambda value, _: "")
    bar.outline.set_visible(False)
    if several is not None:
        legend_below(figure, [several], [panel.lifespans for panel in panels])
    return figure


def _end_of_training(make: Any, panels: Sequence[figures.EndOfTraining]) -> Figure:
    figure, (ax,) = figure_of(make, 1, 6.4, 3.2)
    for place, panel in enumerate(panels):
        line(ax, panel.share, 100, place, panel.name)
    ax.set(xlabel="epoch of the state", ylabel="marginal coverage at the end (%)")
    ax.set_ylim(bottom=0)
    legend_of_lines(figure, ax, [panel.share for panel in panels])
    return figure


def _contributing_set(make: Any, panels: Sequence[figures.ContributingSet]) -> Figure:
    figure, (ax,) = figure_of(make, 1, 6.4, 3.2)
    for place, panel in enumerate(panels):
        size = "" if panel.bytes_each is None else f", {readable(panel.most * panel.bytes_each)}"
        tau = f", τ = {panel.tau}" if panel.tau else ""
        kept = tau if panel.kept else ", had it kept them"
        line(ax, panel.anchors, 1, place, f"{panel.name}: at most {panel.most}{size}{kept}")
    ax.set(xlabel="epoch", ylabel="anchors in the contributing set")
    whole_numbers(ax.yaxis)
    ax.set_ylim(bottom=0)
    legend_of_lines(figure, ax, [panel.anchors for panel in panels])
    return figure


def _test_against_validation(make: Any, panels: Sequence[figures.TestAgainstValidation]) -> Figure:
    figure, axes = figure_of(make, len(panels), 3.6, 3.2, sharey=True)
    for ax, panel in zip(axes, panels, strict=True):
        curves = (
            (panel.test, "test"),
            (panel.validation, "validation, given labels"),
            (panel.validation_true, "validation, true labels"),
        )
        for (band, label), place in zip(curves, (0, 2, 1), strict=True):
            if band is not None:
                line(ax, band, 100, place, label)
        ax.set(title=panel.name, xlabel="epoch")
    for ax in leftmost(axes):
        ax.set_ylabel("accuracy (%)")
    legend_below(figure, axes, [panel.validation for panel in panels])
    return figure


DRAWINGS: dict[str, Callable[[Any, Any], Figure]] = {
    "forgetting": _forgetting,
    "marginal-coverage": _marginal_coverage,
    "life-expectancy": _life_expectancy,
    "end-of-training": _end_of_training,
    "contributing-set": _contributing_set,
    "test-vs-validation": _test_against_validation,
}
