"""Panels, lines, bands and legends: what every figure is drawn of, and how it looks.

Colours are told apart by the colour-blind and in grey.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from vista.report.figures import Band, Mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

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
ABREAST = 4  # panels side by side, and below each other where a figure stacks them
LINES_INSIDE = 6  # a longer legend lies below the axes, and so does one with a name as long as this:
LETTERS_INSIDE = 60
LETTERS = 80  # of a name in a row of a legend below


@contextmanager
def styled() -> Iterator[Any]:
    try:
        import matplotlib.figure
        from matplotlib import rc_context
    except ImportError as error:
        raise ImportError("figures need the package matplotlib: pip install 'vista-distill[report]'") from error
    with rc_context(STYLE):
        yield matplotlib.figure.Figure


def figure_of(make: Any, count: int, width: float, height: float, **options: Any) -> tuple[Figure, list[Axes]]:
    """Panels beside each other, many of them in rows."""
    rows = math.ceil(count / ABREAST)
    columns = math.ceil(count / rows)
    figure = make(figsize=(width * columns, height * rows), layout="constrained")
    return figure, places_in(figure, rows, columns, count, **options)


def places_in(figure: Figure, rows: int, columns: int, count: int, **options: Any) -> list[Axes]:
    """The first ``count`` places of a grid; the others stay empty."""
    axes = list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    for spare in axes[count:]:
        spare.remove()
    return axes[:count]


def leftmost(axes: Sequence[Axes]) -> list[Axes]:
    """The first of each row."""
    return [ax for ax in axes if ax.get_subplotspec().is_first_col()]  # type: ignore[union-attr]


def stacked(panels: Sequence[Any]) -> tuple[int, int]:
    """Rows and columns of panels that lie below each other, many of them in several columns."""
    columns = min(ABREAST, math.ceil(len(panels) / ABREAST))
    return math.ceil(len(panels) / columns), columns


def epochs_of(band: Band) -> Any:
    return np.arange(1, len(band.mean) + 1)


def look(place: int) -> tuple[str, Any, str]:
    """Colour, dash and marker of a line: each round through the colours has its own marker and shifts the dashes."""
    again = place // len(SERIES)
    dash = DASHES[(place + again + again // len(MARKERS)) % len(DASHES)]
    return SERIES[place % len(SERIES)], dash, MARKERS[again % len(MARKERS)]


def line(ax: Axes, band: Band, factor: float, place: int, label: str, dash: str | None = None) -> None:
    colour, usual, marker = look(place)
    every = max(1, len(band.mean) // 12)
    ax.plot(epochs_of(band), factor * band.mean, color=colour, linestyle=dash or usual, label=label,
            marker=marker, markersize=4, markevery=(place % every, every))  # fmt: skip
    if band.se is not None:
        ax.fill_between(epochs_of(band), factor * band.low, factor * band.high, color=colour, alpha=0.2, linewidth=0)
    ax.set_xlim(0.5, max(np.size(drawn.get_xdata()) for drawn in ax.lines) + 0.5)  # one run may be longer than another
    whole_numbers(ax.xaxis)


def band_over_bars(ax: Axes, band: Band, colour: str) -> None:
    """Around the tops of bars, each step as wide as an epoch."""
    if band.se is None:
        return
    edges = np.arange(len(band.mean) + 1) + 0.5
    low, high = (100 * np.append(values, values[-1]) for values in (band.low, band.high))
    ax.fill_between(edges, low, high, step="post", facecolor=colour, alpha=0.28, linewidth=0)
    for values in (low, high):
        ax.step(edges, values, where="post", color=colour, linewidth=0.6, alpha=0.8)


def note(ax: Axes, text: str) -> None:
    ax.annotate(text, (1, 1.02), xycoords="axes fraction", ha="right", va="bottom", color=QUIET, fontsize=8)


def shown(mean: Mean, factor: float, digits: int) -> str:
    error = "" if mean.se is None else f" ± {factor * mean.se:.{digits}f}"
    return f"{factor * mean.value:.{digits}f}{error}"


def whole_numbers(axis: Axis) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def legend_below(figure: Figure, axes: Sequence[Axes], bands: Sequence[Band]) -> None:
    handles, labels = _entries(axes, bands)
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def legend_of_lines(figure: Figure, ax: Axes, bands: Sequence[Band]) -> None:
    """Inside the axes; what would cover the lines goes below, in columns, and makes the figure taller."""
    handles, labels = _entries([ax], bands)
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


def _entries(axes: Sequence[Axes], bands: Sequence[Band]) -> tuple[list[Any], list[str]]:
    """What a legend says of all that is drawn, each name once; where there is a band, also what it is."""
    from matplotlib.patches import Patch

    handles, labels = list[Any](), list[str]()
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            if label not in labels:
                handles.append(handle)
                labels.append(label)
    seeds = sorted({band.seeds for band in bands if band.se is not None})
    if seeds:
        count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        handles.append(Patch(facecolor=QUIET, alpha=0.35))
        labels.append(f"mean ± standard error, {count} seeds")
    return handles, labels
