"""The review page in a real browser: every key, undo, two tabs, kills, hostile names, phone width."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import write_images, write_run
from review_server import Server, press, shown, wait

EVIL = "<script>document.title='broken'</script>"
CLASSES = [EVIL, "dog", "cow & calf"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    data = write_images(tmp_path / "images.npz", samples=900)
    return write_run(tmp_path / "run", method="vista", data=data, classes=CLASSES, samples=900, teacher=True)


@pytest.fixture
def serve(run: Path) -> Iterator[Callable[[], Server]]:
    started: list[Server] = []

    def start() -> Server:
        started.append(Server(run))
        return started[-1]

    yield start
    for each in started:
        each.stop()


def lines(run: Path) -> list[dict[str, Any]]:
    path = run / "decisions.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def decided(run: Path) -> int:
    return sum(kind != "skip" for kind in {line["id"]: line["decision"] for line in lines(run)}.values())


def test_every_key(serve: Callable[[], Server], open_page: Callable[..., Any], run: Path) -> None:
    server = serve()
    page = open_page(server.address)
    made = []
    for key, kind in (("a", "accept"), ("k", "keep"), ("x", "unlabel"), ("s", "skip")):
        made.append((shown(page), kind))
        press(page, key)
    made.append((shown(page), "other"))
    page.keyboard.press("o")
    page.wait_for_selector("#search[open]")
    page.keyboard.type("calf")
    assert page.locator("#found li").all_inner_texts() == ["cow & calf"]
    page.keyboard.press("Enter")
    wait(page, "document.getElementById('progress').textContent.startsWith('4 of')")
    assert page.inner_text("#progress").split(",")[0].endswith("decided (score 0.5 to 1)")
    assert "1 skipped" in page.inner_text("#progress")
    assert [(line["id"], line["decision"]) for line in lines(run)] == made
    assert lines(run)[4]["label"] == 2
    assert lines(run)[0]["author"]
    here = shown(page)
    press(page, "ArrowRight")
    assert len(lines(run)) == 5, "next decides nothing"
    press(page, "ArrowLeft")
    assert shown(page) == here
    press(page, "u")
    assert shown(page) == made[-1][0], "undo shows the sample again"
    assert (lines(run)[-1]["id"], lines(run)[-1]["decision"]) == (made[-1][0], "undo")
    press(page, "u")
    assert (shown(page), lines(run)[-1]["decision"]) == (made[-2][0], "undo")
    assert page.inner_text("#progress").startswith("3 of")
    assert "skipped" not in page.inner_text("#progress")
    page.select_option("#status", "accept")
    wait(page, f"document.getElementById('one').dataset.id === '{made[0][0]}'")
    assert page.inner_text("#decided") == "Decided: accepted"
    page.click("#finish")
    page.wait_for_selector("#end[open]")
    assert "vista labels" in page.inner_text("#commands")
    said = server.rest()
    assert "3 decisions" in said
    assert f"--labels labels.csv --split-from {run}" in said
    assert server.process.returncode == 0


def test_names_are_text(serve: Callable[[], Server], open_page: Callable[..., Any]) -> None:
    page = open_page(serve().address)
    page.select_option("#suggested", "0")
    wait(page, "document.querySelector('#labels b.new').textContent.includes('<script>')")
    assert page.inner_text("#labels b.new") == EVIL
    page.keyboard.press("o")
    page.wait_for_selector("#search[open]")
    assert page.locator("#found li").first.inner_text() == EVIL
    page.keyboard.press("Escape")
    page.wait_for_selector("#search:not([open])", state="attached")
    page.keyboard.press("g")
    page.wait_for_selector(".card")
    assert page.title() == "Label review: run"
    assert page.locator("script").count() == 1


def test_a_key_right_after_the_search_closed(serve: Callable[[], Server], open_page: Callable[..., Any]) -> None:
    """Until the next frame is drawn the focus is still in the closed dialog, and keys arrive there."""
    page = open_page(serve().address)
    page.keyboard.press("o")
    page.wait_for_selector("#search[open]")
    page.evaluate("""() => {
        document.getElementById('search').close();
        const key = new KeyboardEvent('keydown', {key: 'g', bubbles: true});
        document.getElementById('query').dispatchEvent(key);
    }""")
    page.wait_for_selector(".card")
    page.focus("#low")
    page.keyboard.press("g")
    page.keyboard.press("Tab")
    assert page.locator(".card").count() > 0, "keys typed into a filter are its own"


def test_the_grid_decides_for_many(serve: Callable[[], Server], open_page: Callable[..., Any], run: Path) -> None:
    page = open_page(serve().address)
    page.keyboard.press("g")
    page.wait_for_selector(".card img")
    ids = [int(card.get_attribute("data-id")) for card in page.locator(".card").all()]
    page.click(".card >> nth=1")
    page.click(".card >> nth=4", modifiers=["Shift"])
    page.keyboard.press("a")
    wait(page, f"!document.querySelector('.card[data-id=\"{ids[1]}\"]')")
    assert [line["id"] for line in lines(run)] == ids[1:5]
    page.keyboard.press("u")
    page.wait_for_selector(f'.card[data-id="{ids[1]}"]')
    assert [line["decision"] for line in lines(run)] == ["accept"] * 4 + ["undo"] * 4
    page.keyboard.press("e")
    page.keyboard.press("k")
    wait(page, f"!document.querySelector('.card[data-id=\"{ids[0]}\"]')")
    assert len(lines(run)) == 8 + len(ids)


def test_the_grid_turns_its_pages(serve: Callable[[], Server], open_page: Callable[..., Any], run: Path) -> None:
    page = open_page(serve().address)

    def first() -> int:
        return int(page.get_attribute(".card", "data-id"))

    def turn(key: str) -> int:
        before = first()
        page.keyboard.press(key)
        wait(page, f"document.querySelector('.card').dataset.id !== '{before}'")
        return first()

    single = shown(page)
    total = re.search(r"of ([\d,]+) decided", page.inner_text("#progress"))[1]
    page.keyboard.press("g")
    page.wait_for_selector(".card img")
    assert first() == single
    assert (
        page.inner_text("#progress")
        == f"0 of {total} decided (score 0.5 to 1), {page.locator('.card').count()} of {total} shown"
    )
    tops = [page.locator(".card img").nth(k).bounding_box()["y"] for k in range(3)]
    assert max(tops) - min(tops) < 1, "captions of different length leave the images in line"
    second = turn("ArrowRight")
    assert second != single
    following = int(page.locator(".card").nth(1).get_attribute("data-id"))
    page.click(".card >> nth=0")
    assert turn("a") == following, "the grid stays where it was"
    assert [line["id"] for line in lines(run)] == [second]
    assert turn("u") == second
    assert turn("ArrowLeft") == single
    page.keyboard.press("ArrowLeft")
    wait(page, "document.getElementById('message').textContent.startsWith('These are the first samples')")
    turn("ArrowRight")
    page.keyboard.press("g")
    wait(page, f"document.getElementById('one').dataset.id === '{second}'")
    assert not page.is_visible("#message")


def test_an_end_is_announced(serve: Callable[[], Server], open_page: Callable[..., Any], run: Path) -> None:
    page = open_page(serve().address)
    page.fill("#low", "0.999")
    page.press("#low", "Enter")
    page.wait_for_selector("#empty:not([hidden])")
    assert page.inner_text("#empty") == "No sample matches the filters."
    page.fill("#low", "0.5")
    page.press("#low", "Enter")
    page.wait_for_selector("#one:not([hidden])")
    page.keyboard.press("g")
    page.wait_for_selector(".card img")
    while not page.is_visible("#empty"):
        before = page.inner_text("#progress")
        page.keyboard.press("e")
        page.keyboard.press("s")
        text = "document.getElementById('progress').textContent"
        wait(page, f"{text} !== '{before}' && !{text}.includes('selected')")
    total = page.inner_text("#progress").split(" of ")[1].split()[0]
    assert page.inner_text("#progress") == f"0 of {total} decided (score 0.5 to 1), {total} skipped"
    assert page.inner_text("#empty").startswith(f"0 decided, {total} skipped: choose the status skipped")
    page.click("#finish")
    page.wait_for_selector("#end[open]")
    assert page.inner_text("#end-text").startswith("0 decisions are saved")
    assert f"Skipped, label unchanged: {total}." in page.inner_text("#end-text")


def test_the_sample_just_decided_is_the_previous_one(
    serve: Callable[[], Server], open_page: Callable[..., Any], run: Path
) -> None:
    page = open_page(serve().address)
    first = shown(page)
    press(page, "a")
    second = shown(page)
    press(page, "ArrowLeft")
    assert (shown(page), page.inner_text("#decided")) == (first, "Decided: accepted")
    assert not page.is_visible("#message")
    press(page, "k")
    assert shown(page) == second
    assert [line["decision"] for line in lines(run)] == ["accept", "keep"], "decided anew"
    press(page, "ArrowLeft")
    assert page.inner_text("#decided") == "Decided: kept"
    press(page, "ArrowRight")
    assert shown(page) == second
    press(page, "ArrowLeft")
    page.keyboard.press("u")
    wait(page, "document.getElementById('decided').textContent === ''")
    assert (shown(page), page.inner_text("#progress")[:4]) == (first, "0 of")
    page.keyboard.press("u")
    page.wait_for_selector("#message:not([hidden])")
    assert "nothing to undo" in page.inner_text("#message")
    page.keyboard.press("g")
    page.wait_for_selector(".card")
    assert not page.is_visible("#message"), "it was about the other view"


def test_two_tabs(serve: Callable[[], Server], open_page: Callable[..., Any], run: Path) -> None:
    address = serve().address
    one, two = open_page(address), open_page(address)
    sample = shown(one)
    press(one, "a")
    two.keyboard.press("x")
    two.wait_for_selector("#message:not([hidden])")
    assert "decided elsewhere" in two.inner_text("#message")
    assert (shown(two), two.inner_text("#decided")) == (sample, "Decided: accepted")
    assert [line["decision"] for line in lines(run)] == ["accept"]
    press(two, "x")
    assert [line["decision"] for line in lines(run)] == ["accept", "unlabel"], "seen, and replaced on purpose"


def test_phone_width(serve: Callable[[], Server], open_page: Callable[..., Any], run: Path) -> None:
    page = open_page(serve().address, viewport={"width": 360, "height": 740}, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    for button in page.locator("#buttons button:visible").all():
        assert button.bounding_box()["height"] >= 40
    before = shown(page)
    page.tap("#buttons .accept")
    wait(page, f"document.getElementById('one').dataset.id !== '{before}'")
    assert len(lines(run)) == 1


@pytest.mark.faults
def test_two_hundred_decisions_survive_ten_kills(
    serve: Callable[[], Server], open_page: Callable[..., Any], run: Path
) -> None:
    """The page shows the next sample only once a decision is on the disk; the server is killed while keys are typed."""
    generator = np.random.default_rng(0)
    counted: dict[int, str] = {}
    kinds = {"a": "accept", "k": "keep", "x": "unlabel", "s": "skip"}
    for attempt in range(11):
        server = serve()
        page = open_page(server.address)
        assert page.inner_text("#progress").startswith(f"{decided(run)} of")
        for _ in range(20 if attempt < 10 else 200 - len(counted)):
            key, sample = str(generator.choice(list(kinds))), shown(page)
            press(page, key)
            counted[sample] = kinds[key]
        if attempt < 10:
            page.evaluate(
                "for (let k = 0; k < 5; k++) document.dispatchEvent(new KeyboardEvent('keydown', {key: 'a'}))"
            )
            time.sleep(float(generator.uniform(0, 0.05)))
            server.kill()
            page.keyboard.press("k")
            page.wait_for_selector("#message:not([hidden])")
            assert "does not answer" in page.inner_text("#message")
            page.context.close()
            kept = {line["id"]: line["decision"] for line in lines(run)}
            counted |= {sample: kind for sample, kind in kept.items() if sample not in counted}
    kept = {line["id"]: line["decision"] for line in lines(run)}
    assert len(counted) >= 200
    assert kept == counted


@pytest.mark.faults
def test_a_hundred_thousand_suspects(tmp_path: Path, open_page: Callable[..., Any]) -> None:
    """Opened within two seconds, advanced within 100 ms: images are fetched as they are needed."""
    count = 250_000
    data = write_images(tmp_path / "images.npz", samples=count)
    run = write_run(tmp_path / "run", method="vista", data=data, samples=count, teacher=True)
    server = Server(run)
    try:
        began = time.perf_counter()
        page = open_page(server.address)
        wait(page, "document.querySelector('#sample img').complete")
        opened = time.perf_counter() - began
        total = int(re.search(r"of ([\d,]+) decided", page.inner_text("#progress"))[1].replace(",", ""))
        assert total >= 80_000
        advance = page.evaluate("""async () => {
            const times = [];
            for (let k = 0; k < 20; k++) {
                const before = document.getElementById('one').dataset.id, began = performance.now();
                document.dispatchEvent(new KeyboardEvent('keydown', {key: 'a'}));
                while (document.getElementById('one').dataset.id === before) await new Promise(requestAnimationFrame);
                times.push(performance.now() - began);
            }
            return times.sort((a, b) => a - b)[10];
        }""")
        slack = 1 if os.environ.get("VISTA_STRICT_TIMES") == "1" else 5  # other processes may share the machine
        print(f"opened in {opened:.2f} s, advanced in {advance:.0f} ms (median)")
        assert opened < 2 * slack
        assert advance < 100 * slack
    finally:
        server.stop()
