"""The figures' data drawn by matplotlib, to PNG, SVG or PDF. Colours are told apart by the colour-blind and in grey."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vista.analysis.runs import Group
from vista.report import figures
from vista.report.figures import Band, Mean
from vista.store import readable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Format = Literal["png", "svg", "pdf"]
YELLOW, BLUE, INK, QUIET = "#f2c230", "#1f5a9e", "#22262b", "#6b7280"
# By lightness as well as by hue, and each with a dash of its own: they stay apart on a grey printout.
SERIES = ("#1f5a9e", "#d1610a", "#118c6a", "#b0508f", "#22262b", "#5aa9d6")
DASHES = ("-", (0, (5, 2)), (0, (1.2, 1.6)), (0, (6, 2, 1.2, 2)), (0, (3, 1, 1, 1, 1, 1)), (0, (8, 3)))
MARKERS = ("", "o", "s", "^", "D", "P")
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelcolor": INK,
    "axes.edgecolor": QUIET,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e6e8eb",
    "grid.linewidth": 0.7,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "text.color": INK,
    "text.parse_math": False,  # a name with $ in it is a name
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "vista",
    "pdf.fonttype": 42,
}
ROWS_SHOWN = 14
ABREAST = 4  # panels side by side, and below each other where a figure stacks them
LINES_INSIDE = 6  # a longer legend lies below the axes, and so does one with a name as long as this:
LETTERS_INSIDE = 60
LETTERS = 80  # of a name in a row of a legend below
SPAN = 1  # the line over the heat map: apart from all of its colours


@contextmanager
def _styled() -> Iterator[Any]:
    try:
        import matplotlib.figure
        from matplotlib import rc_context
    except ImportError as error:
        raise ImportError("figures need the package matplotlib: pip install 'vista-distill[report]'") from error
    with rc_context(STYLE):
        yield matplotlib.figure.Figure


def _panels(make: Any, count: int, width: float, height: float, **options: Any) -> tuple[Figure, list[Axes]]:
    """Panels beside each other, many of them in rows."""
    rows = math.ceil(count / ABREAST)
    columns = math.ceil(count / rows)
    figure = make(figsize=(width * columns, height * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


def _leftmost(axes: Sequence[Axes]) -> list[Axes]:
    """The first of each row."""
    return [ax for ax in axes if ax.get_subplotspec().is_first_col()]  # type: ignore[union-attr]


def _stacked(panels: Sequence[Any]) -> tuple[int, int]:
    """Rows and columns of panels that lie below each other, many of them in several columns."""
    columns = min(ABREAST, math.ceil(len(panels) / ABREAST))
    return math.ceil(len(panels) / columns), columns


def draw(name: str, groups: Sequence[Group]) -> Figure:
    """The figure called ``name``, ready to be saved."""
    if name not in DRAWINGS:
        raise ValueError(f"figure {name!r} is unknown; known are {', '.join(DRAWINGS)}")
    data = [_printable(panel) for panel in figures.FIGURES[name](groups)]
    with _styled() as make:
        return DRAWINGS[name](make, data)


def _printable(panel: Any) -> Any:
    """A byte of a path that is no UTF-8 is shown as its escape."""
    texts = {f.name: value for f in dataclasses.fields(panel) if isinstance(value := getattr(panel, f.name), str)}
    shown = {name: text.encode(errors="backslashreplace").decode() for name, text in texts.items()}
    return dataclasses.replace(panel, **shown)


def save(figure: Figure, path: Path) -> None:
    """To the format of the path's suffix; the same data give the same file."""
    dates = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with _styled():
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
    figure, axes = _panels(make, len(panels), 4.2, 3.2, sharey=True)
    for ax, panel in zip(axes, panels, strict=True):
        epochs = _epochs(panel.accuracy)
        ax.bar(epochs, 100 * panel.accuracy.mean, width=0.86, color=YELLOW, linewidth=0, label="right at this epoch")
        ax.bar(epochs, 100 * panel.residual.mean, width=0.86, color=BLUE, linewidth=0,
               label="of those, still right at the end")  # fmt: skip
        _band_over_bars(ax, panel.accuracy, INK)
        _band_over_bars(ax, panel.residual, "white")
        ax.set(title=panel.name, xlabel="epoch", xlim=(0.3, len(epochs) + 0.7))
        ax.grid(axis="x", visible=False)
        _note(ax, f"mean deviation gap {_shown(panel.mean_gap, 100, 2)} %")
    for ax in _leftmost(axes):
        ax.set_ylabel(f"validation samples (%), {panels[0].against} labels")
    _legend_below(figure, axes[0], [panel.accuracy for panel in panels])
    return figure


def _marginal_coverage(make: Any, panels: Sequence[figures.MarginalCoverage]) -> Figure:
    rows, columns = _stacked(panels)
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
            _note(left, f"one of {panel.seeds} seeds: {panel.run}")
        right.set_title(f"what each adds{more}")
    for left, right in pairs[-columns:]:
        left.set_xlabel("validation samples right (%), best state first")
        right.set_xlabel("validation samples covered so far (%), new ones in blue")
    return figure


def _life_expectancy(make: Any, panels: Sequence[figures.LifeExpectancy]) -> Figure:
    from matplotlib.colors import LogNorm

    rows, columns = _stacked(panels)
    figure: Figure = make(figsize=(7.2 if columns == 1 else 4.8 * columns, 2.5 * rows + 0.4), layout="constrained")
    places = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
    for spare in places[len(panels) :]:
        spare.remove()
    axes = places[: len(panels)]
    shares = [100 * panel.by_age / (panel.samples * panel.seeds) for panel in panels]
    highest = max(share.max() for share in shares)
    lowest = min(100 / (panel.samples * panel.seeds) for panel in panels)
    tallest = max(panel.lifespans.high.max() for panel in panels)
    image: Any = None
    for ax, panel, share in zip(axes, panels, shares, strict=True):
        epochs = len(share)
        norm = LogNorm(lowest, max(highest, 2 * lowest))
        image = ax.imshow(np.ma.masked_equal(share, 0), origin="lower", aspect="auto", cmap="cividis_r", norm=norm,
                          interpolation="nearest", extent=(0.5, epochs + 0.5, 0, epochs))  # fmt: skip
        ax.grid(visible=False)
        if panel.lifespans.se is not None:
            _line(ax, panel.lifespans, 1, SPAN, "mean lifespan of a state", dash="-")
        ax.set(title=panel.name, ylim=(0, tallest * 1.04 + 0.5))
        _note(ax, f"mean lifespan {_shown(panel.mean_lifespan, 1, 1)} epochs")
    for ax in _leftmost(axes):
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
        _legend_below(figure, several, [panel.lifespans for panel in panels])
    return figure


def _end_of_training(make: Any, panels: Sequence[figures.EndOfTraining]) -> Figure:
    figure, (ax,) = _panels(make, 1, 6.4, 3.2)
    for place, panel in enumerate(panels):
        _line(ax, panel.share, 100, place, panel.name)
    ax.set(xlabel="epoch of the state", ylabel="marginal coverage at the end (%)")
    ax.set_ylim(bottom=0)
    _legend_of_lines(figure, ax, [panel.share for panel in panels])
    return figure


def _contributing_set(make: Any, panels: Sequence[figures.ContributingSet]) -> Figure:
    figure, (ax,) = _panels(make, 1, 6.4, 3.2)
    for place, panel in enumerate(panels):
        size = "" if panel.bytes_each is None else f", {readable(panel.most * panel.bytes_each)}"
        tau = f", τ = {panel.tau}" if panel.tau else ""
        kept = tau if panel.kept else ", had it kept them"
        _line(ax, panel.anchors, 1, place, f"{panel.name}: at most {panel.most}{size}{kept}")
    ax.set(xlabel="epoch", ylabel="anchors in the contributing set")
    _whole_numbers(ax.yaxis)
    ax.set_ylim(bottom=0)
    _legend_of_lines(figure, ax, [panel.anchors for panel in panels])
    return figure


def _test_against_validation(make: Any, panels: Sequence[figures.TestAgainstValidation]) -> Figure:
    figure, axes = _panels(make, len(panels), 3.6, 3.2, sharey=True)
    for ax, panel in zip(axes, panels, strict=True):
        curves = (
            (panel.test, "test"),
            (panel.validation, "validation, given labels"),
            (panel.validation_true, "validation, true labels"),
        )
        for (band, label), place in zip(curves, (0, 2, 1), strict=True):
            if band is not None:
                _line(ax, band, 100, place, label)
        ax.set(title=panel.name, xlabel="epoch")
    for ax in _leftmost(axes):
        ax.set_ylabel("accuracy (%)")
    _legend_below(figure, axes[0], [panel.validation for panel in panels])
    return figure


DRAWINGS: dict[str, Callable[[Any, Any], Figure]] = {
    "forgetting": _forgetting,
    "marginal-coverage": _marginal_coverage,
    "life-expectancy": _life_expectancy,
    "end-of-training": _end_of_training,
    "contributing-set": _contributing_set,
    "test-vs-validation": _test_against_validation,
}


def _epochs(band: Band) -> Any:
    return np.arange(1, len(band.mean) + 1)


def _look(place: int) -> tuple[str, Any, str]:
    """Colour, dash and marker of a line: each round through the colours has its own marker and shifts the dashes."""
    again = place // len(SERIES)
    dash = DASHES[(place + again + again // len(MARKERS)) % len(DASHES)]
    return SERIES[place % len(SERIES)], dash, MARKERS[again % len(MARKERS)]


def _line(ax: Axes, band: Band, factor: float, place: int, label: str, dash: str | None = None) -> None:
    colour, usual, marker = _look(place)
    every = max(1, len(band.mean) // 12)
    ax.plot(_epochs(band), factor * band.mean, color=colour, linestyle=dash or usual, label=label,
            marker=marker, markersize=4, markevery=(place % every, every))  # fmt: skip
    if band.se is not None:
        ax.fill_between(_epochs(band), factor * band.low, factor * band.high, color=colour, alpha=0.2, linewidth=0)
    ax.set_xlim(0.5, len(band.mean) + 0.5)
    _whole_numbers(ax.xaxis)


def _band_over_bars(ax: Axes, band: Band, colour: str) -> None:
    """Around the tops of bars, each step as wide as an epoch."""
    if band.se is None:
        return
    edges = np.arange(len(band.mean) + 1) + 0.5
    low, high = (100 * np.append(values, values[-1]) for values in (band.low, band.high))
    ax.fill_between(edges, low, high, step="post", facecolor=colour, alpha=0.28, linewidth=0)
    for values in (low, high):
        ax.step(edges, values, where="post", color=colour, linewidth=0.6, alpha=0.8)


def _note(ax: Axes, text: str) -> None:
    ax.annotate(text, (1, 1.02), xycoords="axes fraction", ha="right", va="bottom", color=QUIET, fontsize=8)


def _shown(mean: Mean, factor: float, digits: int) -> str:
    error = "" if mean.se is None else f" ± {factor * mean.se:.{digits}f}"
    return f"{factor * mean.value:.{digits}f}{error}"


def _whole_numbers(axis: Axis) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def _legend_below(figure: Figure, ax: Axes, bands: Sequence[Band]) -> None:
    handles, labels = _entries(ax, bands)
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def _legend_of_lines(figure: Figure, ax: Axes, bands: Sequence[Band]) -> None:
    """Inside the axes; what would cover the lines goes below, in columns, and makes the figure taller."""
    handles, labels = _entries(ax, bands)
    if len(bands) <= LINES_INSIDE and max(map(len, labels)) <= LETTERS_INSIDE:
        ax.legend(handles, labels)
        return
    names = [textwrap.fill(label, LETTERS) for label in labels]
    measured = figure.legend(handles, names).get_window_extent().transformed(figure.dpi_scale_trans.inverted())
    figure.legends.clear()
    gap = 0.25  # inches between columns
    width, height = figure.get_size_inches()
    columns = max(1, int((width + gap) / (measured.width + gap)))
    figure.set_size_inches(width, height + measured.height / columns)
    figure.legend(handles, names, loc="outside lower center", ncols=columns)


def _entries(ax: Axes, bands: Sequence[Band]) -> tuple[list[Any], list[str]]:
    """What a legend says; where there is a band, also what it is."""
    from matplotlib.patches import Patch

    handles, labels = ax.get_legend_handles_labels()
    seeds = sorted({band.seeds for band in bands if band.se is not None})
    if seeds:
        count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        handles.append(Patch(facecolor=QUIET, alpha=0.35))
        labels.append(f"mean ± standard error, {count} seeds")
    return handles, labels
