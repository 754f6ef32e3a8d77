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
    "accent": "#1f5a9e", "covered": "#e4e7eb",
    "wrong": "#a34a05",
}  # fmt: skip
DARK = {
    "ground": "#12151a", "card": "#1a1e25", "ink": "#e7eaee", "quiet": "#9aa4b1", "line": "#2e343d", "hover": "#252b34",
    "accent": "#7fb2ec", "covered": "#333a45",
    "wrong": "#f0924a",
}  # fmt: skip
# One colour per method: the first is the baseline's, and no other method has it.
SERIES = ("#7b8490", "#1f5a9e", "#d1610a", "#118c6a", "#b0508f", "#8a6d00", "#4d9bc9")
SERIES_DARK = ("#9aa4b1", "#6aa5ea", "#f0924a", "#4cc9a0", "#dd8fc2", "#d9bb4a", "#9bd0ee")
PALE = 0.35  # opacity of the part of a bar that was forgotten
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
    """The style of a method by its position, 0 for the baseline; the first 217 differ.

    Each round through the colours has its own marker and shifts the dashes.
    """
    if series == 0:
        return LineStyle(0, (), ())
    turn, place = divmod(series - 1, len(SERIES) - 1)
    dash = DASHES[(place + turn + turn // len(MARKERS)) % len(DASHES)]
    return LineStyle(1 + place, dash, MARKERS[turn % len(MARKERS)])


@dataclass(frozen=True)
class Mark:
    """A legend entry: an area in a named colour or in that of the method, or a line with these dashes."""

    label: str
    colour: str | None = None  # in LIGHT and DARK; None for the colour of the method
    opacity: float = 1.0
    dash: tuple[float, ...] | None = None  # None for an area


@dataclass(frozen=True)
class Section:
    """Texts of a section of the page and of its figure; ``marks`` by the field of the panel that they show."""

    title: str
    caption: str
    x: str = ""
    y: str = ""
    marks: dict[str, Mark] = dataclasses.field(default_factory=dict)


SECTIONS = {
    "accuracy": Section("Result", "", "epoch", "accuracy (%)"),
    "comparison": Section(
        "Comparison",
        "Means over the seeds with standard errors; the best value of each column is bold. Validation labels that were "
        "split off the training set carry its label noise. Synthetic noise leaves test labels unchanged, but test "
        "samples of the same folder or file contain its wrong labels. The test set selects nothing.",
    ),
    "suspects": Section(
        "Labels to check",
        "Samples whose given label is least likely, relative to what is usual for the class. Above a score of 0.5 "
        "another class is more likely.",
    ),
    "paths": Section(
        "One sample’s path",
        "Choose a sample to see each epoch of its training, one row per method.",
        "epoch",
    ),
    "forgetting": Section(
        "What was forgotten",
        "Full bars: validation samples that are right at an epoch. Dark part: those of them that are still right at "
        "the end. The pale part was learned and then forgotten.",
        "epoch",
        "validation samples (%)",
        {
            "accuracy": Mark("right at this epoch, wrong at the end", opacity=PALE),
            "residual": Mark("still right at the end"),
        },
    ),
    "forgotten-classes": Section(
        "Forgotten classes",
        "For each class, the share of validation samples that were right at some epoch and are wrong at the end. The "
        "classes that lost most come first, in the same order for all methods.",
    ),
    "test-vs-validation": Section(
        "Test and validation accuracy",
        "Synthetic noise leaves test labels unchanged, but validation labels that were split off the training set "
        "carry it, so that their accuracy is lower. Test labels from the same folder or file can be wrong too. If both "
        "curves rise and fall together, the validation set is a good guide.",
        "epoch",
        "accuracy (%)",
        {
            "test": Mark("test", dash=()),
            "validation_true": Mark("validation, true labels", dash=(4, 2)),
            "validation": Mark("validation, given labels", dash=(1.2, 1.6)),
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
        "The anchors at the end, best-ranked first. Grey: samples that better-ranked anchors already cover. In colour: "
        "samples that this anchor adds. Line: all samples that it gets right. The numbers are the samples that it adds "
        "and its weight in the teacher.",
        "validation samples",
        marks={
            "sizes": Mark("all samples that it gets right", "ink"),
            "before": Mark("covered by better-ranked anchors", "covered"),
            "gained": Mark("added by this anchor"),
        },
    ),
    "contributing-set": Section(
        "How many states are kept",
        "The number of past states whose predictions the teacher uses. The highest point is the storage that the run "
        "needs.",
        "epoch",
        "anchors in the contributing set",
    ),
    "runs": Section("Configuration and environment", "The settings of each run and the machine it ran on."),
}
RESTART = "learning rate restarts"
FUSED = "fused prediction of several states, which the curve does not show"
NO_SUSPECTS = (
    "No run here has finished with predictions of its training samples, which are needed to find wrong labels."
)


def for_page(series: dict[str, int]) -> dict[str, Any]:
    """The table as JSON values, with the styles of these methods by name."""
    return {
        "sections": {name: dataclasses.asdict(section) for name, section in SECTIONS.items()},
        "no_suspects": NO_SUSPECTS,
        "series": series,
        "lines": [dataclasses.asdict(line_style(k)) for k in range(max(series.values(), default=0) + 1)],
        "restart": RESTART,
        "fused": FUSED,
        "pale": PALE,
        "ramp": len(RAMP),
        "anchors_shown": ANCHORS_SHOWN,
        "classes_shown": CLASSES_SHOWN,
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
