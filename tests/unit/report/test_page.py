"""The page as a file: self-contained, its data safe inside a script element, light, fresh while runs train."""

from __future__ import annotations

import base64
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import HAND, hand_run, write_pictures, write_run
from PIL import Image

from vista.analysis import TrajectoryRecorder, read_runs
from vista.data import source
from vista.methods import choose
from vista.report import figures, page, pictures
from vista.report.page import safe_json, write_page
from vista.report.payload import _plain, payload
from vista.report.watch import watch
from vista.runs.record import EPOCHS

EVIL = "</script><script>alert(1)</script>&\u2028"


def data_of(path: Path) -> dict[str, Any]:
    """What is embedded in a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.S)
    assert found is not None
    return dict(json.loads(found[1]))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    data = write_pictures(tmp_path / "pictures.npz")
    for seed in (0, 1):
        write_run(tmp_path / "runs" / f"ce{seed}", seed=seed, data=data)
        write_run(tmp_path / "runs" / f"vista{seed}", method="vista", seed=seed, data=data, teacher=True)
    return tmp_path / "runs"


def test_the_data_cannot_leave_their_element() -> None:
    text = safe_json({"name": EVIL})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"name": EVIL}


def test_the_page_needs_no_network_and_runs_only_its_own_script(runs: Path, tmp_path: Path) -> None:
    write_page(read_runs([runs]), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    markup = re.sub(r"<script.*?</script>|<style>.*?</style>", "", text, flags=re.S)
    assert "default-src 'none'; img-src data:; style-src 'sha256-" in markup
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!data:)", markup)
    assert "@import" not in text
    assert "url(" not in text
    assert "innerHTML" not in text
    assert 'http-equiv="refresh"' not in text


def test_names_from_outside_are_text(tmp_path: Path) -> None:
    write_run(tmp_path / "run", classes=[EVIL, "b", "c"], method="vista", teacher=True)
    write_page(read_runs([tmp_path / "run"]), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "<script>alert" not in text
    assert data_of(tmp_path / "page.html")["suspects"]["classes"][0] == EVIL


def test_the_payload_holds_table_figures_suspects_and_descriptions(runs: Path) -> None:
    data = payload(read_runs([runs]))
    assert [(row["name"], row["seeds"]) for row in data["table"]["rows"]] == [("ce", 2), ("vista", 2)]
    assert set(data["figures"]) >= {"forgetting", "timeline", "life-expectancy", "forgotten-classes"}
    assert len(data["runs"]) == 4
    assert all(row["picture"].startswith("data:image/png;base64,") for row in data["suspects"]["rows"])
    assert set(data["how"]) >= set(data["figures"])


def test_cells_of_the_heat_maps_start_at_their_states_birth(tmp_path: Path) -> None:
    data = payload([hand_run()])
    assert data["figures"]["timeline"][0]["columns"] == [[0, 1.0], [1, 1.0, 0.8, 0.8], [2, 0.2], [3, 0.2]]
    assert data["figures"]["life-expectancy"][0]["columns"] == [[0, 2], [0, 4, 4, 4], [0, 1], [0, 1]]


SHARE = "The weight of a state is its share of all the blue."


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("vista-light", SHARE),
        ("vista-uniform", "Every past state teaches with the same weight, whatever it adds."),
        ("vista-accuracy", "Every past state teaches, the more it gets right the more, whatever it adds."),
        ("vista-chronological", f"The newest state is ranked first. {SHARE}"),
        ("vista-smoothing", f"{SHARE} It teaches by the mean of 3 epochs."),
    ],
)
def test_the_weights_of_anchors_are_explained_as_the_run_made_them(tmp_path: Path, method: str, said: str) -> None:
    write_run(tmp_path / "run", method=method, options=choose(method).options)
    (panel,) = payload(read_runs([tmp_path / "run"]))["figures"]["marginal-coverage"]
    assert panel["reading"] == said
    assert panel["kept"]


def test_what_has_no_standard_error_is_null_on_the_page() -> None:
    """A browser reads no NaN."""
    panel = figures.Band(np.array([0.5, 1 / 3]), np.array([np.nan, 0.1]), 2)
    assert _plain(panel) == {"mean": [0.5, 0.33333], "se": [None, 0.1], "seeds": 2}


def test_suspects_are_those_of_the_run_that_is_right_most_often_and_the_page_names_it(tmp_path: Path) -> None:
    rights = {"low": 0.2, "high": 0.8, "middle": 0.5}
    for seed, (name, share) in enumerate(rights.items()):
        correct = np.tile(np.arange(15) < 15 * share, (4, 1))
        write_run(tmp_path / name, method="vista", seed=seed, teacher=True, correct=correct)
    write_run(tmp_path / "plain", method="ce", correct=np.ones((4, 15), bool))
    note = payload(read_runs([tmp_path]))["suspects"]["note"]
    assert note.startswith(f"By {tmp_path / 'high'}, of 3 with a teacher the one with the highest validation accuracy")
    alone = payload(read_runs([tmp_path / "low", tmp_path / "plain"]))["suspects"]["note"]
    assert alone.startswith(f"By {tmp_path / 'low'}: about ")


def test_without_the_data_suspects_are_rows_and_the_page_says_why(tmp_path: Path) -> None:
    write_run(tmp_path / "run", method="vista", teacher=True, data="npz:gone.npz")
    found = payload(read_runs([tmp_path / "run"]))["suspects"]
    assert "No pictures: data file gone.npz does not exist" in found["note"]
    assert not any("picture" in row for row in found["rows"])


def test_pictures_of_data_that_have_changed_are_not_shown(tmp_path: Path) -> None:
    """An id is a place in the data: where these have changed, it may be another sample's by now."""
    data = write_pictures(tmp_path / "pictures.npz")
    run = write_run(tmp_path / "run", method="vista", teacher=True, data=data)
    described = json.loads((run / "data.json").read_text()) | {"inputs_hash": source.load(data).inputs_hash}
    (run / "data.json").write_text(json.dumps(described))
    assert all("picture" in row for row in payload(read_runs([run]))["suspects"]["rows"])
    with np.load(tmp_path / "pictures.npz") as file:
        arrays = dict(file)
    arrays["x_train"] = arrays["x_train"][::-1]
    np.savez(tmp_path / "pictures.npz", **arrays)
    found = payload(read_runs([run]))["suspects"]
    assert f"No pictures: {data} has changed since the run" in found["note"]
    assert found["rows"]
    assert not any("picture" in row for row in found["rows"])


@pytest.mark.parametrize("channels", [2, 4, 5])
def test_pictures_that_no_screen_can_show_are_rows_and_the_page_says_why(tmp_path: Path, channels: int) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "many.npz", x=rng.integers(0, 255, (60, 4, 4, channels), dtype=np.uint8), y=np.arange(60) % 3)
    write_run(tmp_path / "run", method="vista", teacher=True, data=f"npz:{tmp_path / 'many.npz'}")
    found = payload(read_runs([tmp_path / "run"]))["suspects"]
    assert f"No pictures: pictures of {channels} channels cannot be shown" in found["note"]


def test_a_teacher_that_suspects_nothing_is_no_missing_teacher(tmp_path: Path) -> None:
    write_run(tmp_path / "clean", method="vista", teacher=True, noise="none")
    found = payload(read_runs([tmp_path / "clean"]))["suspects"]
    assert found["rows"] == []
    assert ": none of 45 training labels looks wrong" in found["note"]
    write_run(tmp_path / "plain")
    assert payload(read_runs([tmp_path / "plain"]))["suspects"] is None


def test_what_is_no_utf8_is_shown_as_its_escape(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", method="vista", teacher=True, classes=["a\udc80", "b", "c"])
    write_page(read_runs([run]), tmp_path / "page.html")
    assert data_of(tmp_path / "page.html")["suspects"]["classes"][0] == r"a\udc80"
    write_page([hand_run("alone\udcff")], tmp_path / "page.html")
    assert data_of(tmp_path / "page.html")["runs"][0]["path"] == r"alone\udcff"
    assert r"<title>alone\udcff" in (tmp_path / "page.html").read_text().replace("\u2068", "")


def test_a_name_from_right_to_left_does_not_turn_the_title() -> None:
    data = payload([hand_run("\u05d0"), hand_run("b")])
    assert data["title"] == "\u2068\u05d0\u2069 and b"


def test_thumbnails_are_small_and_the_page_stays_light(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    uri = pictures.thumbnail(np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8))
    assert uri.startswith("data:image/png;base64,")
    image = Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))
    assert image.size == (48, 32)
    assert len(uri) < 6000
    data = write_pictures(tmp_path / "pictures.npz")
    monkeypatch.setattr(pictures, "MOST_BYTES", 5 * len(pictures.thumbnails(data, None, [0], None)[0]))
    assert 3 <= len(pictures.thumbnails(data, None, range(20), None)) <= 6


def test_a_run_before_its_first_epoch_is_waited_for(tmp_path: Path) -> None:
    write_run(tmp_path / "run", epochs=0, finished=False)
    data = payload(read_runs([tmp_path / "run"]))
    assert data["figures"] is None
    assert data["subtitle"].endswith("; 1 run, 0 epochs; 1 still in epoch 1")


def test_one_run_and_one_epoch_are_counted_as_one() -> None:
    assert payload([hand_run("one", HAND[:1])])["subtitle"] == "one; 1 run, 1 epoch"
    assert payload([hand_run("one"), hand_run("two")])["subtitle"] == "one; 2 runs, 4 epochs"


def test_watching_writes_when_a_record_changes_and_ends_when_all_have_finished(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "page.html"
    write_run(run, finished=False)
    seen: list[tuple[bool, bool]] = []
    waits = 0

    def wait(seconds: float) -> None:
        nonlocal waits
        assert seconds == 2.0
        waits += 1
        if waits == 2:  # the second look found nothing new; now the run ends
            (run / "metrics.json").write_text(json.dumps({"best": {"test": METRICS}, "last": {"test": METRICS}}))

    def wrote(_: Any, over: bool) -> None:
        seen.append((over, 'http-equiv="refresh" content="2"' in out.read_text()))

    watch([run], out, wrote, seconds=2.0, wait=wait)
    assert seen == [(False, True), (True, False)]
    assert waits == 2


class StillWatching(Exception):
    """Enough was seen."""


@pytest.mark.parametrize("planned", [{"epochs": 2}, {}])
def test_watching_a_loop_of_ones_own_ends_with_its_planned_epochs(tmp_path: Path, planned: dict[str, int]) -> None:
    recorder = TrajectoryRecorder(tmp_path / "mine", [0, 1, 0, 1], config={"method": "own", **planned})
    seen: list[tuple[int, bool]] = []
    waits = 0

    def wait(_: float) -> None:
        nonlocal waits
        waits += 1
        if waits > 2:
            raise StillWatching
        recorder.end_epoch(np.eye(2)[[0, 1, 1, 1]])
        os.utime(tmp_path / "mine" / EPOCHS, ns=(0, 0))  # all on one tick of the disk's clock

    def wrote(runs: Any, over: bool) -> None:
        seen.append((len(runs[0]), over))

    if planned:
        watch([tmp_path / "mine"], tmp_path / "page.html", wrote, wait=wait)
    else:
        with pytest.raises(StillWatching):
            watch([tmp_path / "mine"], tmp_path / "page.html", wrote, wait=wait)
    assert seen == [(0, False), (1, False), (2, bool(planned))]


def test_watching_looks_twice_at_a_run_that_is_just_being_written(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    bits = (run / "coverage.safetensors").read_bytes()
    (run / "coverage.safetensors").unlink()
    written: list[bool] = []
    watch([run], tmp_path / "page.html", lambda _, over: written.append(over),
          wait=lambda _: (run / "coverage.safetensors").write_bytes(bits))  # fmt: skip
    assert written == [True]
    (run / "coverage.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"it has no coverage\.safetensors"):
        watch([run], tmp_path / "page.html", lambda _, over: None, wait=lambda _: None)


def test_watching_waits_for_a_run_where_there_is_none_yet(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    heard: list[Any] = []
    steps = iter((lambda: None, lambda: write_run(first / "run"), lambda: write_run(second, seed=1)))
    watch(
        [first, second],
        tmp_path / "page.html",
        lambda runs, over: heard.append((len(runs), over)),
        awaits=lambda missing: heard.append([place.name for place in missing]),
        wait=lambda _: next(steps)(),
    )
    assert heard == [["first", "second"], ["second"], (1, False), (2, True)]


METRICS = {"top1": 0.5, "ece": 0.1, "aurc": 0.1}


def test_the_largest_page_stays_under_five_megabytes(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    right = generator.random((200, 5000)) < np.linspace(0.1, 0.6, 200)[:, None]
    runs = [hand_run(f"run{k}", np.roll(right, k, axis=1)) for k in range(3)]
    data = payload(runs)
    uri = pictures.thumbnail(generator.integers(0, 256, (32, 32, 3), dtype=np.uint8))
    row = {"id": 1, "given": 0, "suggested": 1, "score": 0.5, "picture": uri}
    data["suspects"] = {"rows": [row] * 500, "classes": ["a", "b"], "note": ""}
    assert len(page.page(data).encode()) < 5_000_000
