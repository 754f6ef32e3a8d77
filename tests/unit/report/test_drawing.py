"""matplotlib figures: bars, curves, whiskers and cells equal the data, axes are labelled, files are reproducible."""

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
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

GROUPS = [Group("plain", (hand_run("a"), hand_run("b", HAND[::-1].copy()))), Group("$ours$ <b>", (hand_run("c"),))]


def test_bars_are_as_tall_as_the_data() -> None:
    figure = drawing.draw("forgetting", GROUPS)
    (panel, _) = figures.forgetting(GROUPS)
    heights = [[bar.get_height() for bar in bars] for bars in figure.axes[0].containers[:2]]
    assert heights == [pytest.approx(100 * panel.accuracy.mean), pytest.approx(100 * panel.residual.mean)]


def ends(axes: Axes) -> list[list[tuple[float, float, float]]]:
    """Epoch, lower and upper end of the whiskers, for each curve that has any."""
    drawn = [[(path[0][0], path[0][1], path[1][1]) for path in lines.get_segments()] for lines in axes.collections]
    return [sorted(own) for own in drawn]


def test_bars_of_several_seeds_have_whiskers() -> None:
    several, alone = drawing.draw("forgetting", GROUPS).axes
    (panel, _) = figures.forgetting(GROUPS)
    for drawn, band in zip(ends(several), (panel.accuracy, panel.residual), strict=True):
        expected = [(k + 1, 100 * band.low[k], 100 * band.high[k]) for k in range(4)]
        assert drawn == [pytest.approx(one) for one in expected]
    assert not alone.collections


def test_curves_are_the_data_with_whiskers_for_several_seeds() -> None:
    (axes,) = drawing.draw("contributing-set", GROUPS).axes
    panels = figures.contributing_set(GROUPS)
    curves = [line for line in axes.lines if len(line.get_xdata()) == 4 and line.get_linestyle() != "None"]
    for line, panel in zip(curves, panels, strict=True):
        assert line.get_ydata() == pytest.approx(panel.anchors.mean)
    (drawn,) = ends(axes)
    expected = [(k + 1, panels[0].anchors.low[k], panels[0].anchors.high[k]) for k in range(4)]
    assert drawn == [pytest.approx(one) for one in expected]


def test_whiskers_of_a_long_run_are_few_and_include_the_last_epoch() -> None:
    right = np.random.default_rng(0).random((200, 20)) < 0.5
    group = Group("long", (hand_run("a", right), hand_run("b", right[::-1].copy())))
    (axes,) = drawing.draw("accuracy", [group]).axes
    (drawn,) = ends(axes)
    assert 8 <= len(drawn) <= 12
    assert drawn[-1][0] == 200


def test_every_curve_is_named_at_its_end_and_restarts_are_marked() -> None:
    run = hand_run("a")
    for line, rate in zip(run.record.lines, (0.1, 0.01, 0.1, 0.01), strict=True):
        line["lr"] = rate
    (axes,) = drawing.draw("accuracy", [Group("ours", (run,)), GROUPS[1]]).axes
    assert {text.get_text().strip() for text in axes.texts} == {
        "ours 66.7",
        "$ours$ <b> 66.7",
        "learning rate restarts",
    }
    places = sorted(text.xyann[1] for text in axes.texts if hasattr(text, "xyann"))
    assert places[1] - places[0] > 3, "labels of equal values do not overlap"
    assert [line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 2] == [2.5]


def test_plain_training_is_grey_and_first_and_names_are_written_out() -> None:
    def group(method: str) -> Group:
        return Group(method, (hand_run(method, config={"method": method}),))

    several = drawing.draw("forgetting", [group("sat"), group("vista-light"), group("vista"), group("ce")])
    titles = [axes.get_title(loc="left") for axes in several.axes]
    assert titles == ["cross-entropy", "VISTA", "VISTA Light", "SAT"]
    colours = [to_hex(axes.patches[0].get_facecolor()) for axes in several.axes]
    assert colours == list(style.SERIES[:4])
    alone = drawing.draw("forgetting", [group("vista")]).axes[0]
    assert to_hex(alone.patches[0].get_facecolor()) == style.SERIES[1], "grey is the baseline's"


def test_cells_of_the_timeline_are_the_weights() -> None:
    axes = drawing.draw("timeline", GROUPS[1:]).axes[0]
    assert np.ma.filled(axes.images[0].get_array(), 0) == pytest.approx(figures.timeline(GROUPS[1:])[0].weights)


@pytest.mark.parametrize("name", ["accuracy", "contributing-set"])
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


@pytest.mark.parametrize("name", ["forgetting", "contributing-set", "test-vs-validation"])
def test_the_legend_explains_whiskers(name: str) -> None:
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
    (axes,) = drawing.draw("contributing-set", [Group("light", (light,)), *GROUPS[1:]]).axes
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["light: at most 1, 600 B, τ = 0.2", "$ours$ <b>: at most 2"]


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
    with pytest.raises(ValueError, match=r"figure must be one of accuracy, forgetting, .*, got 'pie'"):
        drawing.draw("pie", GROUPS)


@pytest.mark.parametrize("pair", [style.SERIES[:2], style.SERIES[1:3]])
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


@pytest.mark.parametrize("name", ["accuracy", "contributing-set"])
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
    (axes,) = drawing.draw("contributing-set", MANY).axes
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
