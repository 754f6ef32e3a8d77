"""The page in a real browser: result, figures, filters, matrix, paths, updates, keyboard, themes, and no requests."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import HAND, hand_run, record_of, write_images, write_run

from vista.analysis import read_runs, suspects
from vista.analysis.runs import Run
from vista.report.page import write_page
from vista.runs.folder import RunFolder
from vista.runs.predictions import Predictions
from vista.runs.record import Record

SHIFTED = np.roll(HAND, 1, axis=1) | np.array([[False], [False], [False], [True]])  # all right at the end
EVIL = "<script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">"
FIGURES = (
    "accuracy",
    "paths",
    "forgetting",
    "forgotten-classes",
    "test-vs-validation",
    "timeline",
    "marginal-coverage",
    "contributing-set",
)
# 15 validation samples: six as in the hand-worked example, the others right from the third epoch on.
CORRECT = np.concatenate([HAND, np.tile([[False], [False], [True], [True]], (1, 9))], axis=1)


@dataclass
class Opened:
    """An open page with its console messages, errors and requests."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def readout(self, figure: str, place: int = 0) -> list[str]:
        """The values below a figure; none while nothing is selected."""
        values = self.page.locator(f'[data-figure="{figure}"] + .readout').nth(place)
        if "rest" in values.get_attribute("class"):
            return []
        return [" ".join(text.split()) for text in values.locator("> span").all_inner_texts()]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plain training and VISTA, two seeds each; one class name contains markup."""
    folder = tmp_path_factory.mktemp("report")
    data = write_images(folder / "images.npz", samples=300)
    classes = [EVIL, "a class with quite a long name", "c"]
    for method in ("ce", "vista"):
        for seed in (0, 1):
            write_run(folder / f"{method}{seed}", method=method, seed=seed, data=data, classes=classes, samples=300,
                      teacher=method == "vista", correct=CORRECT)  # fmt: skip
    write_page(read_runs([folder]), folder / "page.html")
    return folder / "page.html"


@pytest.fixture
def visit(browser: Any, report: Path, patience: float) -> Iterator[Callable[..., Opened]]:
    contexts = []

    def open_page(width: int = 1200, page: Path = report, **options: Any) -> Opened:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        context.set_default_timeout(patience)
        opened = Opened(context.new_page())
        opened.page.on("console", lambda message: opened.complaints.append(message.text))
        opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        opened.page.goto(page.as_uri())
        opened.page.wait_for_selector("html[data-ready]")
        return opened

    yield open_page
    for context in contexts:
        context.close()


def test_headline_and_tiles_equal_the_record(visit: Callable[..., Opened], report: Path) -> None:
    def mean(method: str, *path: str) -> float:
        found = []
        for seed in (0, 1):
            value = json.loads((report.parent / f"{method}{seed}" / "metrics.json").read_text())
            for key in path:
                value = value[key]
            found.append(100 * value)
        return float(np.mean(found))

    page = visit().page
    ours, plain = (mean(method, "last", "test", "top1") for method in ("vista", "ce"))
    said = page.inner_text("h1")
    assert said.startswith("With 40 % wrong labels, VISTA ends ")
    assert said.endswith("level with cross-entropy")  # both are made from the same bits
    assert f"VISTA {ours:.2f}" in page.inner_text("#detail").replace("\xa0", " ")
    assert f"cross-entropy {plain:.2f}" in page.inner_text("#detail").replace("\xa0", " ")
    tiles = page.locator(".tile b").all_inner_texts()
    estimated = suspects.of_run(RunFolder(report.parent / "vista0")).estimated
    gap = mean("vista", "deviation_gap", "val_true")
    assert tiles == [f"{ours:.1f} %", f"{ours - plain:+.1f}", f"≈ {estimated}", f"{gap:.1f} %"]
    assert page.locator(".nine").count() == 9
    ends = page.locator('[data-figure="accuracy"] text.label').evaluate_all("all => all.map(t => t.firstChild.data)")
    assert ends == [f"cross-entropy {plain:.1f}", f"VISTA {ours:.1f}"]


def test_the_first_screen_shows_the_result(visit: Callable[..., Opened]) -> None:
    page = visit().page
    for place in ("h1", ".tiles", '[data-figure="accuracy"]', ".nines"):
        box = page.locator(place).bounding_box()
        assert box["y"] + box["height"] <= 900, place
    page.evaluate("scrollTo(0, 3000)")
    assert page.locator("#contents").bounding_box()["y"] == 0, "the navigation stays in view"
    page.locator("#contents a", has_text="Forgotten classes").click()
    page.wait_for_function("document.querySelector('#contents a[aria-current]')?.hash === '#forgotten-classes'")


def test_every_method_has_its_colour_and_order_everywhere(visit: Callable[..., Opened]) -> None:
    page = visit().page
    paint = "all => all.map(one => getComputedStyle(one).backgroundColor)"
    for place in ("#comparison .swatch", "#forgetting h3 .swatch", '[data-figure="accuracy"] + .readout .swatch'):
        grey, blue = page.locator(place).evaluate_all(paint)
        assert (grey, blue) == ("rgb(123, 132, 144)", "rgb(31, 90, 158)"), place
    curves = page.locator('[data-figure="accuracy"] .curve').evaluate_all(
        "all => all.map(one => one.getAttribute('stroke'))"
    )
    assert curves == ["var(--s0)", "var(--s1)"]


def test_values_are_below_the_figures_and_move_together(visit: Callable[..., Opened]) -> None:
    opened = visit()
    chart = opened.page.locator('[data-figure="forgetting"]').first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    chart.hover(position={"x": 44 + (box["width"] - 52) * 1.5 / 4, "y": 120})
    # Epoch 2: 4 of 15 are right, 3 of these at the end; both seeds alike.
    expected = ["epoch 2", "right 26.67 % ± 0.00", "still right at the end 20.00 % ± 0.00", "gap 6.67 % ± 0.00"]
    assert opened.readout("forgetting") == expected
    assert opened.readout("forgetting", 1) == expected
    for name in ("accuracy", "test-vs-validation", "contributing-set", "paths"):
        assert opened.readout(name)[0] == "epoch 2", name
    values = opened.page.locator('[data-figure="forgetting"] + .readout').first.bounding_box()
    assert values["y"] >= box["y"] + box["height"], "they cover no data"
    opened.page.mouse.move(2, 2)
    assert opened.readout("forgetting") == opened.readout("accuracy") == []
    classes = opened.page.locator('[data-figure="forgotten-classes"]')
    classes.first.scroll_into_view_if_needed()
    classes.first.hover(position={"x": 100, "y": 30})
    second = classes.first.locator(".name title").nth(1).text_content()
    assert opened.readout("forgotten-classes")[0] == opened.readout("forgotten-classes", 1)[0] == second


def test_several_seeds_are_drawn_with_whiskers(visit: Callable[..., Opened], tmp_path: Path) -> None:
    known = {"classes": ("x", "y"), "val_labels": np.array([1, 1, 1, 0, 0, 0])}
    seeds = [
        hand_run(f"seed{seed}", correct, config={"method": "ours", "seed": seed}, **known)
        for seed, correct in enumerate((HAND, SHIFTED))
    ]
    write_page([*seeds, hand_run("alone")], tmp_path / "bands.html")
    opened = visit(page=tmp_path / "bands.html")
    for name in ("forgetting", "contributing-set", "test-vs-validation"):
        assert "mean ± standard error, 2 seeds" in opened.page.inner_text(f"#{name} .legend"), name
    ours, alone = opened.page.locator('[data-figure="forgetting"]').all()
    assert (ours.locator(".whisker").count(), alone.locator(".whisker").count()) == (2, 0)
    assert "mean deviation gap 4.17 ± 4.17 %" in opened.page.inner_text("#forgetting")
    # Accuracies are 2, 4, 3 and 5 of 6, the last one +- 1: whiskers reach from 2 to 6, the bars from 0 to 5.
    # Residuals are 1.5 +- 0.5 to 5 +- 1: from 1 to 6, the bars again from 0 to 5.
    for k, ratio in enumerate((4 / 5, 5 / 5)):
        height = "element => element.getBBox().height"
        whisker, bars = (ours.locator(what).nth(k).evaluate(height) for what in (".whisker", "path"))
        assert whisker / bars == pytest.approx(ratio, abs=0.01)
    ours.scroll_into_view_if_needed()
    ours.hover(position={"x": ours.bounding_box()["width"] - 20, "y": 120})
    assert "right 83.33 % ± 16.67" in opened.readout("forgetting")
    assert "16.7 % ± 16.7" in opened.page.inner_text("#forgotten-classes")
    assert opened.complaints == []


def test_labels_at_the_ends_of_curves_do_not_overlap(visit: Callable[..., Opened], tmp_path: Path) -> None:
    write_page([hand_run(f"method{k}") for k in range(12)], tmp_path / "many.html")
    for width in (390, 1200):
        page = visit(page=tmp_path / "many.html", width=width).page
        chart = page.locator('[data-figure="accuracy"]').bounding_box()
        boxes = sorted((text.bounding_box() for text in page.locator("text.label").all()), key=lambda box: box["y"])
        assert len(boxes) == 12
        assert all(above["y"] + above["height"] <= below["y"] + 1 for above, below in itertools.pairwise(boxes))
        assert all(box["x"] + box["width"] <= chart["x"] + chart["width"] for box in boxes)


def test_restarts_of_the_learning_rate_are_marked(visit: Callable[..., Opened], tmp_path: Path) -> None:
    run = hand_run("run")
    for line, rate in zip(run.record.lines, (0.1, 0.01, 0.1, 0.01), strict=True):
        line["lr"] = rate
    write_page([run], tmp_path / "page.html")
    chart = visit(page=tmp_path / "page.html").page.locator('[data-figure="accuracy"]')
    assert chart.locator("line.restart").count() == 1
    assert "learning rate restarts" in chart.text_content()


def test_cells_of_a_heat_map_match_the_data(visit: Callable[..., Opened], tmp_path: Path) -> None:
    write_page([hand_run("hand")], tmp_path / "hand.html")
    canvas = visit(page=tmp_path / "hand.html", color_scheme="light").page.locator("#timeline canvas")
    cells = canvas.evaluate("""canvas => Array.from({ length: 16 }, (_, k) => {
        const [x, y] = [(k % 4 + 0.5) / 4 * canvas.width, (Math.floor(k / 4) + 0.5) / 4 * canvas.height];
        return Array.from(canvas.getContext("2d").getImageData(Math.floor(x), Math.floor(y), 1, 1).data);
    })""")
    colours = np.array(cells).reshape(4, 4, 4)[::-1]  # rows from the bottom: teachers after epochs 1 to 4
    expected = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0.8, 0.2, 0], [0, 0.8, 0, 0.2]])
    assert ((colours[..., 3] > 0) == (expected > 0)).all()
    light = colours[..., :3].mean(axis=2)
    assert light[2, 2] == light[3, 3] > light[2, 1] == light[3, 1] > light[1, 1] == light[0, 0]


def test_every_section_and_figure_is_visible_without_errors(visit: Callable[..., Opened]) -> None:
    opened = visit()
    for name in ("comparison", *FIGURES, "suspects", "runs"):
        assert opened.page.locator(f"section#{name}").is_visible(), name
        if name != "accuracy":  # the headline says what it shows
            assert opened.page.locator(f"section#{name} .how").first.inner_text(), name
    charts = opened.page.locator(".chart")
    assert charts.count() >= 11
    for k in range(charts.count()):
        box = charts.nth(k).bounding_box()
        assert box["width"] > 200
        assert box["height"] > 40
        assert charts.nth(k).locator("svg").count() == 1
    assert opened.complaints == []


@pytest.mark.parametrize("method", ["ce", "label-smoothing"])
def test_plain_methods_have_only_sections_that_apply(visit: Callable[..., Opened], tmp_path: Path, method: str) -> None:
    write_run(tmp_path / "run", method=method)
    write_page(read_runs([tmp_path / "run"]), tmp_path / "page.html")
    opened = visit(page=tmp_path / "page.html")
    page = opened.page
    for name in ("timeline", "marginal-coverage", "contributing-set"):
        assert page.locator(f"#{name}, [data-figure='{name}'], a[href='#{name}']").count() == 0, name
    said = page.inner_text("body").lower()
    assert not [word for word in ("anchor", "teacher", "lifespan", "coverage", "vista basic") if word in said]
    links = page.locator("#contents a").evaluate_all("all => all.map(link => link.hash.slice(1))")
    assert links == page.locator("main > section").evaluate_all("all => all.map(own => own.id)")
    for section in page.locator("main > section").all():
        assert section.locator("svg, table, .how").count() > 0
    assert opened.complaints == []


def test_anchors_are_those_of_methods_that_keep_them(visit: Callable[..., Opened]) -> None:
    page = visit().page
    for name in ("timeline", "marginal-coverage"):
        assert page.locator(f"#{name} h3").all_inner_texts()[0].startswith("VISTA"), name
        assert page.locator(f"#{name} .panel").count() == 1, name
    assert page.locator("#contributing-set .chart .curve").count() == 1


def test_no_request_leaves_the_page(visit: Callable[..., Opened], report: Path) -> None:
    opened = visit()
    opened.page.evaluate("fetch('https://example.org/x').catch(() => null)")  # blocked by its policy
    asked = [url for url in opened.requests if not url.startswith("data:")]
    assert asked == [report.as_uri()]


@pytest.mark.parametrize("name", FIGURES)
def test_arrow_keys_walk_through_every_figure(visit: Callable[..., Opened], name: str) -> None:
    opened = visit()
    chart = opened.page.locator(f'[data-figure="{name}"]').first
    assert chart.get_attribute("role") == "group"
    assert chart.get_attribute("aria-label").endswith("arrow keys show its values")

    def after(key: str) -> str:
        opened.page.keyboard.press(key)
        return opened.readout(name)[0]

    chart.focus()
    first = after("ArrowRight")
    second = after("ArrowRight")
    assert first != second
    if name not in ("marginal-coverage", "forgotten-classes"):  # there the rows are ranked
        assert "epoch 1" in first
        assert "epoch 2" in second
    assert after("ArrowLeft") == first == after("ArrowLeft") == after("Home")  # it stops at the end
    assert after("End") == after("ArrowRight")
    assert opened.page.locator(f'[data-figure="{name}"] + .readout').first.get_attribute("aria-live") == "polite"
    opened.page.keyboard.press("Escape")
    assert opened.readout(name) == []
    assert opened.complaints == []


def test_arrow_keys_reach_every_cell_of_a_heat_map(visit: Callable[..., Opened]) -> None:
    opened = visit()
    chart = opened.page.locator('[data-figure="timeline"]').first
    chart.focus()
    readouts = []
    for key in ("ArrowRight", "ArrowRight", "ArrowUp", "ArrowDown", "ArrowDown"):
        opened.page.keyboard.press(key)
        readouts.append(opened.readout("timeline"))
    # A state is in no teacher before its own epoch, so there is nothing below that cell.
    expected = [(1, 1), (2, 2), (2, 3), (2, 2), (2, 2)]
    assert [line[0].split()[-1] for line in readouts] == [str(state) for state, _ in expected]
    assert [line[1].split(":")[0].split()[-1] for line in readouts] == [str(teacher) for _, teacher in expected]
    assert chart.locator(".cell").is_visible()
    opened.page.keyboard.press("Escape")
    assert chart.locator(".cell").is_hidden()


def test_a_run_of_one_epoch_answers_the_arrow_keys(visit: Callable[..., Opened], tmp_path: Path) -> None:
    write_page([hand_run("one", HAND[:1])], tmp_path / "one.html")
    for key in ("ArrowRight", "ArrowLeft"):
        opened = visit(page=tmp_path / "one.html")
        opened.page.locator('[data-figure="forgetting"]').focus()
        opened.page.keyboard.press(key)
        assert opened.readout("forgetting")[0] == "epoch 1"


@pytest.mark.parametrize("labels", ["given", "true"])
def test_the_page_names_the_labels_it_uses(visit: Callable[..., Opened], tmp_path: Path, labels: str) -> None:
    known = {"val_true": HAND} if labels == "true" else {}
    own = np.array([1, 1, 1, 0, 0, 0])
    record = record_of(val_given=HAND, **known)
    run = Run("run", Path("run"), record, classes=("x", "y"), val_labels=own, val_true=own)
    write_page([run], tmp_path / "page.html")
    page = visit(page=tmp_path / "page.html").page
    assert f"validation samples (%), {labels} labels" in page.locator("#forgetting .chart").inner_text()
    assert f"by {labels} labels" in page.inner_text("#forgotten-classes h3")
    assert f"mean deviation gap (%), {labels} labels" in page.locator("#comparison th").all_inner_texts()


@pytest.mark.parametrize("width", [320, 390, 1440])
def test_names_and_values_of_forgotten_classes_stay_inside_the_figure(
    visit: Callable[..., Opened], tmp_path: Path, width: int
) -> None:
    names = ("W" * 30, "\u68ee" * 30, "i" * 30, "elm")
    lost = np.array([[True] * 6, [False] * 5 + [True]])
    known = {"classes": names, "val_labels": np.array([0, 0, 1, 1, 2, 3])}
    seeds = [hand_run(f"seed{k}", lost, config={"method": "ours", "seed": k}, **known) for k in range(2)]
    write_page([*seeds, hand_run("alone", lost, **known)], tmp_path / "page.html")
    page = visit(width=width, page=tmp_path / "page.html").page
    for chart in page.locator('[data-figure="forgotten-classes"]').all():
        box = chart.bounding_box()
        for text in chart.locator("text").all():
            own = text.bounding_box()
            assert box["x"] <= own["x"], text.text_content()
            assert own["x"] + own["width"] <= box["x"] + box["width"], text.text_content()
        assert chart.locator(".name title").all_text_contents() == list(names)
        shown = chart.locator(".name").evaluate_all("texts => texts.map(text => text.firstChild.data)")
        assert shown[0].startswith("WWW")
        assert shown[0].endswith("\u2026")
        assert shown[3] == "elm"
    first = page.locator('[data-figure="forgotten-classes"]').first
    values = first.locator(".value").all_text_contents()
    assert values[0] == "100.0 % ± 0.0"


def test_runs_without_a_correct_sample_are_drawn(visit: Callable[..., Opened], tmp_path: Path) -> None:
    never = hand_run("never", HAND & False)
    for runs in ([never], [never, hand_run("hand")]):
        write_page(runs, tmp_path / "never.html")
        opened = visit(page=tmp_path / "never.html")
        assert opened.page.locator("#forgetting .empty").all_text_contents() == ["no validation sample was ever right"]
        assert opened.page.locator("#timeline .empty").all_text_contents() == ["no state became an anchor"]
        assert "No state is an anchor at the end." in opened.page.inner_text("#marginal-coverage")
        assert not [word for word in ("NaN", "Infinity") if word in opened.page.content().split("<script")[0]]
        for chart in opened.page.locator(".chart").all():
            chart.focus()
            opened.page.keyboard.press("ArrowRight")
        assert opened.complaints == []


def test_many_groups_are_distinguishable(visit: Callable[..., Opened], tmp_path: Path) -> None:
    write_page([hand_run(f"group{k}", np.roll(HAND, k, axis=1)) for k in range(40)], tmp_path / "many.html")
    page = visit(page=tmp_path / "many.html").page
    look = """samples => samples.map(sample => Array.from(sample.children, mark =>
        ["stroke", "fill", "stroke-dasharray", "d"].map(name => mark.getAttribute(name))).join())"""
    legend = page.locator("#contributing-set .legend svg").evaluate_all(look)
    assert len(set(legend)) == len(legend) == 40
    assert page.locator("#contributing-set .chart path[fill=none]").count() == 40
    # The first six need no marker; the seventh round has none again, but other dashes.
    assert page.locator("#contributing-set .chart .marker").count() == 30


def test_the_weighting_of_each_run_is_explained(visit: Callable[..., Opened], tmp_path: Path) -> None:
    options = {"plain": {}, "uniform": {"weights": "uniform"}, "chronological": {"order": "newest"}}
    runs = [hand_run(name, config={"method": name, "options": own}) for name, own in options.items()]
    write_page(runs, tmp_path / "page.html")
    page = visit(page=tmp_path / "page.html").page
    plain, uniform, chronological = page.locator("#marginal-coverage .panel").all_inner_texts()
    share = "The weight of a state is its share of all that is in colour."
    assert share in plain
    assert "+4 · 0.80" in plain
    assert share not in uniform
    assert "Every past state is in the teacher, with equal weights." in uniform
    assert "+4 · 0.25" in uniform
    assert f"The newest state is ranked first. {share}" in chronological
    assert "share" not in page.locator("#marginal-coverage > .how").inner_text()


def test_right_to_left_names_are_isolated(visit: Callable[..., Opened], tmp_path: Path) -> None:
    hebrew = ["\u05d0\u05d1\u05d2", "\u05d3\u05d4\u05d5", "\u05d6\u05d7\u05d8"]
    write_run(tmp_path / "run", method="vista", teacher=True, classes=hebrew)
    write_page([*read_runs([tmp_path / "run"]), hand_run(hebrew[0], CORRECT)], tmp_path / "page.html")
    page = visit(page=tmp_path / "page.html").page
    left = "element => element.getBoundingClientRect().left"
    for card in page.locator(".suspect").all()[:5]:
        assert card.locator("s").evaluate(left) < card.locator("b").evaluate(left)
    for place in (".suspect s", ".suspect b", "#comparison td:first-child", ".panel h3", "#runs summary"):
        assert page.locator(f"{place} > bdi").count() == page.locator(place).count() * (2 if "summary" in place else 1)
    assert hebrew[0] in page.locator('[data-figure="contributing-set"] + .readout bdi').all_inner_texts()


# Elements whose own text has a lower contrast than WCAG requires, with the contrast.
POOR = """() => {
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const light = (colour) => {
        const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((v) => linear(v / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const colour = getComputedStyle(at).backgroundColor;
            if (colour !== "rgba(0, 0, 0, 0)") return colour;
        }
    };
    const says = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    const found = {};
    for (const element of document.querySelectorAll("body *")) {
        if (!says(element) || !element.getClientRects().length) continue;
        const style = getComputedStyle(element);
        const [a, b] = [light(element.ownerSVGElement ? style.fill : style.color), light(ground(element))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) found[`${element.tagName} ${element.getAttribute("class")}`] = ratio;
    }
    return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_enough_contrast(visit: Callable[..., Opened], scheme: str) -> None:
    opened = visit(color_scheme=scheme)
    opened.page.evaluate("document.querySelector('.suspect').append(Object.assign(document.createElement('div'), "
                         "{ className: 'wrong', textContent: 'given is right' }))")  # fmt: skip
    poor = opened.page.evaluate(POOR)
    assert poor == {}


def test_filters_are_stored_per_page(visit: Callable[..., Opened], report: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "run", method="vista", teacher=True)
    other = tmp_path / "other.html"
    write_page(read_runs([tmp_path / "run"]), other)
    page = visit().page
    page.select_option("#filter-given", label="c")
    page.fill("#filter-score", "0.8")
    left = page.inner_text("#suspect-count")
    page.goto(other.as_uri())
    assert page.input_value("#filter-given") == ""
    assert page.locator(".suspect").count() > 0
    page.goto(report.as_uri())
    assert page.inner_text("#suspect-count") == left
    assert page.input_value("#filter-given") == "2"


def test_filters_that_no_longer_apply_are_dropped(visit: Callable[..., Opened], tmp_path: Path) -> None:
    write_run(tmp_path / "run", method="vista", teacher=True)
    write_run(tmp_path / "others", method="vista", teacher=True, classes=("oak", "elm", "ash"))
    write_page(read_runs([tmp_path / "run"]), tmp_path / "page.html")
    page = visit(page=tmp_path / "page.html").page
    everything = page.locator(".suspect").count()
    page.select_option("#filter-given", label="cow")
    page.fill("#filter-score", "1")
    assert page.locator(".suspect").count() == 0
    page.reload()
    assert page.locator(".suspect").count() == everything
    page.select_option("#filter-given", label="cow")
    write_page(read_runs([tmp_path / "others"]), tmp_path / "page.html")
    page.reload()
    assert page.input_value("#filter-given") == ""


def test_a_teacher_without_suspects_is_reported(visit: Callable[..., Opened], tmp_path: Path) -> None:
    write_run(tmp_path / "run", method="vista", teacher=True, noise="none")
    write_page(read_runs([tmp_path / "run"]), tmp_path / "page.html")
    opened = visit(page=tmp_path / "page.html")
    assert "none of 45 labels looks wrong" in opened.page.inner_text("#suspects")
    assert opened.page.locator("#filter-given").count() == 0
    assert opened.complaints == []


def test_filters_by_class_and_score(visit: Callable[..., Opened]) -> None:
    opened = visit()
    cards = opened.page.locator(".suspect")
    everything = shown(opened.page)
    assert cards.count() == min(60, everything)
    assert cards.first.locator("img").evaluate("image => image.complete && image.naturalWidth > 0")
    opened.page.select_option("#filter-given", label="c")
    fewer = shown(opened.page)
    assert 0 < fewer < everything
    assert set(opened.page.locator(".suspect s").all_inner_texts()) == {"c"}
    opened.page.fill("#filter-score", "1")
    assert opened.page.inner_text("#suspect-count") == f"0 of 0 that match shown, {everything} on the page"


def shown(page: Any) -> int:
    """How many samples the filters match, of which the first 60 are shown."""
    return int(page.inner_text("#suspect-count").split()[2])


def test_filters_by_rank(visit: Callable[..., Opened]) -> None:
    page = visit().page
    first = page.locator(".suspect").evaluate_all("all => all.slice(2, 5).map(card => card.dataset.id)")
    page.fill("#filter-from", "3")
    page.fill("#filter-to", "5")
    assert page.locator(".suspect").evaluate_all("all => all.map(card => card.dataset.id)") == first
    assert "rank 3" in page.locator(".suspect").first.inner_text()
    page.click("#filter-clear")
    assert page.locator(".suspect").count() > 3
    assert page.locator("#filter-clear").is_hidden()


def test_a_cell_of_the_matrix_shows_its_samples(visit: Callable[..., Opened]) -> None:
    page = visit().page
    everything, cells = shown(page), page.locator(".matrix button")
    assert sum(int(text) for text in cells.all_inner_texts()) == everything
    cell = cells.nth(1)
    given, suggested = cell.get_attribute("data-pair").split()
    cell.click()
    assert shown(page) == int(cell.inner_text()) > 0
    assert (page.input_value("#filter-given"), page.input_value("#filter-suggested")) == (given, suggested)
    assert page.locator('.matrix [aria-pressed="true"]').count() == 1
    cell.click()
    assert shown(page) == everything
    assert page.locator('.matrix [aria-pressed="true"]').count() == 0


def test_a_card_names_its_file_and_opens_the_path_of_its_sample(visit: Callable[..., Opened], tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", method="vista", teacher=True)
    files = [f"<b>folder</b>/{k}.png" for k in range(60)]
    (run / "data.json").write_text(json.dumps(json.loads((run / "data.json").read_text()) | {"files": files}))
    train = RunFolder(run).split().train
    classes = np.tile(np.array([[0], [1], [2], [2]]), (1, len(train)))
    mean = np.random.default_rng(0).dirichlet(np.ones(3), len(train)).astype(np.float16)
    Predictions(classes, mean, {}).save(run)
    write_page(read_runs([run]), tmp_path / "page.html")
    opened = visit(page=tmp_path / "page.html")
    card = opened.page.locator(".suspect").nth(1)
    name = files[int(card.get_attribute("data-id"))]
    assert name in card.inner_text()
    card.get_by_role("button", name="path").click()
    chosen = opened.page.locator("#path-sample option:checked").inner_text()
    assert chosen.startswith(f"{name}: ")
    chart = opened.page.locator('[data-figure="paths"]')
    assert chart.bounding_box()["y"] < 900
    chart.focus()
    opened.page.keyboard.press("End")
    assert opened.readout("paths") == ["epoch 4", "predicted: cow"]
    opened.page.keyboard.press("Home")
    assert opened.readout("paths") == ["epoch 1", "predicted: cat"]
    opened.page.get_by_role("button", name="next sample").click()
    assert opened.page.locator("#path-sample option:checked").inner_text() != chosen
    assert opened.complaints == []


def test_a_validation_sample_is_shown_for_every_method(visit: Callable[..., Opened]) -> None:
    opened = visit()
    chart = opened.page.locator('[data-figure="paths"]')
    assert chart.locator("text.name").evaluate_all("all => all.map(t => t.firstChild.data)") == [
        "cross-entropy",
        "VISTA",
    ]
    chart.focus()
    # The first sample of the hand-worked example: right in epochs 1 and 2, then lost.
    for key, said in (("Home", ["epoch 1", "cross-entropy: right", "VISTA: right"]),
                      ("End", ["epoch 4", "cross-entropy: wrong", "VISTA: wrong"])):  # fmt: skip
        opened.page.keyboard.press(key)
        assert opened.readout("paths") == said


def test_a_watched_page_updates_in_place(visit: Callable[..., Opened], tmp_path: Path) -> None:
    path, right = tmp_path / "page.html", np.ones((3, 6), bool)
    write_page([hand_run("run", right[:2])], path, watching=True, refresh_seconds=1)
    opened = visit(page=path)
    page = opened.page
    page.evaluate("window.mark = 1; scrollTo(0, 700)")
    page.locator("#runs summary").first.evaluate("one => { one.parentElement.open = true; }")
    write_page([hand_run("run", right)], path, refresh_seconds=1)
    page.wait_for_selector("html[data-updates='1']")
    assert "1 run, 3 epochs" in page.inner_text("#subtitle")
    assert page.evaluate("[window.mark, scrollY]") == [1, 700], "the same page, at the same place"
    assert page.locator("#runs details").first.get_attribute("open") is not None
    assert page.locator("section#forgetting").count() == 1
    assert page.locator("iframe").count() == 0
    assert opened.complaints == []


def test_runs_without_samples_are_named(visit: Callable[..., Opened], tmp_path: Path) -> None:
    lines = [{"epoch": k, "val_accuracy": k / 9, "test_accuracy": k / 8} for k in range(1, 5)]
    known = Run("known", Path("known"), record_of(val_given=HAND, test=HAND), {"method": "ce", "seed": 0})
    bare = [
        Run(f"{m}{s}", Path(f"{m}{s}"), Record({}, lines), {"method": m, "seed": s}) for m, s in (("ce", 1), ("sat", 0))
    ]
    write_page([known, *bare], tmp_path / "page.html")
    opened = visit(page=tmp_path / "page.html")
    assert opened.page.locator('[data-figure="accuracy"] .curve').count() == 2
    assert opened.page.locator('[data-figure="forgetting"]').count() == 1
    assert "do not show them: cross-entropy with seed 1; SAT." in " ".join(
        opened.page.inner_text("#forgetting").split()
    )
    assert opened.complaints == []


def test_more_suspects_are_shown_on_demand(visit: Callable[..., Opened]) -> None:
    opened = visit()
    page = opened.page
    everything = shown(page)
    assert 60 < everything <= 120
    assert page.inner_text("#suspect-count") == f"60 of {everything} shown"
    assert page.inner_text(".more") == f"Show {everything - 60} more"
    assert page.inner_text(".check h3").startswith(f"First 9 of {everything} labels to check")
    assert page.inner_text(".all") == f"All {everything} labels to check \u2192"
    assert f"about {everything} of " in page.inner_text("#suspects")
    assert shown_of(page, ".nine") == 9
    page.click(".more")
    assert shown_of(page, ".suspect") == everything
    assert page.inner_text("#suspect-count") == f"{everything} of {everything} shown"
    assert page.locator(".more").is_hidden()


def shown_of(page: Any, what: str) -> int:
    return sum(one.is_visible() for one in page.locator(what).all())


def test_a_shortened_list_names_the_full_one(
    visit: Callable[..., Opened], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "run", method="vista", teacher=True)
    estimated = suspects.of_run(RunFolder(run)).estimated
    monkeypatch.setattr("vista.report.payload.MOST_SUSPECTS", 10)
    write_page(read_runs([run]), tmp_path / "page.html")
    page = visit(page=tmp_path / "page.html").page
    assert estimated > 10
    assert page.locator(".suspect").count() == 10
    assert page.inner_text("#suspect-count") == "10 of 10 shown"
    assert page.inner_text(".check h3").startswith(f"First 9 of {estimated} labels to check")
    assert page.inner_text(".all") == "The first 10 labels to check \u2192"
    full = f"This page has the first 10 of {estimated}. The full list: vista labels {run}"
    assert full in " ".join(page.inner_text("#suspects").split())


def test_names_stay_text(visit: Callable[..., Opened]) -> None:
    opened = visit()
    assert EVIL in opened.page.locator("#filter-given option").all_inner_texts()
    assert opened.page.title() != "broken"
    assert opened.page.locator("img:not([src^='data:'])").count() == 0
    opened.page.locator("#runs summary").first.click()
    assert opened.page.locator("#runs td", has_text="a <b>machine</b>").first.is_visible()


def test_the_best_of_the_table_is_bold(visit: Callable[..., Opened]) -> None:
    opened = visit()
    rows = opened.page.locator("#comparison tbody tr")
    assert [rows.nth(i).locator("td").first.inner_text() for i in range(2)] == ["cross-entropy", "VISTA"]
    assert opened.page.locator("#comparison tbody b").count() >= 2
    assert "±" in rows.first.inner_text()


@pytest.mark.parametrize("width", [390, 1200, 1440])
def test_a_table_that_does_not_fit_shows_a_hint(visit: Callable[..., Opened], tmp_path: Path, width: int) -> None:
    options = [{"order": order, "weights": weights, "record": record, "tau": 0.0, "start": start, "schedule": "fixed"}
               for order in ("accuracy", "newest") for weights in ("coverage", "accuracy", "uniform")
               for record in ("train", "eval") for start in ("hard", "uniform")][:10]  # fmt: skip
    for place, own in enumerate(options):
        for seed in (0, 1):
            write_run(tmp_path / f"{place}-{seed}", method="vista", seed=seed, options=own)
    write_page(read_runs([tmp_path]), tmp_path / "page.html")
    page = visit(width=width, page=tmp_path / "page.html").page
    table, hint = page.locator("#comparison .scroll"), page.locator("#comparison .hint")
    assert page.locator("#comparison tbody tr").count() == 10
    hidden = table.evaluate("box => box.scrollWidth - box.clientWidth")
    if width != 1200:  # there it depends on the fonts: ten names with six options each, and twelve columns
        assert (hidden > 0) == (width == 390)
    hint.wait_for(state="visible" if hidden > 0 else "hidden")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if hidden > 0:
        page.set_viewport_size({"width": 1440, "height": 900})
        hint.wait_for(state="hidden")


@pytest.mark.parametrize("width", [320, 390, 1280, 1440])
def test_every_link_of_the_navigation_is_in_view(visit: Callable[..., Opened], width: int) -> None:
    page = visit(width=width).page
    navigation = page.locator("#contents")
    assert navigation.evaluate("nav => nav.scrollWidth <= nav.clientWidth")
    for link in navigation.locator("a").all():
        box = link.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width, link.inner_text()
    navigation.locator("a", has_text="Anchors over time").click()
    page.wait_for_function("scrollY > 900")
    shown, heading = navigation.bounding_box(), page.locator("#timeline h2").bounding_box()
    assert heading["y"] >= shown["y"] + shown["height"], "the navigation covers no heading"
    assert shown["y"] + shown["height"] <= 0 or shown["height"] < 100, "it leaves most of a small window free"


@pytest.mark.parametrize("width", [390, 1280])
def test_a_matrix_that_does_not_fit_shows_a_hint(visit: Callable[..., Opened], tmp_path: Path, width: int) -> None:
    classes = [f"class {k}" for k in range(12)]
    write_run(tmp_path / "run", method="vista", teacher=True, classes=classes, samples=400)
    write_page(read_runs([tmp_path / "run"]), tmp_path / "page.html")
    page = visit(width=width, page=tmp_path / "page.html").page
    hidden = page.locator(".matrix .scroll").evaluate("box => box.scrollWidth > box.clientWidth")
    assert hidden == (width == 390)
    page.locator(".matrix .hint").wait_for(state="visible" if hidden else "hidden")


@pytest.mark.parametrize("width", [390, 320])
def test_the_page_is_usable_on_a_phone(visit: Callable[..., Opened], width: int) -> None:
    opened = visit(width=width, has_touch=True)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    for chart in opened.page.locator(".chart").all():
        box = chart.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    chart = opened.page.locator('[data-figure="forgetting"]').first
    chart.scroll_into_view_if_needed()
    chart.tap(position={"x": 150, "y": 100})
    assert opened.readout("forgetting")[0].startswith("epoch")
    box = opened.page.locator('[data-figure="forgetting"] + .readout').first.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    headline = opened.page.locator("h1").bounding_box()
    assert headline["x"] + headline["width"] <= width
    columns = {round(tile.bounding_box()["x"]) for tile in opened.page.locator(".tile").all()}
    assert len(columns) == 2


def test_dark_and_light_follow_the_system_and_the_switch(visit: Callable[..., Opened]) -> None:
    def ground(opened: Opened) -> float:
        colour = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return float(np.mean([int(v) for v in colour[4:-1].split(",")]))

    opened = visit(color_scheme="dark")
    assert ground(opened) < 60
    opened.page.click("#theme")
    assert ground(opened) > 200
    opened.page.click("#theme")
    assert ground(opened) < 60
    assert ground(visit(color_scheme="light")) > 200
