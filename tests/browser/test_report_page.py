"""The page in a real browser: figures, tooltips, filters, keyboard, themes, and no requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import HAND, hand_run, record_of, write_images, write_run

from vista.analysis import read_runs
from vista.analysis.runs import Run
from vista.report.page import write_page

SHIFTED = np.roll(HAND, 1, axis=1) | np.array([[False], [False], [False], [True]])  # all right at the end
EVIL = "<script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">"
FIGURES = (
    "forgetting",
    "timeline",
    "marginal-coverage",
    "life-expectancy",
    "end-of-training",
    "contributing-set",
    "test-vs-validation",
    "forgotten-classes",
)
# 15 validation samples: six as in the hand-worked example, the others right from the third epoch on.
CORRECT = np.concatenate([HAND, np.tile([[False], [False], [True], [True]], (1, 9))], axis=1)


@dataclass
class Opened:
    """An open page with its console messages, errors and requests."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def tip(self) -> str:
        assert self.page.locator("#tip").is_visible()
        return str(self.page.inner_text("#tip"))


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


def test_every_section_and_figure_is_visible_without_errors(visit: Callable[..., Opened]) -> None:
    opened = visit()
    for name in ("comparison", *FIGURES, "suspects", "runs"):
        assert opened.page.locator(f"section#{name}").is_visible(), name
        assert opened.page.locator(f"section#{name} .how").first.inner_text(), name
    charts = opened.page.locator(".chart")
    assert charts.count() >= 12
    for k in range(charts.count()):
        box = charts.nth(k).bounding_box()
        assert box["width"] > 200
        assert box["height"] > 40
        assert charts.nth(k).locator("svg").count() == 1
    assert opened.complaints == []


def test_no_request_leaves_the_page(visit: Callable[..., Opened], report: Path) -> None:
    opened = visit()
    opened.page.evaluate("fetch('https://example.org/x').catch(() => null)")  # blocked by its policy
    asked = [url for url in opened.requests if not url.startswith("data:")]
    assert asked == [report.as_uri()]


def test_hovering_a_bar_shows_its_values(visit: Callable[..., Opened]) -> None:
    opened = visit()
    chart = opened.page.locator('[data-figure="forgetting"]').first
    chart.scroll_into_view_if_needed()
    width = chart.bounding_box()["width"]
    chart.hover(position={"x": 44 + (width - 52) * 1.5 / 4, "y": 120})
    # Epoch 2: 4 of 15 are right, 3 of these at the end; both seeds alike.
    assert opened.tip().splitlines() == [
        "ce, epoch 2",
        "right: 26.67 % ± 0.00",
        "still right at the end: 20.00 % ± 0.00",
        "gap: 6.67 % ± 0.00",
    ]
    opened.page.mouse.move(2, 2)
    assert opened.page.locator("#tip").is_hidden()


def test_hovering_curves_and_heat_maps_shows_their_values(visit: Callable[..., Opened]) -> None:
    opened = visit()
    chart = opened.page.locator('[data-figure="end-of-training"]')
    chart.scroll_into_view_if_needed()
    width = chart.bounding_box()["width"]
    chart.hover(position={"x": 44 + (width - 52) * 3.5 / 4, "y": 100})
    # Epoch 4 is ranked first with 13 of 15.
    assert "ce: 86.67 % ± 0.00" in opened.tip()
    heat = opened.page.locator('[data-figure="life-expectancy"]').first
    heat.scroll_into_view_if_needed()
    box = heat.bounding_box()
    heat.hover(position={"x": 44 + (box["width"] - 52) * 0.5 / 4, "y": box["height"] - 40})
    assert "state of epoch 1" in opened.tip()
    assert "after 1 epoch: 2 samples, 13.33 %" in opened.tip()


def test_several_seeds_are_drawn_with_a_band(visit: Callable[..., Opened], tmp_path: Path) -> None:
    known = {"classes": ("x", "y"), "val_labels": np.array([1, 1, 1, 0, 0, 0])}
    seeds = [
        hand_run(f"seed{seed}", correct, config={"method": "ours", "seed": seed}, **known)
        for seed, correct in enumerate((HAND, SHIFTED))
    ]
    write_page([*seeds, hand_run("alone")], tmp_path / "bands.html")
    opened = visit(page=tmp_path / "bands.html")
    for name in ("forgetting", "life-expectancy", "end-of-training", "contributing-set", "test-vs-validation"):
        assert "mean ± standard error, 2 seeds" in opened.page.inner_text(f"#{name} .legend"), name
    ours, alone = opened.page.locator('[data-figure="forgetting"]').all()
    assert (ours.locator(".band").count(), alone.locator(".band").count()) == (2, 0)
    assert opened.page.locator('[data-figure="end-of-training"] .band').count() == 1
    assert "mean deviation gap 4.17 ± 4.17 %" in opened.page.inner_text("#forgetting")
    # Accuracies are 2, 4, 3 and 5 of 6, the last one +- 1: the band reaches from 2 to 6, the bars from 0 to 5.
    # Residuals are 1.5 +- 0.5 to 5 +- 1: from 1 to 6, the bars again from 0 to 5.
    for k, ratio in enumerate((4 / 5, 5 / 5)):
        height = "element => element.getBBox().height"
        band, bars = (ours.locator(what).nth(k).evaluate(height) for what in (".band", "path"))
        assert band / bars == pytest.approx(ratio, abs=0.01)
    ours.scroll_into_view_if_needed()
    ours.hover(position={"x": ours.bounding_box()["width"] - 20, "y": 120})
    assert "right: 83.33 % ± 16.67" in opened.tip()
    heat = opened.page.locator('[data-figure="life-expectancy"]').first
    heat.scroll_into_view_if_needed()
    box = heat.bounding_box()
    heat.hover(position={"x": 44 + (box["width"] - 52) * 1.5 / 4, "y": box["height"] - 40})
    assert "anchor for 2.5 ± 0.5 epochs" in opened.tip()
    assert "16.7 % ± 16.7" in opened.page.inner_text("#forgotten-classes")
    assert opened.complaints == []


def test_cells_of_a_heat_map_match_the_data(visit: Callable[..., Opened], tmp_path: Path) -> None:
    write_page([hand_run("hand")], tmp_path / "hand.html")
    canvas = visit(page=tmp_path / "hand.html", color_scheme="light").page.locator("#life-expectancy canvas")
    cells = canvas.evaluate("""canvas => Array.from({ length: 12 }, (_, k) => {
        const [x, y] = [(k % 4 + 0.5) / 4 * canvas.width, (Math.floor(k / 4) + 0.5) / 3 * canvas.height];
        return Array.from(canvas.getContext("2d").getImageData(Math.floor(x), Math.floor(y), 1, 1).data);
    })""")
    colours = np.array(cells).reshape(3, 4, 4)[::-1]  # rows from the bottom: after 1, 2 and 3 epochs
    # Samples that a state adds: 2, 4, 1 and 1 in its own epoch, and 4 by the second state twice more.
    assert (colours[..., 3] > 0).tolist() == [[True] * 4, [False, True, False, False], [False, True, False, False]]
    light = colours[..., :3].mean(axis=2)
    assert light[0, 2] == light[0, 3] > light[0, 0] > light[0, 1] == light[2, 1]


@pytest.mark.parametrize("name", FIGURES)
def test_arrow_keys_walk_through_every_figure(visit: Callable[..., Opened], name: str) -> None:
    opened = visit()
    chart = opened.page.locator(f'[data-figure="{name}"]').first
    assert chart.get_attribute("role") == "group"
    assert chart.get_attribute("aria-label").endswith("arrow keys show its values")

    def after(key: str) -> str:
        opened.page.keyboard.press(key)
        return opened.tip().splitlines()[0]

    chart.focus()
    first = after("ArrowRight")
    second = after("ArrowRight")
    assert first != second
    if name not in ("marginal-coverage", "forgotten-classes"):  # there the rows are ranked
        assert "epoch 1" in first
        assert "epoch 2" in second
    assert after("ArrowLeft") == first == after("ArrowLeft") == after("Home")  # it stops at the end
    assert after("End") == after("ArrowRight")
    opened.page.keyboard.press("Escape")
    assert opened.page.locator("#tip").is_hidden()
    assert opened.complaints == []


def test_arrow_keys_reach_every_cell_of_a_heat_map(visit: Callable[..., Opened]) -> None:
    opened = visit()
    chart = opened.page.locator('[data-figure="timeline"]').first
    chart.focus()
    told = []
    for key in ("ArrowRight", "ArrowRight", "ArrowUp", "ArrowDown", "ArrowDown"):
        opened.page.keyboard.press(key)
        told.append(opened.tip().splitlines())
    # A state is in no teacher before its own epoch, so there is nothing below that cell.
    expected = [(1, 1), (2, 2), (2, 3), (2, 2), (2, 2)]
    assert [line[0].split()[-1] for line in told] == [str(state) for state, _ in expected]
    assert [line[1].split(":")[0].split()[-1] for line in told] == [str(teacher) for _, teacher in expected]
    assert chart.locator(".cell").is_visible()
    opened.page.keyboard.press("Escape")
    assert chart.locator(".cell").is_hidden()


def test_a_run_of_one_epoch_answers_the_arrow_keys(visit: Callable[..., Opened], tmp_path: Path) -> None:
    write_page([hand_run("one", HAND[:1])], tmp_path / "one.html")
    for key in ("ArrowRight", "ArrowLeft"):
        opened = visit(page=tmp_path / "one.html")
        opened.page.locator('[data-figure="forgetting"]').focus()
        opened.page.keyboard.press(key)
        assert opened.tip().startswith("one, epoch 1")


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
        for name in ("timeline", "life-expectancy"):
            assert opened.page.locator(f"#{name} .empty").all_text_contents() == ["no state became an anchor"], name
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
    share = "The weight of a state is its share of all the blue."
    assert share in plain
    assert "+4 · 0.80" in plain
    assert share not in uniform
    assert "Every past state is in the teacher, with equal weights." in uniform
    assert "+4 · 0.25" in uniform
    assert f"The newest state is ranked first. {share}" in chronological
    assert "share" not in page.locator("#marginal-coverage > .how").inner_text()
    assert "plain, replayed as VISTA Basic" in plain


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
    page.locator('[data-figure="contributing-set"]').focus()
    page.keyboard.press("ArrowRight")
    assert hebrew[0] in page.locator("#tip bdi").all_inner_texts()


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
    assert "none of 45 training labels looks wrong" in opened.page.inner_text("#suspects")
    assert opened.page.locator("#filter-given").count() == 0
    assert opened.complaints == []


def test_filters_by_class_and_score(visit: Callable[..., Opened]) -> None:
    opened = visit()
    cards = opened.page.locator(".suspect")
    everything = int(opened.page.inner_text("#suspect-count").split()[-1])
    assert cards.count() == min(60, everything)
    assert cards.first.locator("img").evaluate("image => image.complete && image.naturalWidth > 0")
    opened.page.select_option("#filter-given", label="c")
    fewer = int(opened.page.inner_text("#suspect-count").split()[-1])
    assert 0 < fewer < everything
    assert set(opened.page.locator(".suspect s").all_inner_texts()) == {"c"}
    opened.page.fill("#filter-score", "1")
    assert opened.page.inner_text("#suspect-count") == "0 shown of 0"


def test_more_suspects_are_shown_on_demand(visit: Callable[..., Opened]) -> None:
    opened = visit()
    everything = int(opened.page.inner_text("#suspect-count").split()[-1])
    assert everything > 60
    opened.page.click("text=Show more")
    assert opened.page.locator(".suspect").count() == min(120, everything)


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
    assert [rows.nth(i).locator("td").first.inner_text() for i in range(2)] == ["ce", "vista"]
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
    assert (hidden > 0) == (width == 390)
    hint.wait_for(state="visible" if hidden > 0 else "hidden")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if hidden > 0:
        page.set_viewport_size({"width": 1440, "height": 900})
        hint.wait_for(state="hidden")


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
    box = opened.page.locator("#tip").bounding_box()
    assert "epoch" in opened.tip()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width


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
