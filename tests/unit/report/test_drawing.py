"""matplotlib figures: bars, curves and cells equal the data, axes are labelled, files are reproducible."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from made_runs import BASIC, HAND, hand_run, record_of

from vista.analysis.groups import Group
from vista.analysis.runs import Run
from vista.report import drawing, figures, style

pytest.importorskip("matplotlib", reason="figures need matplotlib")
from matplotlib.collections import PolyCollection

GROUPS = [Group("plain", (hand_run("a"), hand_run("b", HAND[::-1].copy()))), Group("$ours$ <b>", (hand_run("c"),))]


def test_bars_are_as_tall_as_the_data() -> None:
    figure = drawing.draw("forgetting", GROUPS)
    (panel, _) = figures.forgetting(GROUPS)
    heights = [[bar.get_height() for bar in bars] for bars in figure.axes[0].containers]
    assert heights == [pytest.approx(100 * panel.accuracy.mean), pytest.approx(100 * panel.residual.mean)]


def edges(band: PolyCollection, at: float) -> tuple[float, float]:
    """Lowest and highest point of a filled area at an x value."""
    (path,) = band.get_paths()
    inside = [y for x, y in path.vertices if abs(x - at) < 1e-9]
    return min(inside), max(inside)


def test_bars_of_several_seeds_have_a_band_with_a_step_per_epoch() -> None:
    several, alone = drawing.draw("forgetting", GROUPS).axes
    (panel, _) = figures.forgetting(GROUPS)
    assert len(several.collections) == 2
    for drawn, band in zip(several.collections, (panel.accuracy, panel.residual), strict=True):
        assert band.se is not None
        # A step ends where the next one starts, so an edge has the points of both epochs.
        assert edges(drawn, 0.5) == pytest.approx((100 * band.low[0], 100 * band.high[0]))
        assert edges(drawn, 4.5) == pytest.approx((100 * band.low[3], 100 * band.high[3]))
        assert edges(drawn, 2.5) == pytest.approx((100 * band.low[1:3].min(), 100 * band.high[1:3].max()))
    assert not alone.collections


def test_curves_are_the_data_with_a_band_for_several_seeds() -> None:
    (axes,) = drawing.draw("end-of-training", GROUPS).axes
    panels = figures.end_of_training(GROUPS)
    for line, panel in zip(axes.lines, panels, strict=True):
        assert line.get_ydata() == pytest.approx(100 * panel.share.mean)
    (drawn,) = axes.collections
    for epoch in range(4):
        expected = 100 * panels[0].share.low[epoch], 100 * panels[0].share.high[epoch]
        assert edges(drawn, epoch + 1) == pytest.approx(expected)
    assert len({(line.get_color(), str(line.get_linestyle())) for line in axes.lines}) == 2


@pytest.mark.parametrize("name", ["end-of-training", "contributing-set", "life-expectancy"])
def test_the_longest_run_sets_the_x_axis(name: str) -> None:
    short = Group("short", (hand_run("short", HAND[:2]),))
    for groups in ([GROUPS[0], short], [short, GROUPS[0]]):
        axes = drawing.draw(name, groups).axes
        assert {tuple(ax.get_xlim()) for ax in axes if ax.get_label() != "<colorbar>"} == {(0.5, 4.5)}


def test_the_legend_includes_curves_of_later_panels() -> None:
    tested = Run("tested", Path("tested"), record_of(val_given=HAND, test=HAND))
    figure = drawing.draw("test-vs-validation", [GROUPS[1], Group("tested", (tested,))])
    named = {text.get_text() for legend in figure.legends for text in legend.get_texts()}
    assert {"test", "validation, given labels"} <= named


@pytest.mark.parametrize("name", [name for name in drawing.DRAWINGS if name != "marginal-coverage"])
def test_the_legend_explains_bands(name: str) -> None:
    def legends(groups: list[Group]) -> list[str]:
        figure = drawing.draw(name, groups)
        found = [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]
        return [text.get_text() for legend in found for text in legend.get_texts()]

    assert "mean ± standard error, 2 seeds" in legends(GROUPS)
    assert not [text for text in legends(GROUPS[1:]) if "±" in text]
    more = Group("more", tuple(hand_run(name) for name in "xyz"))
    assert "mean ± standard error, 2 to 3 seeds" in legends([*GROUPS, more])


def test_anchors_of_several_seeds_name_their_run() -> None:
    several, _, alone, _ = drawing.draw("marginal-coverage", GROUPS).axes
    assert [axes.get_title(loc="left") for axes in (several, alone)] == ["plain", "$ours$ <b>"]
    assert [text.get_text() for text in several.texts] == ["one of 2 seeds: a"]
    assert not alone.texts


def test_the_contributing_set_shows_maximum_bytes_and_tolerance() -> None:
    light = hand_run(samples=100, classes=("a", "b", "c"), config={"options": {**BASIC, "tau": 0.2}})
    light.record.lines[0]["anchors"] = 1
    (axes,) = drawing.draw("contributing-set", [Group("light", (light,)), *GROUPS[1:]]).axes
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["light: at most 1, 600 B, τ = 0.2", "$ours$ <b>: at most 2, replayed as VISTA Basic"]


def test_heat_map_cells_are_means_and_lifespans_a_line_with_a_band() -> None:
    several, alone, _ = drawing.draw("life-expectancy", GROUPS).axes
    for axes, panel in zip((several, alone), figures.life_expectancy(GROUPS), strict=True):
        cells = np.ma.filled(axes.images[0].get_array(), 0)
        assert cells == pytest.approx(100 * panel.by_age / (6 * panel.seeds))
    (line,), (band,) = several.lines, several.collections
    spans = figures.life_expectancy(GROUPS)[0].lifespans
    assert line.get_ydata() == pytest.approx(spans.mean)
    assert edges(band, 2) == pytest.approx((spans.low[1], spans.high[1]))
    assert not alone.lines


def test_the_heat_map_is_tall_enough_for_every_seed() -> None:
    """In each seed a different state remains to the end, so that the mean lifespans are shorter."""
    seeds = []
    for seed in range(4):
        correct = np.zeros((10, 6), bool)
        correct[:, 0] = correct[seed, 5] = True
        seeds.append(hand_run(str(seed), correct))
    groups = [Group("ours", tuple(seeds))]
    axes = drawing.draw("life-expectancy", groups).axes[0]
    (panel,) = figures.life_expectancy(groups)
    longest = int(np.flatnonzero(panel.by_age.any(axis=1)).max()) + 1
    assert panel.lifespans.high.max() < longest
    assert axes.get_ylim()[1] >= longest


@pytest.mark.parametrize("name", list(drawing.DRAWINGS))
def test_every_figure_has_labelled_axes(name: str) -> None:
    figure = drawing.draw(name, GROUPS)
    labels = [text for axes in figure.axes for text in (axes.get_xlabel(), axes.get_ylabel())]
    assert sum(bool(text) for text in labels) >= 2
    assert name in figures.FIGURES


def test_every_format_is_written_reproducibly(tmp_path: Path) -> None:
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


def test_an_unknown_figure_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"figure must be one of forgetting, marginal-coverage, .*, got 'pie'"):
        drawing.draw("pie", GROUPS)


@pytest.mark.parametrize("pair", [(style.LIGHT["yellow"], style.LIGHT["blue"]), style.SERIES[:2]])
def test_colours_differ_in_grey(pair: tuple[str, str]) -> None:
    def lightness(colour: str) -> float:
        red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return 0.299 * red + 0.587 * green + 0.114 * blue

    assert abs(lightness(pair[0]) - lightness(pair[1])) > 0.1


MANY = [Group(f"group {k}", (hand_run(f"run {k}", np.roll(HAND, k, axis=1)),)) for k in range(32)]
LONG = [Group("a name that would cover the curves " * 4, (hand_run("a"),)), *GROUPS]


@pytest.mark.parametrize("name", list(drawing.DRAWINGS))
def test_many_panels_are_wrapped_into_rows(name: str) -> None:
    for groups in (MANY, MANY[:5]):
        figure = drawing.draw(name, groups)
        assert max(figure.get_size_inches()) < 40
        figure.draw_without_rendering()
        titles = [title for axes in figure.axes if (title := axes.get_title(loc="left")).startswith("group")]
        assert titles in ([], [group.name for group in groups])
        for row in {axes.get_subplotspec().rowspan.start for axes in figure.axes if axes.get_subplotspec()}:
            first = next(axes for axes in figure.axes if axes.get_subplotspec().rowspan.start == row)
            assert first.get_ylabel() or first.get_yticklabels()[0].get_text().startswith("epoch")


@pytest.mark.parametrize("name", ["end-of-training", "contributing-set"])
@pytest.mark.parametrize("groups", [MANY, LONG], ids=["many", "long"])
def test_a_long_legend_is_placed_below_the_axes(name: str, groups: list[Group]) -> None:
    figure = drawing.draw(name, groups)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box, (axes,) = legend.get_window_extent(), figure.axes
    assert axes.get_legend() is None
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width
    assert 0 <= box.y0 < box.y1 <= axes.get_tightbbox().y0 + 1
    assert axes.get_window_extent().height > 0.6 * drawing.draw(name, GROUPS).axes[0].figure.bbox.height


def test_many_lines_are_distinguishable() -> None:
    (axes,) = drawing.draw("end-of-training", MANY).axes
    looks = {(line.get_color(), str(line.get_marker())) for line in axes.lines}
    assert len(looks) == len(MANY)
    assert len({style.line_style(series) for series in range(216)}) == 216


def test_names_that_are_not_utf8_are_escaped(tmp_path: Path) -> None:
    groups = [Group("odd\udcff", (hand_run("a\udcff"), hand_run("b")))]
    drawing.save_all(groups, tmp_path, list(drawing.DRAWINGS), ["svg"])
    assert r"odd\udcff" in (tmp_path / "forgetting.svg").read_text()
    assert r"a\udcff" in (tmp_path / "marginal-coverage.svg").read_text()


@pytest.mark.parametrize("name", list(drawing.DRAWINGS))
@pytest.mark.parametrize("correct", [HAND[:1], HAND & False], ids=["one epoch", "never right"])
def test_minimal_runs_are_drawn(name: str, correct: np.ndarray) -> None:
    figure = drawing.draw(name, [Group("least", (hand_run(correct=correct),))])
    figure.draw_without_rendering()
    assert figure.axes
