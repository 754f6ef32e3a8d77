"""Drawings show the data: bars as tall as the figures say, labelled axes, three formats, the same bytes again."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from made_runs import HAND, hand_run

from vista.analysis.runs import Group
from vista.report import drawing, figures

pytest.importorskip("matplotlib", reason="figures need matplotlib")
GROUPS = [Group("plain", (hand_run("a"), hand_run("b", HAND[::-1].copy()))), Group("$ours$ <b>", (hand_run("c"),))]


def test_bars_are_as_tall_as_the_data() -> None:
    figure = drawing.draw("forgetting", GROUPS)
    (panel, _) = figures.forgetting(GROUPS)
    heights = [[bar.get_height() for bar in bars] for bars in figure.axes[0].containers if hasattr(bars, "patches")]
    assert heights[0] == pytest.approx(100 * panel.accuracy.mean)
    assert heights[1] == pytest.approx(100 * panel.residual.mean)


def test_curves_are_the_data_with_a_band_for_several_seeds() -> None:
    (axes,) = drawing.draw("end-of-training", GROUPS).axes
    panels = figures.end_of_training(GROUPS)
    for line, panel in zip(axes.lines, panels, strict=True):
        assert line.get_ydata() == pytest.approx(100 * panel.share.mean)
    assert len(axes.collections) == 1
    assert len({(line.get_color(), str(line.get_linestyle())) for line in axes.lines}) == 2


def test_heat_map_cells_are_the_data() -> None:
    axes = drawing.draw("life-expectancy", GROUPS[1:]).axes[0]
    cells = np.ma.filled(axes.images[0].get_array(), 0)
    assert cells == pytest.approx(100 * figures.life_expectancy(GROUPS[1:])[0].by_age / 6)


@pytest.mark.parametrize("name", list(drawing.DRAWINGS))
def test_every_figure_has_labelled_axes(name: str) -> None:
    figure = drawing.draw(name, GROUPS)
    labels = [text for axes in figure.axes for text in (axes.get_xlabel(), axes.get_ylabel())]
    assert sum(bool(text) for text in labels) >= 2
    assert name in figures.FIGURES


def test_every_format_is_written_and_is_the_same_again(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        drawing.save_all(GROUPS, tmp_path / folder, ["contributing-set"], ["png", "svg", "pdf"])
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    for suffix, start in starts.items():
        content = (tmp_path / "one" / f"contributing-set.{suffix}").read_bytes()
        assert content.startswith(start)
        assert content == (tmp_path / "two" / f"contributing-set.{suffix}").read_bytes()


def test_names_stay_text(tmp_path: Path) -> None:
    drawing.save_all(GROUPS, tmp_path, ["forgetting"], ["svg"])
    assert re.search(r"<text [^>]*>\$ours\$ &lt;b&gt;</text>", (tmp_path / "forgetting.svg").read_text())


def test_an_unknown_figure_is_refused() -> None:
    with pytest.raises(ValueError, match="figure 'pie' is unknown; known are forgetting, marginal-coverage"):
        drawing.draw("pie", GROUPS)


@pytest.mark.parametrize("pair", [(drawing.YELLOW, drawing.BLUE), (drawing.SERIES[0], drawing.SERIES[1])])
def test_colours_are_apart_in_grey(pair: tuple[str, str]) -> None:
    def lightness(colour: str) -> float:
        red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return 0.299 * red + 0.587 * green + 0.114 * blue

    assert abs(lightness(pair[0]) - lightness(pair[1])) > 0.1


@pytest.mark.parametrize("name", list(drawing.DRAWINGS))
@pytest.mark.parametrize("correct", [HAND[:1], HAND & False], ids=["one epoch", "never right"])
def test_the_least_there_can_be_is_drawn(name: str, correct: np.ndarray) -> None:
    figure = drawing.draw(name, [Group("least", (hand_run(correct=correct),))])
    figure.draw_without_rendering()
    assert figure.axes
