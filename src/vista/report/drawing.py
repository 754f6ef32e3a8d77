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
from vista.report import figures, series, style
from vista.report.figures import Band
from vista.report.style import ANCHORS_SHOWN, LIGHT, REPLAYED, SECTIONS, LineStyle, Mark

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Format = Literal["png", "svg", "pdf"]
Styles = dict[str, LineStyle]  # by the name of a group
INK, QUIET, COVERED = (LIGHT[name] for name in ("ink", "quiet", "covered"))
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
MOST_LABELS = 8  # at the ends of curves
MOST_LINES = 6  # a longer legend is placed below the axes, and so is one with a longer label than this:
MOST_LETTERS = 60
LINE_LETTERS = 80  # in a legend below the axes


def drawable(groups: Sequence[Group]) -> list[str]:
    """The figures for which some of these groups have the data."""
    return [name for name in DRAWINGS if figures.shown(name, groups)]


def draw(name: str, groups: Sequence[Group]) -> Figure:
    """Draw one figure.

    Args:
        name: A key of ``DRAWINGS``.
        groups: Groups of runs, each with at least one epoch. The anchors of a method that keeps none are replayed as
            VISTA Basic.

    Returns:
        A matplotlib figure.
    """
    if name not in DRAWINGS:
        raise ValueError(f"figure must be one of {', '.join(DRAWINGS)}, got {name!r}")
    shown = series.ordered(groups)
    data = figures.FIGURES[name](figures.with_samples(shown) if name in figures.OF_SAMPLES else shown)
    styles = {_escaped(own): style.line_style(place) for own, place in series.positions(shown).items()}
    with _settings() as make:
        return DRAWINGS[name](make, [_printable(panel) for panel in data], styles)


def _printable(panel: Any) -> Any:
    """Show bytes of a path that are not UTF-8 as escapes."""
    texts = {f.name: value for f in dataclasses.fields(panel) if isinstance(value := getattr(panel, f.name), str)}
    return dataclasses.replace(panel, **{name: _escaped(text) for name, text in texts.items()})


def _escaped(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


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


def _accuracy(make: Any, panels: Sequence[figures.Accuracy], styles: Styles) -> Figure:
    text = SECTIONS["accuracy"]
    figure, (ax,) = figure_of(make, 1, 7.2, 3.8)
    for place, panel in enumerate(panels):
        line(ax, panel.curve, 100, styles[panel.name], panel.name, shift=place / len(panels))
    restarts = sorted({epoch for panel in panels for epoch in panel.restarts})
    for epoch in restarts:
        ax.axvline(epoch - 0.5, color=QUIET, linewidth=0.8, linestyle=(0, (2, 3)), zorder=0.5)
    if restarts:
        ax.text(restarts[0], 0.02, f" {style.RESTART}", transform=ax.get_xaxis_transform(), color=QUIET, fontsize=8)
    ax.set(xlabel=text.x, ylabel=f"{panels[0].what} (%)")
    ax.set_ylim(bottom=0)
    _label_ends(figure, ax, panels, styles)
    return figure


def _label_ends(figure: Figure, ax: Axes, panels: Sequence[figures.Accuracy], styles: Styles) -> None:
    """Name each curve at its end, as near as possible; many curves have a legend instead."""
    if len(panels) > MOST_LABELS or max(len(panel.name) for panel in panels) > MOST_LETTERS:
        legend_of_lines(figure, ax, panels)
        return
    ends = [100 * float(panel.curve.mean[-1] if panel.final is None else panel.final.value) for panel in panels]
    low, high = ax.get_ylim()
    gap, places = 0.055 * (high - low), list[float]()
    order = sorted(range(len(panels)), key=lambda k: ends[k])
    for k in order:
        places.append(ends[k] if not places else max(ends[k], places[-1] + gap))
    for row in range(len(places) - 1, -1, -1):
        places[row] = min(places[row], high if row == len(places) - 1 else places[row + 1] - gap)
    for k, place in zip(order, places, strict=True):
        colour = style.SERIES[styles[panels[k].name].colour]
        epoch = len(panels[k].curve.mean)
        if panels[k].final is not None:
            ax.plot(epoch, ends[k], "D", color=colour, markerfacecolor="white", markersize=5, clip_on=False)
        ax.annotate(f"{panels[k].name} {ends[k]:.1f}", (epoch, ends[k]), (1.04, place), va="center",
                    fontsize=8, textcoords=ax.get_yaxis_transform(), color=INK,
                    arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 1.2})  # fmt: skip
    whiskers = figures.whisker_label(panels)
    fused = [f"◇ {style.FUSED}"] if any(panel.final is not None for panel in panels) else []
    ax.set_title("; ".join([*([whiskers] if whiskers else []), *fused]), fontsize=8, color=QUIET, fontweight="normal")


def _forgetting(make: Any, panels: Sequence[figures.Forgetting], styles: Styles) -> Figure:
    text = SECTIONS["forgetting"]
    figure, axes = figure_of(make, len(panels), 4.2, 3.2, sharey=True)
    for ax, panel in zip(axes, panels, strict=True):
        epochs = epochs_of(panel.accuracy)
        for name, mark in text.marks.items():
            band = getattr(panel, name)
            ax.bar(epochs, 100 * band.mean, width=0.86, linewidth=0, **_fill(mark, styles[panel.name]))
        whiskers(ax, panel.accuracy, 100, INK)
        whiskers(ax, panel.residual, 100, INK, 0.5)
        ax.set(title=panel.name, xlabel=text.x, xlim=(0.3, len(epochs) + 0.7))
        ax.grid(axis="x", visible=False)
        note(ax, panel.note)
    for ax in leftmost(axes):
        ax.set_ylabel(f"{text.y}, {panels[0].against} labels")
    legend_below(figure, axes, panels)
    return figure


def _marginal_coverage(make: Any, panels: Sequence[figures.MarginalCoverage], styles: Styles) -> Figure:
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
        share, colour = 100 / panel.samples, style.SERIES[styles[panel.name].colour]
        names = [f"epoch {state}" for state in panel.states[largest]]
        left.barh(rows, share * panel.sizes[largest], color=colour, alpha=style.PALE, height=0.72)
        right.barh(rows, share * panel.before[largest], color=COVERED, height=0.72)
        right.barh(rows, share * panel.gained[largest], left=share * panel.before[largest], color=colour, height=0.72)
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
        right.set_xlabel(f"{text.x} covered so far (%), new ones in colour")
    return figure


def _timeline(make: Any, panels: Sequence[figures.Timeline], styles: Styles) -> Figure:
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    text = SECTIONS["timeline"]
    shown = [panel for panel in panels if panel.kept] or list(panels)
    ramp = LinearSegmentedColormap.from_list("ramp", style.RAMP)
    figure, axes = figure_of(make, len(shown), 4.4, 3.6)
    lowest = min((float(panel.weights[panel.weights > 0].min(initial=1)) for panel in shown), default=1.0)
    image: Any = None
    for ax, panel in zip(axes, shown, strict=True):
        size = len(panel.weights) + 0.5
        image = ax.imshow(np.ma.masked_equal(panel.weights, 0), origin="lower", aspect="auto", cmap=ramp,
                          norm=LogNorm(min(lowest, 0.5), 1), interpolation="nearest",
                          extent=(0.5, size, 0.5, size))  # fmt: skip
        ax.grid(visible=False)
        ax.set(title=panel.name, xlabel=text.x)
        note(ax, panel.run if panel.kept else REPLAYED)
        whole_numbers(ax.xaxis)
        whole_numbers(ax.yaxis)
    for ax in leftmost(axes):
        ax.set_ylabel(text.y)
    bar = figure.colorbar(image, ax=axes, pad=0.015, aspect=28)
    bar.set_label("weight in the teacher")
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    bar.ax.yaxis.set_minor_formatter(lambda value, _: "")
    bar.outline.set_visible(False)
    return figure


def _contributing_set(make: Any, panels: Sequence[figures.ContributingSet], styles: Styles) -> Figure:
    text = SECTIONS["contributing-set"]
    figure, (ax,) = figure_of(make, 1, 6.4, 3.2)
    for place, panel in enumerate(panels):
        line(ax, panel.anchors, 1, styles[panel.name], panel.name + panel.detail, shift=place / len(panels))
    ax.set(xlabel=text.x, ylabel=text.y)
    whole_numbers(ax.yaxis)
    ax.set_ylim(bottom=0)
    legend_of_lines(figure, ax, panels)
    return figure


def _test_against_validation(make: Any, panels: Sequence[figures.TestAgainstValidation], styles: Styles) -> Figure:
    text = SECTIONS["test-vs-validation"]
    figure, axes = figure_of(make, len(panels), 3.6, 3.2, sharey=True)
    for ax, panel in zip(axes, panels, strict=True):
        for name, mark in text.marks.items():
            band = getattr(panel, name)
            if band is not None:
                own = dataclasses.replace(styles[panel.name], dash=mark.dash or (), marker=())
                line(ax, band, 100, own, mark.label)
        ax.set(title=panel.name, xlabel=text.x)
    for ax in leftmost(axes):
        ax.set_ylabel(text.y)
    legend_below(figure, axes, panels)
    return figure


DRAWINGS: dict[str, Callable[[Any, Any, Styles], Figure]] = {
    "accuracy": _accuracy,
    "forgetting": _forgetting,
    "timeline": _timeline,
    "marginal-coverage": _marginal_coverage,
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


def _fill(mark: Mark, own: LineStyle) -> dict[str, Any]:
    colour = style.SERIES[own.colour] if mark.colour is None else LIGHT[mark.colour]
    return {"color": colour, "alpha": mark.opacity, "label": mark.label}


def line(ax: Axes, band: Band, factor: float, own: LineStyle, label: str, *, shift: float = 0.0) -> None:
    """A mean with whiskers, in the style of its method."""
    colour = style.SERIES[own.colour]
    marker: Any = np.array(own.marker) * (1, -1) if own.marker else ""  # y points upwards here
    every = max(1, len(band.mean) // 12)
    ax.plot(epochs_of(band), factor * band.mean, color=colour, linestyle=(0, own.dash) if own.dash else "-",
            label=label, marker=marker, markersize=4.5, markevery=(own.colour % every, every))  # fmt: skip
    whiskers(ax, band, factor, colour, shift)
    ax.set_xlim(0.5, max(np.size(drawn.get_xdata()) for drawn in ax.lines) + 0.5)  # the longest run
    whole_numbers(ax.xaxis)


def whiskers(ax: Axes, band: Band, factor: float, colour: str, shift: float = 0.0) -> None:
    """Whiskers at the last epoch and at about ten before it; ``shift`` keeps those of several curves apart."""
    if band.se is None:
        return
    count = len(band.mean)
    every = max(1, math.ceil(count / 10))
    first = (count - 1 + int(shift * every)) % every
    at = np.unique(np.append(np.arange(first, max(count - every // 2, 1), every), count - 1))
    ax.errorbar(
        at + 1, factor * band.mean[at], factor * band.se[at], fmt="none", ecolor=colour, elinewidth=1.0, capsize=2
    )


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
    """Handles and labels of a legend: each label once, and the whiskers if the panels have any."""
    from matplotlib.lines import Line2D

    handles, labels = list[Any](), list[str]()
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            if label not in labels:
                handles.append(handle)
                labels.append(label)
    whisker = figures.whisker_label(panels)
    if whisker is not None:
        handles.append(Line2D([], [], color=QUIET, marker="|", markersize=9, linestyle="none"))
        labels.append(whisker)
    return handles, labels
