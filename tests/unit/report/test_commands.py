"""``vista report`` and ``vista labels``: files, output and rejected options."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from made_runs import write_images, write_run

from vista.cli import main
from vista.noise.label_files import read_label_file
from vista.report.watch import watch
from vista.runs.folder import RunFolder


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run() -> Path:
    return write_run(Path("run"), method="vista", teacher=True, data=write_images(Path("images.npz")))


def test_report_writes_the_page_and_figures_by_name(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-o", "page.html", "--figures", "figures", "--only", "forgetting", "--formats", "svg"]
    assert main(["report", str(run), *words]) == 0
    assert Path("page.html").exists()
    assert [p.name for p in Path("figures").iterdir()] == ["forgetting.svg"]
    assert capsys.readouterr().out.startswith(f"Wrote {Path.cwd() / 'page.html'}\n")


@pytest.mark.parametrize(
    ("paths", "page"),
    [
        (["run"], "run/report.html"),
        (["folder"], "folder/report.html"),
        (["folder/theirs.npz"], "folder/report.html"),
        (["run", "folder/other"], "report.html"),
    ],
    ids=["run", "folder of runs", "npz file", "several"],
)
def test_the_default_page_is_in_the_folder_of_what_is_drawn(
    run: Path, paths: list[str], page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(Path("folder/other"), method="ce", data="npz:images.npz")
    np.savez("folder/theirs.npz", correct=np.ones((2, 3), bool))
    assert main(["report", *paths]) == 0
    first, *following = capsys.readouterr().out.splitlines()
    assert first == f"Wrote {Path.cwd() / page}"
    judges = paths[0] == "run"  # it has a teacher, the others have no predictions
    assert following == ["Next: vista review run" if judges else f"Next: vista report {' '.join(paths)} --open"]
    assert Path(page).is_file()


def test_after_the_report_of_an_unfinished_run_comes_its_resume(capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("half"), finished=False)
    assert main(["report", "half"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["Next: vista resume half"]


@pytest.mark.parametrize("watching", [False, True])
@pytest.mark.parametrize("found", [True, False])
def test_open_shows_the_page_once_or_prints_its_address(
    run: Path, found: bool, watching: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or found)
    assert main(["report", str(run), "--open", *(["--watch"] if watching else [])]) == 0
    address = (Path.cwd() / "run/report.html").as_uri()
    assert opened == [address]
    assert (f"no web browser found: open {address}" in capsys.readouterr().err) is not found


def test_figures_alone_write_no_page(run: Path) -> None:
    assert main(["report", str(run), "--figures", "figures", "--only", "contributing-set", "--formats", "svg"]) == 0
    assert not Path("run/report.html").exists()
    assert not Path("report.html").exists()


def test_figures_of_anchors_are_drawn_for_methods_that_keep_them() -> None:
    plain = str(write_run(Path("plain")))
    words = ["report", plain, "--figures", "figures", "--formats", "svg"]
    assert main(words) == 0
    drawn = {path.stem for path in Path("figures").iterdir()}
    assert drawn == {"accuracy", "forgetting", "test-vs-validation"}
    assert main([*words, "--only", "timeline"]) == 0
    assert "replayed as VISTA Basic" in Path("figures/timeline.svg").read_text(), "asked for by name"


def test_watching_finished_runs_writes_once(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), "--watch", "-o", "page.html"]) == 0
    assert f"Wrote {Path.cwd() / 'page.html'}: 1 run, 4 epochs, all finished" in capsys.readouterr().out


def test_watching_a_folder_without_a_run_waits_for_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("empty").mkdir()

    def stop(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(watch.__kwdefaults__, "wait", stop)
    assert main(["report", "empty", "--watch"]) == 130
    assert "no run yet in empty: waiting for one to start" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report", "nowhere"], "nowhere does not exist"),
        (["report"], "no run given"),
        (["report", "run", "-o", "no/where.html"], "out must be in an existing folder, got no/where.html"),
        (["report", "run", "--watch", "--every", "0"], "every must be a number of seconds greater than 0, got 0"),
        (
            ["report", "run", "--only", "forgetting"],
            "only selects figures, but none are written: add --figures",
        ),
        (["report", "run", "--formats", "png", "svg", "pdf"], "formats selects figures"),
        (["report", "run", "--every", "5"], "every is 5.0, but the page is written only once: add --watch"),
        (["labels", "run", "--drop"], "drop requires --clean FILE"),
        (["labels", "run", "--top", "1000"], "top must be between 1 and 45, the number of judged samples, got 1000"),
        (["labels", "run", "--top", "1", "--min-score", "0.5"], "top and min_score cannot be combined"),
        (["labels", "run", "--min-score", "7"], "min_score must be between 0 and 1, got 7.0"),
    ],
)
def test_bad_options_are_rejected(
    words: list[str], message: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_labels_prints_a_table_and_writes_both_lists(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["labels", str(run), "--top", "3"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    estimated = json.loads((run / "suspected_labels.json").read_text())["estimated"]
    assert f"the 3 most suspect of 45 labels, of which about {estimated} look wrong" in out
    assert "AUROC 1.0000" in out
    assert len((run / "suspected_labels.csv").read_text().splitlines()) == 4
    assert len(json.loads((run / "suspected_labels.json").read_text())["suspects"]) == 3


def test_labels_lists_the_estimated_number_by_default(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["labels", str(run)]) == 0
    listed = json.loads((run / "suspected_labels.json").read_text())
    assert len(listed["suspects"]) == listed["estimated"] > 0
    assert f"{listed['estimated']} of 45 labels look wrong" in " ".join(capsys.readouterr().out.split())
    assert main(["labels", str(run), "--min-score", "1"]) == 0
    assert "No label has such a score" in capsys.readouterr().out


def test_labels_as_json_are_one_object(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["labels", str(run), "--json", "--out", "lists", "--min-score", "0.5"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["run"] == "run"
    assert all(row["score"] >= 0.5 for row in said["suspects"])
    assert Path("lists/suspected_labels.csv").exists()


@pytest.mark.parametrize("drop", [False, True])
def test_labels_clean_writes_a_label_file_for_training(run: Path, drop: bool) -> None:
    folder = RunFolder(run)
    labels, train = folder.labels(), folder.split().train
    wrong = labels.given[train] != labels.true[train]
    words = ["--top", str(wrong.sum()), "--clean", "clean.csv", *(["--drop"] if drop else [])]
    assert main(["labels", str(run), *words]) == 0
    read = read_label_file("clean.csv", labels.true, 3, folder.data().classes)[train]
    assert (read[wrong] == (-1 if drop else labels.true[train][wrong])).all()
    assert (read[~wrong] == labels.given[train][~wrong]).all()


def test_a_run_without_a_teacher_or_predictions_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["labels", str(write_run(Path("plain")))]) == 2
    assert "has no predictions.safetensors" in capsys.readouterr().err
