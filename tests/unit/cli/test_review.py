"""``vista review`` before it serves, and ``vista labels --decisions``."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vista.analysis.suspects import of_run
from vista.review.decisions import Decision, DecisionLog
from vista.review.run_decisions import subject_of
from vista.runs.folder import RunFolder

from .conftest import Vista

TINY = ("--network", "mlp", "--epochs", "3", "--batch-size", "16", "--lr", "0.05", "--device", "cpu", "--quiet")


@pytest.fixture
def reviewed(vista: Vista, tmp_path: Path) -> Path:
    """A run on ``photos``, and decisions about its first three samples: dog, no label, skip."""
    generator = np.random.default_rng(0)
    for number in range(40):
        path = tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)
    assert vista("train", "--data", "folder:photos", "--out", "run", *TINY).code == 0
    folder = RunFolder.open("run")
    log = DecisionLog(tmp_path / "run" / "decisions.jsonl", subject_of(folder))
    log.append([Decision(0, "accept", 1, 0), Decision(1, "unlabel", None, 0), Decision(2, "skip", None, 0)])
    log.close()
    return tmp_path / "run" / "decisions.jsonl"


@pytest.mark.filterwarnings("ignore:1 of 30 training samples")
def test_decided_labels_train_again(vista: Vista, reviewed: Path) -> None:
    said = vista("labels", "run", "--decisions", "run/decisions.jsonl", "--clean", "labels.csv")
    assert "3 decisions: 2 labels change, 1 of them to no label; 38 labels stay" in said.out
    assert "Next: vista train --data folder:photos --method label-smoothing --network mlp" in said.out
    words = said.out.split("Next: vista ")[1].split()
    with open("labels.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows[:3]] == ["dog", "", "cat"]
    given = [("cat", "dog")[label] for label in RunFolder.open("run").labels().given]
    assert [row["label"] for row in rows[2:]] == given[2:], "labels without a decision stay"
    assert rows[0]["file"] == "cat/00.png"
    assert vista(*words, "--device", "cpu", "--quiet").code == 0
    again, first = RunFolder.open("run-corrected"), RunFolder.open("run")
    assert again.labels().given[:3].tolist() == [1, -1, 0]
    for name in ("method", "options", "network", "epochs", "batch_size", "lr", "lr_schedule", "validation"):
        assert getattr(again.config(), name) == getattr(first.config(), name), name
    outside = [
        np.setdiff1d(np.arange(40), np.concatenate([each.split().train, each.split().val])) for each in (first, again)
    ]
    assert set(outside[0]) - {1} <= set(outside[1]) | {1}
    compared = json.loads(vista("compare", "run", "run-corrected", "--device", "cpu", "--json").out)
    assert compared["samples"] == len(again.data().files) - len(again.split().train) - len(again.split().val)
    said = vista("compare", "run", "run-corrected", "--device", "cpu")
    assert "test samples with the labels of run-corrected" in said.out


@pytest.mark.filterwarnings("ignore:39 of 40 samples keep their own label")
@pytest.mark.parametrize("which", ["best", "last"])
@pytest.mark.parametrize("changes", [False, True])
def test_what_follows_a_comparison_works(vista: Vista, reviewed: Path, changes: bool, which: str) -> None:
    """Runs whose validation labels differ cannot be drawn together."""
    given, val = RunFolder.open("run").labels().given, RunFolder.open("run").split().val
    label = 1 - given[val[0]] if changes else given[val[0]]
    Path("labels.csv").write_text(f"id,label\n{val[0]},{label}\n")
    words = ("--data", "folder:photos", "--labels", "labels.csv", "--split-from", "run", "--out", "after", *TINY)
    assert vista("train", *words).code == 0
    said = vista("compare", "run", "after", "--which", which, "--device", "cpu")
    name = {"best": "best validation epoch", "last": "last epoch"}[which]
    assert f"with the labels of after, 0 of them corrected; weights of the {name}" in " ".join(said.out.split())
    following = said.out.split("Next: vista ")[1].split()
    assert following == ["report", *(["after"] if changes else ["run", "after"]), "--open"]
    assert vista(*following[:-1]).code == 0


def test_files_are_sorted_only_on_request(vista: Vista, reviewed: Path, tmp_path: Path) -> None:
    base = ("labels", "run", "--decisions", "run/decisions.jsonl")
    before = sorted(path.relative_to(tmp_path) for path in (tmp_path / "photos").rglob("*.png"))
    said = vista(*base, "--copy-to", "sorted")
    assert "Would copy 39 files" in said.out
    assert not Path("sorted").exists()
    said = vista(*base, "--copy-to", "sorted", "--apply")
    assert "Copied 39 files to sorted" in said.out
    assert Path("sorted/dog/00.png").exists()
    assert not Path("sorted/cat/00.png").exists()
    assert "copy_to must be a new or empty folder, got sorted" in vista(*base, "--copy-to", "sorted").err
    assert "copy_to must be outside the data" in vista(*base, "--copy-to", "photos/x").err
    assert vista(*base, "--move").out.count("->") == 2
    assert sorted(path.relative_to(tmp_path) for path in (tmp_path / "photos").rglob("*.png")) == before


def test_moved_files_can_be_moved_back(vista: Vista, reviewed: Path, tmp_path: Path) -> None:
    base = ("labels", "run", "--decisions", "run/decisions.jsonl", "--move", "--apply")
    shutil.copy("photos/cat/04.png", "photos/dog/x.png")
    said = vista(*base)
    assert said.code == 2, "the data have changed"
    assert "photos has changed since run: dog/x.png is new" in said.err
    Path("photos/dog/x.png").unlink()
    before = {path: path.read_bytes() for path in (tmp_path / "photos").rglob("*.png")}
    said = vista(*base)
    assert "Moved 2 files; to move them back: sh run/undo-move.sh" in said.out
    assert Path("photos/dog/00.png").exists()
    assert Path("photos-unlabelled/cat/02.png").exists()
    assert not Path("photos/cat/00.png").exists()
    subprocess.run(["sh", "run/undo-move.sh"], check=True)
    assert {path: path.read_bytes() for path in (tmp_path / "photos").rglob("*.png")} == before
    subprocess.run(["sh", "run/undo-move.sh"], check=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("labels", "run", "--decisions", "none.jsonl", "--clean", "l.csv"),
            "decisions none.jsonl does not exist: `vista",
        ),
        (
            ("labels", "run", "--decisions", "run/decisions.jsonl"),
            "decisions needs --clean FILE, --copy-to DIR or --move",
        ),
        (("labels", "run", "--move"), "move requires --decisions FILE"),
        (
            ("labels", "run", "--decisions", "d", "--clean", "l.csv", "--top", "3"),
            "top cannot be combined with decisions",
        ),
        (("compare", "run", "none"), "none does not exist"),
        (
            ("train", "--data", "folder:photos", "--labels", "words.csv"),
            "'dgo' is no class and no class number; did you",
        ),
        (("train", "--data", "folder:photos", "--split-from", "none"), "none does not exist"),
        (("review", "none"), "none does not exist"),
        (("review", "run", "--port", "70000"), "port must be 0 to 65535, got 70000"),
    ],
)
def test_bad_input(vista: Vista, reviewed: Path, words: tuple[str, ...], message: str) -> None:
    Path("words.csv").write_text("id,label\n0,dgo\n")
    said = vista(*words)
    assert said.code == 2
    assert message in " ".join(said.err.split())


def test_an_unfinished_run_is_reported_with_its_epoch(vista: Vista, reviewed: Path) -> None:
    Path("run/metrics.json").unlink()
    said = vista("review", "run")
    assert said.code == 2
    assert "run has not finished: it has completed epoch 3 of 3; `vista resume run` continues it" in said.err


def test_without_a_browser_the_address_is_printed(
    vista: Vista, reviewed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    monkeypatch.setattr("vista.review.server.serve", lambda session, opened, ready: ready("http://127.0.0.1:1/key/"))
    said = vista("review", "run")
    assert said.code == 0
    assert "Review page: http://127.0.0.1:1/key/\n" in said.out
    assert "No web browser was found: open the address in one on this machine." in said.out
    assert "Next: vista labels run --decisions run/decisions.jsonl --clean labels.csv" in said.out


def decide(name: str, decision: str) -> list[int]:
    """Decide about all suspects of a run that look wrong; returns their ids."""
    folder, found = RunFolder.open(name), of_run(RunFolder.open(name))
    ids = found.ids[found.is_doubted].tolist()
    suggested = dict(zip(found.ids.tolist(), found.suggested.tolist(), strict=True))
    given, content = folder.labels().given, folder.content_hashes()
    label = {"accept": suggested.get, "keep": given.__getitem__, "skip": lambda sample: None}[decision]
    made = [
        Decision(each, decision, None if (k := label(each)) is None else int(k), int(given[each]), None, content[each])
        for each in ids
    ]
    log = DecisionLog(folder.path / "decisions.jsonl", subject_of(folder))
    log.append(made)
    log.close()
    return ids


def test_what_is_decided_is_counted_and_leads_on(vista: Vista, reviewed: Path) -> None:
    reviewed.unlink()
    ids = decide("run", "skip")
    for command in ("labels", "report"):
        assert "Next: vista review run\n" in vista(command, "run").out, "skipped is not decided"
    assert f"0 of the {len(ids)}" in vista("labels", "run", "--top", "40").out
    decide("run", "accept")
    said = vista("labels", "run", "--top", "40")
    assert f"Decided: {len(ids)} of the {len(ids)} listed samples with a score above 0.5\n" in said.out
    following = "Next: vista labels run --decisions run/decisions.jsonl --clean labels.csv\n"
    for command in ("labels", "report"):
        assert following in vista(command, "run").out
    assert re.search(
        r"\. \d+ of the \d+ with a score above 0\.5 are decided\. To use", Path("run/report.html").read_text()
    )
    reviewed.unlink()
    assert "Decided:" not in vista("labels", "run").out


@pytest.mark.parametrize("moved", [False, True])
def test_a_review_after_a_retraining_starts_with_the_decisions(
    vista: Vista, reviewed: Path, moved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A corrected or confirmed sample need not be decided again; a photo that was moved is found by its content."""
    reviewed.unlink()
    ids = decide("run", "accept")
    assert vista("labels", "run", "--decisions", "run/decisions.jsonl", "--clean", "labels.csv").code == 0
    words = ("--data", "folder:photos", "--labels", "labels.csv")
    if moved:
        assert vista("labels", "run", "--decisions", "run/decisions.jsonl", "--move", "--apply").code == 0
        words = words[:2]
    assert vista("train", *words, "--split-from", "run", "--out", "after", *TINY).code == 0
    shown = []
    monkeypatch.setattr("vista.review.server.serve", lambda session, opened, ready: shown.append(session))
    said = vista("review", "after")
    assert f"{len(ids)} samples were decided in the review of run" in said.out
    after, before = RunFolder.open("after"), RunFolder.open("run")
    found = shown[0].found
    decided = {after.content_hashes()[each] for each, status in zip(found.ids, shown[0].status, strict=True) if status}
    assert decided == {before.content_hashes()[each] for each in ids}
    assert {each.decision for each in shown[0].log.current.values()} == {"keep"}
    assert "samples were decided in the review of" not in vista("review", "after").out, "only once"
