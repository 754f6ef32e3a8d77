"""Colours, line styles and texts of the figures: the only table of them, for matplotlib and for the page alike.

Colours differ in lightness as well as in hue, and every series has its own dash pattern, so that the figures stay
readable for colour-blind readers and on grey printouts.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

Polygon = tuple[tuple[float, float], ...]

LIGHT = {
    "ground": "#f6f7f8", "card": "#ffffff", "ink": "#1d2126", "quiet": "#5d6672", "line": "#e2e5e9", "hover": "#eef1f5",
    "yellow": "#f2c230", "blue": "#1f5a9e", "on-blue": "#ffffff", "accent": "#1f5a9e", "covered": "#e4e7eb",
    "wrong": "#a34a05",
}  # fmt: skip
DARK = {
    "ground": "#12151a", "card": "#1a1e25", "ink": "#e7eaee", "quiet": "#9aa4b1", "line": "#2e343d", "hover": "#252b34",
    "yellow": "#e9bd3a", "blue": "#3f7fc8", "on-blue": "#ffffff", "accent": "#7fb2ec", "covered": "#333a45",
    "wrong": "#f0924a",
}  # fmt: skip
SERIES = ("#1f5a9e", "#d1610a", "#118c6a", "#b0508f", "#22262b", "#4d9bc9")
SERIES_DARK = ("#6aa5ea", "#f0924a", "#4cc9a0", "#dd8fc2", "#e7eaee", "#9bd0ee")
# Heat maps, from low to high: monotonic in lightness, the lowest closest to the background.
RAMP = ("#f7de6e", "#aaaa80", "#566c8c", "#0e2a58")
RAMP_DARK = ("#2c4268", "#546f8a", "#9e9b7a", "#ffde54")
# Lengths of dashes and gaps, in line widths.
DASHES: tuple[tuple[float, ...], ...] = ((), (4, 2), (1.2, 1.6), (5, 2, 1.2, 2), (3, 1, 1, 1, 1, 1), (7, 3))
# Polygons of half-width 1, y downwards: none, circle, square, triangle, diamond and cross.
MARKERS: tuple[Polygon, ...] = (
    (),
    tuple((round(math.cos(k * math.pi / 8), 3), round(math.sin(k * math.pi / 8), 3)) for k in range(16)),
    ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    ((0, -1.1), (1.1, 0.9), (-1.1, 0.9)),
    ((0, -1.2), (1.2, 0), (0, 1.2), (-1.2, 0)),
    ((-1.1, -0.3), (-0.3, -0.3), (-0.3, -1.1), (0.3, -1.1), (0.3, -0.3), (1.1, -0.3), (1.1, 0.3), (0.3, 0.3),
     (0.3, 1.1), (-0.3, 1.1), (-0.3, 0.3), (-1.1, 0.3)),
)  # fmt: skip
ANCHORS_SHOWN = 14  # per panel, those that add most
CLASSES_SHOWN = 12  # per panel, those that lost most
REPLAYED = "replayed as VISTA Basic"  # the anchors of a method that keeps none


@dataclass(frozen=True)
class LineStyle:
    """How a series is drawn."""

    colour: int  # in SERIES
    dash: tuple[float, ...]
    marker: Polygon


def line_style(series: int) -> LineStyle:
    """The style of a series by its position; the first 216 differ.

    Each round through the colours has its own marker and shifts the dashes.
    """
    turn = series // len(SERIES)
    dash = DASHES[(series + turn + turn // len(MARKERS)) % len(DASHES)]
    return LineStyle(series % len(SERIES), dash, MARKERS[turn % len(MARKERS)])


@dataclass(frozen=True)
class Mark:
    """A legend entry: an area in a named colour, or the line of a series."""

    label: str
    colour: str | None = None  # in LIGHT and DARK
    series: int = 0


@dataclass(frozen=True)
class Section:
    """Texts of a section of the page and of its figure; ``marks`` by the field of the panel that they show."""

    title: str
    caption: str
    x: str = ""
    y: str = ""
    marks: dict[str, Mark] = dataclasses.field(default_factory=dict)


SECTIONS = {
    "comparison": Section(
        "Comparison",
        "Means over the seeds with standard errors; the best value of each column is bold. Validation labels that were "
        "split off the training set carry its label noise, test labels do not. The test set selects nothing.",
    ),
    "forgetting": Section(
        "What was forgotten",
        "Yellow: the validation samples that are right at an epoch. Blue: those of them that are still right at the "
        "end. The yellow above the blue was learned and then forgotten.",
        "epoch",
        "validation samples (%)",
        {
            "accuracy": Mark("right at this epoch", "yellow"),
            "residual": Mark("of those, still right at the end", "blue"),
        },
    ),
    "timeline": Section(
        "Anchors over time",
        "Each column is a past state, each row the teacher after an epoch. The colour of a cell is the weight of the "
        "state in that teacher. Long columns are states that remain anchors; the diagonal is the newest state.",
        "epoch of the state",
        "teacher after epoch",
    ),
    "marginal-coverage": Section(
        "What each anchor adds",
        "The anchors at the end, best-ranked first. Grey: samples that better-ranked anchors already cover. Blue: "
        "samples that this anchor adds. Yellow line: all samples that it gets right. The numbers are the samples "
        "that it adds and its weight in the teacher.",
        "validation samples",
        marks={
            "sizes": Mark("all samples that it gets right", "yellow"),
            "before": Mark("covered by better-ranked anchors", "covered"),
            "gained": Mark("added by this anchor", "blue"),
        },
    ),
    "life-expectancy": Section(
        "How long a state remains an anchor",
        "The height of a column is the number of epochs in which the state was an anchor. Its colour is the number of "
        "samples that it adds to the better-ranked states; it fades as later states cover them too. Short columns: "
        "later states soon learn the same samples.",
        "epoch of the state",
        "epochs as anchor",
        {"lifespans": Mark("mean lifespan of a state", series=1)},
    ),
    "end-of-training": Section(
        "Which epochs still add samples at the end",
        "All states are ranked at the end of training. A spike shows which past epochs still add samples that "
        "better-ranked states miss.",
        "epoch of the state",
        "marginal coverage at the end (%)",
    ),
    "contributing-set": Section(
        "How many states are kept",
        "The number of past states whose predictions the teacher uses. The highest point is the storage that the run "
        "needs.",
        "epoch",
        "anchors in the contributing set",
    ),
    "test-vs-validation": Section(
        "Test and validation accuracy",
        "Test labels are clean. Validation labels that were split off the training set carry its label noise, so that "
        "their accuracy is lower. If both curves rise and fall together, the validation set is a good guide.",
        "epoch",
        "accuracy (%)",
        {
            "test": Mark("test", series=0),
            "validation_true": Mark("validation, true labels", series=1),
            "validation": Mark("validation, given labels", series=2),
        },
    ),
    "forgotten-classes": Section(
        "Forgotten classes",
        "For each class, the share of validation samples that were right at some epoch and are wrong at the end.",
    ),
    "suspects": Section(
        "Suspected labels",
        "Training samples whose given label the final teacher considers least likely, relative to what is usual for "
        "the class. From a score of 0.5 on, another class is at least as likely.",
    ),
    "runs": Section("Configuration and environment", "The settings of each run and the machine it ran on."),
}
NO_SUSPECTS = "No finished run here has a teacher, which is needed to find suspected labels."


def for_page(series: int) -> dict[str, Any]:
    """The table as JSON values, with the styles of the first ``series`` lines."""
    return {
        "sections": {name: dataclasses.asdict(section) for name, section in SECTIONS.items()},
        "no_suspects": NO_SUSPECTS,
        "lines": [dataclasses.asdict(line_style(k)) for k in range(max(series, 3))],
        "ramp": len(RAMP),
        "anchors_shown": ANCHORS_SHOWN,
        "classes_shown": CLASSES_SHOWN,
        "replayed": REPLAYED,
    }


def css() -> str:
    """The colours as CSS variables, for the light and the dark scheme."""
    light = _variables("light", LIGHT, SERIES, RAMP)
    dark = _variables("dark", DARK, SERIES_DARK, RAMP_DARK)
    return (
        f":root {{ {light} }}\n"
        f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ {dark} }} }}\n'
        f':root[data-theme="dark"] {{ {dark} }}\n'
    )


def _variables(scheme: str, colours: dict[str, str], series: tuple[str, ...], ramp: tuple[str, ...]) -> str:
    named = {
        **colours,
        **{f"s{k}": colour for k, colour in enumerate(series)},
        **{f"r{k}": colour for k, colour in enumerate(ramp)},
    }
    return f"color-scheme: {scheme}; " + " ".join(f"--{name}: {colour};" for name, colour in named.items())
