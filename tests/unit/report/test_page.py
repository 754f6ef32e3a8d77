"""The page file: self-contained, safe against markup in names, small, updated while runs train."""

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
from made_runs import HAND, hand_run, write_images, write_run
from PIL import Image

from vista.analysis import TrajectoryRecorder, read_runs
from vista.data import source
from vista.methods import choose
from vista.report import figures, images, page, style
from vista.report.page import safe_json, write_page
from vista.report.payload import _plain, payload
from vista.report.watch import watch
from vista.runs.record import EPOCHS

EVIL = "</script><script>alert(1)</script>&\u2028"


def data_of(path: Path) -> dict[str, Any]:
    """The data embedded in a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.S)
    assert found is not None
    return dict(json.loads(found[1]))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    data = write_images(tmp_path / "images.npz")
    for seed in (0, 1):
        write_run(tmp_path / "runs" / f"ce{seed}", seed=seed, data=data)
        write_run(tmp_path / "runs" / f"vista{seed}", method="vista", seed=seed, data=data, teacher=True)
    return tmp_path / "runs"


def test_data_cannot_close_the_script_element() -> None:
    text = safe_json({"name": EVIL})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"name": EVIL}


def test_the_page_is_self_contained(runs: Path, tmp_path: Path) -> None:
    write_page(read_runs([runs]), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    markup = re.sub(r"<script.*?</script>|<style>.*?</style>", "", text, flags=re.S)
    assert "default-src 'none'; img-src data:; style-src 'sha256-" in markup
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!data:)", markup)
    assert "@import" not in text
    assert "url(" not in text
    assert "innerHTML" not in text
    assert "frame-src" not in text
    for tag in ('name="description"', 'property="og:title"', 'property="og:description"', 'name="twitter:card"'):
        assert f"<meta {tag} content=" in markup
    assert 'rel="icon" href="data:image/svg+xml;base64,' in markup


def test_untrusted_names_are_text(tmp_path: Path) -> None:
    write_run(tmp_path / "run", classes=[EVIL, "b", "c"], method="vista", teacher=True)
    write_page(read_runs([tmp_path / "run"]), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "<script>alert" not in text
    assert data_of(tmp_path / "page.html")["suspects"]["classes"][0] == EVIL


def test_the_payload_holds_table_figures_suspects_and_descriptions(runs: Path) -> None:
    data = payload(read_runs([runs]))
    assert [(row["name"], row["seeds"]) for row in data["table"]["rows"]] == [("cross-entropy", 2), ("VISTA", 2)]
    assert set(data["figures"]) >= {"accuracy", "forgetting", "timeline", "forgotten-classes"}
    assert len(data["runs"]) == 4
    assert all(row["image"].startswith("data:image/png;base64,") for row in data["suspects"]["rows"])
    assert set(data["style"]["sections"]) >= set(data["figures"])


def test_the_page_takes_its_colours_and_line_styles_from_the_shared_table() -> None:
    data = payload([hand_run(f"run{k}") for k in range(8)])
    text = page.page(data)
    for name, colour in (*style.LIGHT.items(), *style.DARK.items()):
        assert f"--{name}: {colour};" in text
    assert len(data["style"]["lines"]) == 9
    assert data["style"]["lines"][8]["dash"] == style.line_style(8).dash
    assert data["style"]["series"] == {f"run{k}": k + 1 for k in range(8)}, "grey is the baseline's"
    own = (Path(page.__file__).parent / name for name in ("page.css", *page.SCRIPTS))
    assert not [path.name for path in own if re.search(r"#[0-9a-f]{3,8}\b", path.read_text())]


def test_columns_of_the_heat_map_start_at_the_epoch_of_their_state() -> None:
    data = payload([hand_run()])
    assert data["figures"]["timeline"][0]["columns"] == [[0, 1.0], [1, 1.0, 0.8, 0.8], [2, 0.2], [3, 0.2]]


SHARE = "The weight of a state is its share of all that is in colour."


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("vista-light", SHARE),
        ("vista-uniform", "Every past state is in the teacher, with equal weights."),
        ("vista-accuracy", "Every past state is in the teacher, weighted by its accuracy."),
        ("vista-chronological", f"The newest state is ranked first. {SHARE}"),
        ("vista-smoothing", f"{SHARE} Each state is averaged over 3 epochs."),
    ],
)
def test_the_weighting_of_a_run_is_explained(tmp_path: Path, method: str, said: str) -> None:
    write_run(tmp_path / "run", method=method, options=choose(method).options)
    (panel,) = payload(read_runs([tmp_path / "run"]))["figures"]["marginal-coverage"]
    assert panel["weighting"] == said


def test_a_missing_standard_error_is_null_on_the_page() -> None:
    """JSON has no NaN."""
    panel = figures.Band(np.array([0.5, 1 / 3]), np.array([np.nan, 0.1]), 2)
    assert _plain(panel) == {"mean": [0.5, 0.33333], "se": [None, 0.1], "seeds": 2}


def test_suspects_are_those_of_the_most_accurate_run(tmp_path: Path) -> None:
    rights = {"low": 0.2, "high": 0.8, "middle": 0.5}
    for seed, (name, share) in enumerate(rights.items()):
        correct = np.tile(np.arange(15) < 15 * share, (4, 1))
        write_run(tmp_path / name, method="vista", seed=seed, teacher=True, correct=correct)
    write_run(tmp_path / "plain", method="ce", correct=np.ones((4, 15), bool))
    note = payload(read_runs([tmp_path]))["suspects"]["note"]
    assert note.startswith(f"Found by {tmp_path / 'high'}, the run with the highest validation accuracy of 3")
    alone = payload(read_runs([tmp_path / "low", tmp_path / "plain"]))["suspects"]["note"]
    assert alone.startswith(f"Found by {tmp_path / 'low'}: about ")


def test_without_the_data_suspects_have_no_images(tmp_path: Path) -> None:
    write_run(tmp_path / "run", method="vista", teacher=True, data="npz:gone.npz")
    found = payload(read_runs([tmp_path / "run"]))["suspects"]
    assert "No images: data file gone.npz does not exist" in found["note"]
    assert not any("image" in row for row in found["rows"])


def test_images_of_changed_data_are_not_shown(tmp_path: Path) -> None:
    """Ids are positions in the data, which may name other samples after a change."""
    data = write_images(tmp_path / "images.npz")
    run = write_run(tmp_path / "run", method="vista", teacher=True, data=data)
    assert all("image" in row for row in payload(read_runs([run]))["suspects"]["rows"])
    with np.load(tmp_path / "images.npz") as file:
        arrays = dict(file)
    arrays["x_train"] = arrays["x_train"][::-1]
    np.savez(tmp_path / "images.npz", **arrays)
    found = payload(read_runs([run]))["suspects"]
    assert f"No images: {data} has changed since the run" in found["note"]
    assert found["rows"]
    assert not any("image" in row for row in found["rows"])


def test_images_of_a_run_without_their_hash_are_not_shown(tmp_path: Path) -> None:
    """A foreign run could name any file of the user."""
    data = write_images(tmp_path / "images.npz")
    run = write_run(tmp_path / "run", method="vista", teacher=True, data=data)
    described = {k: v for k, v in json.loads((run / "data.json").read_text()).items() if k != "inputs_hash"}
    (run / "data.json").write_text(json.dumps(described))
    found = payload(read_runs([run]))["suspects"]
    assert f"No images: the run has no hash of {data}" in found["note"]
    assert not any("image" in row for row in found["rows"])


@pytest.mark.parametrize("channels", [2, 4, 5])
def test_images_with_unsupported_channels_are_not_shown(tmp_path: Path, channels: int) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "many.npz", x=rng.integers(0, 255, (60, 4, 4, channels), dtype=np.uint8), y=np.arange(60) % 3)
    write_run(tmp_path / "run", method="vista", teacher=True, data=f"npz:{tmp_path / 'many.npz'}")
    found = payload(read_runs([tmp_path / "run"]))["suspects"]
    assert f"No images: images must have 1 or 3 channels, got {channels}" in found["note"]


def test_a_teacher_without_suspects_differs_from_no_teacher(tmp_path: Path) -> None:
    write_run(tmp_path / "clean", method="vista", teacher=True, noise="none")
    found = payload(read_runs([tmp_path / "clean"]))["suspects"]
    assert found["rows"] == []
    assert ": none of 45 labels looks wrong" in found["note"]
    write_run(tmp_path / "plain")
    assert payload(read_runs([tmp_path / "plain"]))["suspects"] is None


def test_names_that_are_not_utf8_are_escaped(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", method="vista", teacher=True, classes=["a\udc80", "b", "c"])
    write_page(read_runs([run]), tmp_path / "page.html")
    assert data_of(tmp_path / "page.html")["suspects"]["classes"][0] == r"a\udc80"
    write_page([hand_run("alone\udcff")], tmp_path / "page.html")
    assert data_of(tmp_path / "page.html")["runs"][0]["path"] == r"alone\udcff"
    assert r"alone\udcff" in (tmp_path / "page.html").read_text().replace("\u2068", "")


def test_right_to_left_names_are_isolated_in_the_title() -> None:
    data = payload([hand_run("\u05d0"), hand_run("b")])
    assert data["title"] == "\u2068\u05d0\u2069 and b"


def test_thumbnails_are_small_and_limited_in_total(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    uri = images.thumbnail(np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8))
    assert uri.startswith("data:image/png;base64,")
    image = Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))
    assert image.size == (48, 32)
    assert len(uri) < 6000
    data = write_images(tmp_path / "images.npz")
    known = source.load(data).inputs_hash
    monkeypatch.setattr(images, "MOST_BYTES", 5 * len(images.thumbnails(data, None, [0], known)[0]))
    assert 3 <= len(images.thumbnails(data, None, range(20), known)) <= 6


def test_a_run_before_its_first_epoch_has_no_figures(tmp_path: Path) -> None:
    write_run(tmp_path / "run", epochs=0, finished=False)
    data = payload(read_runs([tmp_path / "run"]))
    assert data["figures"] is None
    assert data["subtitle"].endswith("; 1 run, 0 epochs; 1 still in epoch 1")


def test_the_subtitle_uses_singular_and_plural() -> None:
    assert payload([hand_run("one", HAND[:1])])["subtitle"] == "one; 1 run, 1 epoch"
    assert payload([hand_run("one"), hand_run("two")])["subtitle"] == "one; 2 runs, 4 epochs"


def test_watch_writes_on_changes_and_ends_when_all_runs_have_finished(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "page.html"
    write_run(run, finished=False)
    seen: list[tuple[bool, bool]] = []
    waits = 0

    def wait(seconds: float) -> None:
        nonlocal waits
        assert seconds == 2.0
        waits += 1
        if waits == 2:  # the second poll found no change; now the run ends
            (run / "metrics.json").write_text(json.dumps({"best": {"test": METRICS}, "last": {"test": METRICS}}))

    def wrote(_: Any, over: bool) -> None:
        data = data_of(out)
        assert data["refresh_seconds"] == 2
        seen.append((over, data["watching"]))

    watch([run], out, wrote, seconds=2.0, wait=wait)
    assert seen == [(False, True), (True, False)]
    assert waits == 2


class StillWatching(Exception):
    """Ends the loop of the test."""


@pytest.mark.parametrize("planned", [{"epochs": 2}, {}])
def test_watch_of_a_recorder_ends_with_its_planned_epochs(tmp_path: Path, planned: dict[str, int]) -> None:
    recorder = TrajectoryRecorder(tmp_path / "mine", [0, 1, 0, 1], config={"method": "own", **planned})
    seen: list[tuple[int, bool]] = []
    waits = 0

    def wait(_: float) -> None:
        nonlocal waits
        waits += 1
        if waits > 2:
            raise StillWatching
        recorder.end_epoch(np.eye(2)[[0, 1, 1, 1]])
        os.utime(tmp_path / "mine" / EPOCHS, ns=(0, 0))  # the same time for every write

    def wrote(runs: Any, over: bool) -> None:
        seen.append((len(runs[0]), over))

    if planned:
        watch([tmp_path / "mine"], tmp_path / "page.html", wrote, wait=wait)
    else:
        with pytest.raises(StillWatching):
            watch([tmp_path / "mine"], tmp_path / "page.html", wrote, wait=wait)
    assert seen == [(0, False), (1, False), (2, bool(planned))]


def test_watch_retries_a_run_that_is_being_written(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    bits = (run / "coverage.safetensors").read_bytes()
    (run / "coverage.safetensors").unlink()
    written: list[bool] = []
    watch([run], tmp_path / "page.html", lambda _, over: written.append(over),
          wait=lambda _: (run / "coverage.safetensors").write_bytes(bits))  # fmt: skip
    assert written == [True]
    (run / "coverage.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"coverage\.safetensors is missing"):
        watch([run], tmp_path / "page.html", lambda _, over: None, wait=lambda _: None)


def test_watch_waits_for_runs_that_have_not_started(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    calls: list[Any] = []
    steps = iter((lambda: None, lambda: write_run(first / "run"), lambda: write_run(second, seed=1)))
    watch(
        [first, second],
        tmp_path / "page.html",
        lambda runs, over: calls.append((len(runs), over)),
        awaits=lambda missing: calls.append([path.name for path in missing]),
        wait=lambda _: next(steps)(),
    )
    assert calls == [["first", "second"], ["second"], (1, False), (2, True)]


METRICS = {"top1": 0.5, "ece": 0.1, "aurc": 0.1}


def test_the_largest_page_stays_under_five_megabytes(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    right = generator.random((200, 5000)) < np.linspace(0.1, 0.6, 200)[:, None]
    runs = [hand_run(f"run{k}", np.roll(right, k, axis=1)) for k in range(3)]
    data = payload(runs)
    uri = images.thumbnail(generator.integers(0, 256, (32, 32, 3), dtype=np.uint8))
    row = {"id": 1, "given": 0, "suggested": 1, "score": 0.5, "image": uri}
    data["suspects"] = {"rows": [row] * 500, "classes": ["a", "b"], "note": "", "run": "run0"}
    assert len(page.page(data).encode()) < 5_000_000
