"""The figures' data drawn by matplotlib, to PNG, SVG or PDF. Colours are told apart by the colour-blind and in grey."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vista.analysis.runs import Group
from vista.report import figures
from vista.report.figures import Band
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
    figure = make(figsize=(width * count, height), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False, **options)[0])


def draw(name: str, groups: Sequence[Group]) -> Figure:
    """The figure called ``name``, ready to be saved."""
    if name not in DRAWINGS:
        raise ValueError(f"figure {name!r} is unknown; known are {', '.join(DRAWINGS)}")
    data = figures.FIGURES[name](groups)
    with _styled() as make:
        return DRAWINGS[name](make, data)


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
        for band, colour, mark, label in (
            (panel.accuracy, YELLOW, INK, "right at this epoch"),
            (panel.residual, BLUE, "white", "of those, still right at the end"),
        ):
            error = None if band.se is None else 100 * band.se
            whiskers = {"elinewidth": 0.8, "ecolor": mark, "alpha": 0.55}
            ax.bar(epochs, 100 * band.mean, width=0.86, color=colour, label=label, linewidth=0, yerr=error,
                   error_kw=whiskers)  # fmt: skip
        ax.set(title=panel.name, xlabel="epoch", xlim=(0.3, len(epochs) + 0.7))
        ax.grid(axis="x", visible=False)
        note = f"mean deviation gap {100 * panel.mean_gap:.2f} %"
        ax.annotate(note, (1, 1.02), xycoords="axes fraction", ha="right", va="bottom", color=QUIET, fontsize=8)
    axes[0].set_ylabel(f"validation samples (%), {panels[0].against} labels")
    _legend_below(figure, axes[0])
    return figure


def _marginal_coverage(make: Any, panels: Sequence[figures.MarginalCoverage]) -> Figure:
    rows = [min(len(panel.states), ROWS_SHOWN) for panel in panels]
    heights = [max(count, 2) + 1.5 for count in rows]
    figure: Figure = make(figsize=(8.4, 0.24 * sum(heights) + 0.9 * len(panels)), layout="constrained")
    grid = figure.subplots(len(panels), 2, squeeze=False, height_ratios=heights)
    for (left, right), panel in zip(grid, panels, strict=True):
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
        left.set_title(f"{panel.name}: ranked by accuracy")
        right.set_title(f"what each adds{more}")
    grid[-1][0].set_xlabel("validation samples right (%)")
    grid[-1][1].set_xlabel("validation samples covered so far (%), new ones in blue")
    return figure


def _life_expectancy(make: Any, panels: Sequence[figures.LifeExpectancy]) -> Figure:
    from matplotlib.colors import LogNorm

    figure: Figure = make(figsize=(7.2, 2.5 * len(panels) + 0.4), layout="constrained")
    axes = [row[0] for row in figure.subplots(len(panels), 1, squeeze=False, sharex=True, sharey=True)]
    highest = max(100 * panel.by_age.max() / panel.samples for panel in panels)
    lowest = min(100 / panel.samples for panel in panels)
    tallest = max(int(panel.lifespans.max()) for panel in panels)
    image: Any = None
    for ax, panel in zip(axes, panels, strict=True):
        epochs = len(panel.lifespans)
        shown = np.ma.masked_equal(100 * panel.by_age / panel.samples, 0)
        norm = LogNorm(lowest, max(highest, 2 * lowest))
        image = ax.imshow(shown, origin="lower", aspect="auto", cmap="cividis_r", norm=norm, interpolation="nearest",
                          extent=(0.5, epochs + 0.5, 0, epochs))  # fmt: skip
        ax.grid(visible=False)
        ax.set(title=panel.name, ylabel="epochs as anchor", ylim=(0, tallest * 1.04 + 0.5))
        note = f"mean lifespan {panel.lifespans.mean():.1f} epochs"
        ax.annotate(note, (1, 1.02), xycoords="axes fraction", ha="right", va="bottom", color=QUIET, fontsize=8)
    axes[-1].set_xlabel("epoch of the state")
    bar = figure.colorbar(image, ax=axes, pad=0.015, aspect=28)
    bar.set_label("marginal coverage (% of validation samples)")
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    bar.ax.yaxis.set_minor_formatter(lambda value, _: "")
    bar.outline.set_visible(False)
    return figure


def _end_of_training(make: Any, panels: Sequence[figures.EndOfTraining]) -> Figure:
    figure, (ax,) = _panels(make, 1, 6.4, 3.2)
    for place, panel in enumerate(panels):
        _line(ax, panel.share, 100, place, panel.name)
    ax.set(xlabel="epoch of the state", ylabel="marginal coverage at the end (%)")
    ax.set_ylim(bottom=0)
    ax.legend()
    return figure


def _contributing_set(make: Any, panels: Sequence[figures.ContributingSet]) -> Figure:
    figure, (ax,) = _panels(make, 1, 6.4, 3.2)
    for place, panel in enumerate(panels):
        most = panel.anchors.mean.max()
        size = "" if panel.bytes_each is None else f", {readable(most * panel.bytes_each)}"
        kept = "" if panel.kept else ", had it kept them"
        _line(ax, panel.anchors, 1, place, f"{panel.name}: at most {most:.3g}{size}{kept}")
    ax.set(xlabel="epoch", ylabel="anchors in the contributing set")
    _whole_numbers(ax.yaxis)
    ax.set_ylim(bottom=0)
    ax.legend()
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
    axes[0].set_ylabel("accuracy (%)")
    _legend_below(figure, axes[0])
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


def _line(ax: Axes, band: Band, factor: float, place: int, label: str) -> None:
    colour, dash = SERIES[place % len(SERIES)], DASHES[place % len(DASHES)]
    ax.plot(_epochs(band), factor * band.mean, color=colour, linestyle=dash, label=label)
    if band.se is not None:
        low, high = factor * (band.mean - band.se), factor * (band.mean + band.se)
        ax.fill_between(_epochs(band), low, high, color=colour, alpha=0.18, linewidth=0)
    ax.set_xlim(0.5, len(band.mean) + 0.5)
    _whole_numbers(ax.xaxis)


def _whole_numbers(axis: Axis) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def _legend_below(figure: Figure, ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
