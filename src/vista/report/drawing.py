"""The figures drawn by matplotlib, to PNG, SVG or PDF. Colours, line styles and texts are those of ``style.py``."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vista.analysis.groups import Group
from vista.report import figures, style
from vista.report.figures import Band
from vista.report.style import ANCHORS_SHOWN, LIGHT, SECTIONS, Mark

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Format = Literal["png", "svg", "pdf"]
INK, QUIET, BLUE, YELLOW, COVERED = (LIGHT[name] for name in ("ink", "quiet", "blue", "yellow", "covered"))
SETTINGS: Any = {
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
    "grid.color": LIGHT["line"],
    "grid.linewidth": 0.7,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "text.color": INK,
    "text.parse_math": False,  # names may contain $
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "vista",
    "pdf.fonttype": 42,
}
MOST_COLUMNS = 4  # of panels
MOST_LINES = 6  # a longer legend is placed below the axes, and so is one with a longer label than this:
MOST_LETTERS = 60
LINE_LETTERS = 80  # in a legend below the axes


def draw(name: str, groups: Sequence[Group]) -> Figure:
    """Draw one figure.

    Args:
        name: A key of ``DRAWINGS``.
        groups: Groups of runs, each with at least one epoch.

    Returns:
        A matplotlib figure.
    """
    if name not in DRAWINGS:
        raise ValueError(f"figure must be one of {', '.join(DRAWINGS)}, got {name!r}")
    data = [_printable(panel) for panel in figures.FIGURES[name](groups)]
    with _settings() as make:
        return DRAWINGS[name](make, data)


def _printable(panel: Any) -> Any:
    """Show bytes of a path that are not UTF-8 as escapes."""
    texts = {f.name: value for f in dataclasses.fields(panel) if isinstance(value := getattr(panel, f.name), str)}
    escaped = {name: text.encode(errors="backslashreplace").decode() for name, text in texts.items()}
    return dataclasses.replace(panel, **escaped)


def save(figure: Figure, path: Path) -> None:
    """Save in the format of the path's suffix; the file depends only on the data."""
    dates = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with _settings():
        figure.savefig(path, dpi=200, facecolor="white", metadata=dates.get(path.suffix))


def save_all(groups: Sequence[Group], folder: Path, names: Sequence[str], formats: Sequence[Format]) -> list[Path]:
    """Draw several figures and save each in several formats.

    Returns:
        The paths of the files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in names:
        figure = draw(name, groups)
        for suffix in formats:
            paths.append(folder / f"{name}.{suffix}")
            save(figure, paths[-1])
    return paths


def _forgetting(make: Any, panels: Sequence[figures.Forgetting]) -> Figure:
    text = SECTIONS["forgetting"]
    figure, axes = figure_of(make, len(panels), 4.2, 3.2, sharey=True)
    for ax, panel in zip(axes, panels, strict=True):
        epochs = epochs_of(panel.accuracy)
        for name, mark in text.marks.items():
            ax.bar(epochs, 100 * getattr(panel, name).mean, width=0.86, linewidth=0, **_fill(mark))
        band_over_bars(ax, panel.accuracy, INK)
        band_over_bars(ax, panel.residual, LIGHT["on-blue"])
        ax.set(title=panel.name, xlabel=text.x, xlim=(0.3, len(epochs) + 0.7))
        ax.grid(axis="x", visible=False)
        note(ax, panel.note)
    for ax in leftmost(axes):
        ax.set_ylabel(f"{text.y}, {panels[0].against} labels")
    legend_below(figure, axes, panels)
    return figure


def _marginal_coverage(make: Any, panels: Sequence[figures.MarginalCoverage]) -> Figure:
    text = SECTIONS["marginal-coverage"]
    lines, columns = stacked(panels)
    bars = [max(min(len(panel.states), ANCHORS_SHOWN), 2) + 1.5 for panel in panels]
    heights = [max(bars[row * columns : (row + 1) * columns]) for row in range(lines)]
    figure: Figure = make(figsize=(8.4 * columns, 0.24 * sum(heights) + 0.9 * lines), layout="constrained")
    grid = list(figure.subplots(lines, 2 * columns, squeeze=False, height_ratios=heights).reshape(-1, 2))
    for spare in (ax for pair in grid[len(panels) :] for ax in pair):
        spare.remove()
    pairs = grid[: len(panels)]
    for (left, right), panel in zip(pairs, panels, strict=True):
        largest = np.sort(np.argsort(-panel.gained, kind="stable")[:ANCHORS_SHOWN])
        rows = np.arange(len(largest))
        share = 100 / panel.samples
        names = [f"epoch {state}" for state in panel.states[largest]]
        left.barh(rows, share * panel.sizes[largest], color=YELLOW, height=0.72)
        right.barh(rows, share * panel.before[largest], color=COVERED, height=0.72)
        right.barh(rows, share * panel.gained[largest], left=share * panel.before[largest], color=BLUE, height=0.72)
        for y, k in zip(rows, largest, strict=True):
            numbers = f"+{panel.gained[k]}, weight {panel.weights[k]:.2f}"
            right.text(1.02, y, numbers, transform=right.get_yaxis_transform(), va="center", fontsize=8, color=INK)
        left.set_yticks(rows, names)
        right.set_yticks([])
        for ax in (left, right):
            ax.set(xlim=(0, 100), ylim=(max(len(rows), 2) - 0.4, -0.6))
            ax.grid(axis="y", visible=False)
        hidden = len(panel.states) - len(largest)
        more = f"; {hidden} more states add {panel.gained.sum() - panel.gained[largest].sum()}" if hidden else ""
        left.set_title(panel.name)
        if panel.seeds > 1:
            note(left, f"one of {panel.seeds} seeds: {panel.run}")
        right.set_title(f"{text.title.lower()}{more}")
    for left, right in pairs[-columns:]:
        left.set_xlabel(f"{text.x} right (%), best state first")
        right.set_xlabel(f"{text.x} covered so far (%), new ones in blue")
    return figure


def _life_expectancy(make: Any, panels: Sequence[figures.LifeExpectancy]) -> Figure:
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    text = SECTIONS["life-expectancy"]
    ramp = LinearSegmentedColormap.from_list("ramp", style.RAMP)
    rows, columns = stacked(panels)
    figure: Figure = make(figsize=(7.2 if columns == 1 else 4.8 * columns, 2.5 * rows + 0.4), layout="constrained")
    axes = axes_in(figure, rows, columns, len(panels), sharex=True, sharey=True)
    shares = [100 * panel.by_age / (panel.samples * panel.seeds) for panel in panels]
    highest = max(share.max() for share in shares)
    lowest = min(100 / (panel.samples * panel.seeds) for panel in panels)
    longest = [np.flatnonzero(panel.by_age.any(axis=1)).max(initial=-1) + 1 for panel in panels]  # over all seeds
    tallest = max(*longest, *(panel.lifespans.high.max() for panel in panels))
    image: Any = None
    for ax, panel, share in zip(axes, panels, shares, strict=True):
        epochs = len(share)
        norm = LogNorm(lowest, max(highest, 2 * lowest))
        image = ax.imshow(np.ma.masked_equal(share, 0), origin="lower", aspect="auto", cmap=ramp, norm=norm,
                          interpolation="nearest", extent=(0.5, epochs + 0.5, 0, epochs))  # fmt: skip
        ax.grid(visible=False)
        if panel.lifespans.se is not None:
            mark = text.marks["lifespans"]
            line(ax, panel.lifespans, 1, mark.series, mark.label, dashed=False)
        ax.set(title=panel.name, ylim=(0, tallest * 1.04 + 0.5))
        note(ax, panel.note)
    axes[0].set_xlim(0.5, max(map(len, shares)) + 0.5)  # shared by all
    for ax in leftmost(axes):
        ax.set_ylabel(text.y)
    for ax in axes[-columns:]:
        ax.set_xlabel(text.x)
        ax.tick_params(labelbottom=True)
    bar = figure.colorbar(image, ax=axes, pad=0.015, aspect=28)
    several = next((ax for ax, panel in zip(axes, panels, strict=True) if panel.seeds > 1), None)
    bar.set_label(f"marginal coverage (% of validation samples{', mean of the seeds' if several else ''})")
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    bar.ax.yaxis.set_minor_formatter(lambda value, _: "")
    bar.outline.set_visible(False)
    if several is not None:
        legend_below(figure, [several], panels)
    return figure


def _end_of_training(make: Any, panels: Sequence[figures.EndOfTraining]) -> Figure:
    text = SECTIONS["end-of-training"]
    figure, (ax,) = figure_of(make, 1, 6.4, 3.2)
    for series, panel in enumerate(panels):
        line(ax, panel.share, 100, series, panel.name)
    ax.set(xlabel=text.x, ylabel=text.y)
    ax.set_ylim(bottom=0)
    legend_of_lines(figure, ax, panels)
    return figure


def _contributing_set(make: Any, panels: Sequence[figures.ContributingSet]) -> Figure:
    text = SECTIONS["contributing-set"]
    figure, (ax,) = figure_of(make, 1, 6.4, 3.2)
    for series, panel in enumerate(panels):
        line(ax, panel.anchors, 1, series, panel.name + panel.detail)
    ax.set(xlabel=text.x, ylabel=text.y)
    whole_numbers(ax.yaxis)
    ax.set_ylim(bottom=0)
    legend_of_lines(figure, ax, panels)
    return figure


def _test_against_validation(make: Any, panels: Sequence[figures.TestAgainstValidation]) -> Figure:
    text = SECTIONS["test-vs-validation"]
    figure, axes = figure_of(make, len(panels), 3.6, 3.2, sharey=True)
    for ax, panel in zip(axes, panels, strict=True):
        for name, mark in text.marks.items():
            band = getattr(panel, name)
            if band is not None:
                line(ax, band, 100, mark.series, mark.label)
        ax.set(title=panel.name, xlabel=text.x)
    for ax in leftmost(axes):
        ax.set_ylabel(text.y)
    legend_below(figure, axes, panels)
    return figure


DRAWINGS: dict[str, Callable[[Any, Any], Figure]] = {
    "forgetting": _forgetting,
    "marginal-coverage": _marginal_coverage,
    "life-expectancy": _life_expectancy,
    "end-of-training": _end_of_training,
    "contributing-set": _contributing_set,
    "test-vs-validation": _test_against_validation,
}


@contextmanager
def _settings() -> Iterator[Any]:
    """The settings of all figures; yields the figure class."""
    try:
        import matplotlib.figure
        from matplotlib import rc_context
    except ImportError as error:
        raise ImportError("figures need the package matplotlib: pip install 'vista-distill[report]'") from error
    with rc_context(SETTINGS):
        yield matplotlib.figure.Figure


def figure_of(make: Any, count: int, width: float, height: float, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure with ``count`` panels of this size, in rows."""
    rows = math.ceil(count / MOST_COLUMNS)
    columns = math.ceil(count / rows)
    figure = make(figsize=(width * columns, height * rows), layout="constrained")
    return figure, axes_in(figure, rows, columns, count, **options)


def axes_in(figure: Figure, rows: int, columns: int, count: int, **options: Any) -> list[Axes]:
    """The first ``count`` axes of a grid; the others are removed."""
    axes = list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    for spare in axes[count:]:
        spare.remove()
    return axes[:count]


def leftmost(axes: Sequence[Axes]) -> list[Axes]:
    """The first axes of each row."""
    return [ax for ax in axes if ax.get_subplotspec().is_first_col()]  # type: ignore[union-attr]


def stacked(panels: Sequence[Any]) -> tuple[int, int]:
    """Rows and columns of stacked panels; many panels take several columns."""
    columns = min(MOST_COLUMNS, math.ceil(len(panels) / MOST_COLUMNS))
    return math.ceil(len(panels) / columns), columns


def epochs_of(band: Band) -> Any:
    return np.arange(1, len(band.mean) + 1)


def _fill(mark: Mark) -> dict[str, Any]:
    return {"color": LIGHT[mark.colour or ""], "label": mark.label}


def line(ax: Axes, band: Band, factor: float, series: int, label: str, *, dashed: bool = True) -> None:
    """A mean and its band, in the style of the series."""
    own = style.line_style(series)
    colour = style.SERIES[own.colour]
    marker: Any = np.array(own.marker) * (1, -1) if own.marker else ""  # y points upwards here
    every = max(1, len(band.mean) // 12)
    ax.plot(epochs_of(band), factor * band.mean, color=colour, linestyle=(0, own.dash) if own.dash and dashed else "-",
            label=label, marker=marker, markersize=4.5, markevery=(series % every, every))  # fmt: skip
    if band.se is not None:
        ax.fill_between(epochs_of(band), factor * band.low, factor * band.high, color=colour, alpha=0.2, linewidth=0)
    ax.set_xlim(0.5, max(np.size(drawn.get_xdata()) for drawn in ax.lines) + 0.5)  # the longest run
    whole_numbers(ax.xaxis)


def band_over_bars(ax: Axes, band: Band, colour: str) -> None:
    """A band around the tops of bars, one step per epoch."""
    if band.se is None:
        return
    edges = np.arange(len(band.mean) + 1) + 0.5
    low, high = (100 * np.append(values, values[-1]) for values in (band.low, band.high))
    ax.fill_between(edges, low, high, step="post", facecolor=colour, alpha=0.28, linewidth=0)
    for values in (low, high):
        ax.step(edges, values, where="post", color=colour, linewidth=0.6, alpha=0.8)


def note(ax: Axes, text: str) -> None:
    ax.annotate(text, (1, 1.02), xycoords="axes fraction", ha="right", va="bottom", color=QUIET, fontsize=8)


def whole_numbers(axis: Axis) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def legend_below(figure: Figure, axes: Sequence[Axes], panels: Sequence[Any]) -> None:
    handles, labels = _entries(axes, panels)
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def legend_of_lines(figure: Figure, ax: Axes, panels: Sequence[Any]) -> None:
    """A legend inside the axes; a large one is placed below them in columns and makes the figure taller."""
    handles, labels = _entries([ax], panels)
    if len(panels) <= MOST_LINES and max(map(len, labels)) <= MOST_LETTERS:
        ax.legend(handles, labels)
        return
    names = [textwrap.fill(label, LINE_LETTERS) for label in labels]
    measured = figure.legend(handles, names).get_window_extent().transformed(figure.dpi_scale_trans.inverted())
    figure.legends.clear()
    gap = 0.25  # inches between columns
    width, height = figure.get_size_inches()
    columns = max(1, int((width + gap) / (measured.width + gap)))
    figure.set_size_inches(width, height + measured.height / columns)
    figure.legend(handles, names, loc="outside lower center", ncols=columns)


def _entries(axes: Sequence[Axes], panels: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """Handles and labels of a legend: each label once, and the bands if the panels have any."""
    from matplotlib.patches import Patch

    handles, labels = list[Any](), list[str]()
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            if label not in labels:
                handles.append(handle)
                labels.append(label)
    band = figures.band_label(panels)
    if band is not None:
        handles.append(Patch(facecolor=QUIET, alpha=0.35))
        labels.append(band)
    return handles, labels
