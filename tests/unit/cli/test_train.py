"""vista train and vista resume: what they print, reuse and reject, and how they stop and resume."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from vista.cli import terminal
from vista.runs.folder import RunFolder
from vista.training import api
from vista.training.events import Interrupted
from vista.training.scheduler import Job

from .conftest import Vista, in_two_processes

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")
Small = tuple[str, ...]
pytestmark = pytest.mark.filterwarnings("default:.*(was restored|holds the old run).*:UserWarning")


def test_plain_output_is_rows_without_control_characters(vista: Vista, small: Small) -> None:
    said = vista("train", *small, "--method", "vista")
    assert said.code == 0
    assert not CONTROL.search(said.out + said.err)
    rows = re.findall(r"^ +(\d) .*$", said.out, re.MULTILINE)
    assert rows == ["1", "2", "3"]
    assert "epoch        lr     loss  val acc  test acc   beta  anchors" in said.out
    place = Path("runs/npz-blobs.npz-symmetric-0.2-vista-seed0")
    assert f"Saved in {place}" in said.out
    metrics = json.loads((place / "metrics.json").read_text())
    assert f"{100 * metrics['best']['test']['top1']:.2f}" in said.out


def test_quiet_prints_the_result_only(vista: Vista, small: Small) -> None:
    said = vista("train", *small, "--out", "run", "--quiet")
    assert "Saved in run" in said.out
    assert "val acc" not in said.out
    assert said.err == ""


def test_json_is_one_object_and_progress_goes_to_stderr(vista: Vista, small: Small) -> None:
    said = vista("train", *small, "--out", "run", "--json")
    result = json.loads(said.out)
    assert result["metrics"] == json.loads(Path("run/metrics.json").read_text())
    assert result["config"] == json.loads(Path("run/config.json").read_text())
    assert result["run"] == "run"
    assert "val acc" in said.err


def test_the_same_command_uses_what_is_there_and_fresh_begins_anew(vista: Vista, small: Small) -> None:
    vista("train", *small, "--out", "run", "--quiet")
    mark = Path("run/report.html")
    mark.touch()
    assert "has already finished" in vista("train", *small, "--out", "run").out
    other = vista("train", *small, "--seed", "1", "--out", "run")
    assert other.code == 2
    assert "seed=0 instead of 1" in other.err
    assert mark.exists()
    assert vista("train", *small, "--seed", "1", "--out", "run", "--fresh", "--quiet").code == 0
    assert not mark.exists()


def test_fresh_deletes_nothing_that_is_no_run(vista: Vista, small: Small) -> None:
    Path("precious").mkdir()
    Path("precious/config.json").write_text('{"architectures": ["Other"]}')
    said = vista("train", *small, "--out", "precious", "--fresh")
    assert said.code == 2
    assert "is not a run" in said.err
    assert Path("precious/config.json").exists()


@pytest.mark.parametrize(
    "wrong",
    [("--network", "resnet17"), ("--noise", "file:none.csv"), ("--validation", "5000"), ("--device", "cuda:7")],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("command", ["train", "compare"])
def test_fresh_keeps_the_old_run_until_the_new_one_has_begun(
    vista: Vista, small: Small, wrong: tuple[str, str], command: str
) -> None:
    compared = ("--methods", "ce,ban", "--seeds", "1", "--at-once", "1")
    words = (command, *small, *(compared if command == "compare" else ("--method", "ban")), "--out", "run", "--quiet")
    assert vista(*words).code == 0
    before = contents(Path("run"))
    beside = ("--at-once", "2") if command == "compare" and wrong[0] == "--network" else ()  # such processes take long
    said = vista(*words, *wrong, *beside, "--fresh")
    assert said.code in (1, 2)
    assert "still holds the old run" not in said.err, "its error says enough"
    assert contents(Path("run")) == before
    assert [path.name for path in Path().iterdir() if path.name.startswith(".")] == []
    assert vista(*words, "--epochs", "2", "--fresh").code == 0
    assert [path.name for path in Path().rglob("*.replaced")] == []


def contents(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != "lock"}


def test_an_old_run_whose_turn_never_came_is_still_there(
    vista: Vista, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is deleted once the new one runs, and reported: the same command would count it as finished."""
    words = ("compare", *small, "--methods", "ce", "--seeds", "2", "--out", "runs", "--at-once", "1", "--quiet")
    assert vista(*words).code == 0
    before = contents(Path("runs/ce-seed1"))
    with monkeypatch.context() as patch:
        stop_after(1, patch, signal.SIGINT)
        said = vista(*words, "--fresh")
    assert said.code == 130
    assert "vista: note: runs/ce-seed1 still holds the old run: it was not replaced" in said.err
    assert sorted(path.name for path in Path("runs").iterdir()) == ["ce-seed0", "ce-seed1"]
    assert not Path("runs/ce-seed0/metrics.json").exists()
    assert contents(Path("runs/ce-seed1")) == before


@pytest.mark.parametrize("again", [(), ("--fresh",)], ids=["same command", "fresh"])
@pytest.mark.parametrize("method", ["ce", "ban"])
def test_killed_before_the_new_runs_began_it_loses_no_old_one(
    vista: Vista, small: Small, again: tuple[str, ...], method: str
) -> None:
    """A run that was set aside is not listed, and the next command restores it, whether it succeeds or fails."""
    words = ("compare", *small, "--methods", method, "--seeds", "2", "--out", "runs", "--at-once", "1", "--quiet")
    assert vista(*words).code == 0
    if method == "ban":
        for file in ("config.json", "metrics.json"):  # so that of this one only what it needed first is a run
            Path("runs/ban-seed1", file).unlink()
    before = contents(Path("runs"))
    killed = (
        "import os, sys; from vista.cli import main; from vista.training import api\n"
        "api._drive = lambda *_: os._exit(9); main(sys.argv[1:])"
    )
    assert subprocess.run([sys.executable, "-c", killed, *words, "--fresh"]).returncode == 9
    assert len(list(Path("runs").rglob("*.replaced"))) == 2
    listed = vista("runs", "runs", "--json")
    assert json.loads(listed.out)["runs"] == []
    assert listed.err.count("was set aside by a command with --fresh that was killed: ") == 2
    assert (said := vista("resume", f"runs/{method}-seed0")).code == 2
    assert "was set aside by a command with --fresh that was killed: " in said.err or method == "ban"
    said = vista(*words, "--network", "resnet17", *again)
    assert said.code in (1, 2)
    assert said.err.count("was restored: the command that was replacing it was killed") == 2
    assert contents(Path("runs")) == before
    assert not list(Path("runs").rglob("*.replaced"))


def test_sigterm_before_the_new_runs_began_leaves_the_old_ones(
    vista: Vista, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("train", *small, "--out", "run", "--quiet")
    assert vista(*words).code == 0
    before = contents(Path("run"))
    monkeypatch.setattr(api, "_drive", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    assert vista(*words, "--fresh").code == 128 + signal.SIGTERM
    assert contents(Path("run")) == before
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_name_that_leaves_no_room_for_an_old_run_beside_it_is_rejected(vista: Vista, small: Small) -> None:
    longest = "a" * (255 - len("..replaced"))
    assert vista("train", *small, "--out", longest, "--quiet", "--epochs", "2").code == 0
    said = vista("train", *small, "--out", f"{longest}é", "--quiet")
    assert said.code == 2
    assert said.err == f"vista: error: the name {longest}é is 2 bytes too long for a run: choose another --out\n"
    assert not Path(f"{longest}é").exists()


def test_stopped_while_old_runs_are_moved_it_brings_them_back(
    vista: Vista, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("train", *small, "--out", "run", "--quiet")
    assert vista(*words).code == 0
    before, rename = contents(Path("run")), Path.rename

    def stopped(self: Path, target: Path) -> Path:
        moved = rename(self, target)
        if self.name == "run":
            os.kill(os.getpid(), signal.SIGTERM)
        return moved

    monkeypatch.setattr(Path, "rename", stopped)
    assert vista(*words, "--fresh").code == 128 + signal.SIGTERM
    assert contents(Path("run")) == before
    assert not Path(".run.replaced").exists()


def test_an_old_run_that_another_one_needed_is_reported_too(
    vista: Vista, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("train", *small, "--method", "ban", "--out", "run", "--quiet")
    assert vista(*words).code == 0
    Path("run/config.json").unlink()
    before = contents(Path("run"))
    monkeypatch.setattr(api, "_drive", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    assert "note: run/earlier/teacher still holds the old run: it was not replaced" in vista(*words, "--fresh").err
    assert contents(Path("run")) == before


def test_killed_once_the_new_run_had_begun_it_leaves_the_new_one(vista: Vista, small: Small) -> None:
    words = ("train", *small, "--out", "run", "--quiet")
    assert vista(*words).code == 0
    again = (*words, "--epochs", "2")
    killed = (
        "import os, sys; from vista.cli import main; from vista.training import replace\n"
        "replace.Replacement.delete_old = lambda *_: os._exit(9); main(sys.argv[1:])"
    )
    assert subprocess.run([sys.executable, "-c", killed, *again, "--fresh"]).returncode == 9
    assert Path(".run.replaced/metrics.json").exists()
    note = "vista: note: the run that run has replaced is still in .run.replaced, because the command with --fresh was"
    assert vista("runs", ".").err == f"{note} killed: delete it with `vista runs delete .run.replaced`\n"
    said = vista(*again)
    assert (said.code, said.err) == (0, "")
    assert json.loads(Path("run/config.json").read_text())["epochs"] == 2
    assert not Path(".run.replaced").exists()


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("start", ["resume", "train", "fresh"])
def test_a_foreign_folder_in_the_place_of_an_old_run_is_left_alone(vista: Vista, small: Small, start: str) -> None:
    words = ("train", *small, "--out", "run", "--quiet")
    assert vista(*words).code == 0
    Path("run/metrics.json").unlink()
    Path(".run.replaced").mkdir()
    Path(".run.replaced/1.jpg").write_text("mine")
    said = vista(*{"resume": ("resume", "run", "--quiet"), "train": words, "fresh": (*words, "--fresh")}[start])
    assert said.code == (2 if start == "fresh" else 0)
    assert ".run.replaced is left alone: " in said.err
    assert [path.name for path in Path(".run.replaced").iterdir()] == ["1.jpg"]
    assert vista("runs", ".").err == ""
    shutil.rmtree("run")
    assert vista(*words).code == 0
    assert [path.name for path in Path(".run.replaced").iterdir()] == ["1.jpg"]


def test_the_rest_of_an_old_run_whose_deletion_was_interrupted_is_deleted(vista: Vista, small: Small) -> None:
    words = ("train", *small, "--out", "run", "--quiet")
    assert vista(*words).code == 0
    Path("run").rename(".run.replaced")
    assert vista(*words, "--fresh").code == 0
    Path("run").rename(".run.replaced")
    assert vista("train", *small, "--out", "other", "--quiet").code == 0
    Path("other").rename("run")
    Path(".run.replaced/config.json").unlink()
    assert vista(*words).code == 0
    assert not Path(".run.replaced").exists()


def test_an_old_run_does_not_come_back_where_another_command_works(vista: Vista, small: Small) -> None:
    words = ("train", *small, "--out", "run", "--quiet")
    assert vista(*words).code == 0
    Path("run").rename(".run.replaced")
    with RunFolder(Path("run")).locked():
        said = vista(*words)
        assert Path(".run.replaced/metrics.json").exists()
    assert said.code == 1
    assert f"run is in use by process {os.getpid()}" in said.err


def test_outside_the_main_thread_where_no_signal_can_be_caught_fresh_begins_anew(vista: Vista, small: Small) -> None:
    words = ("train", *small, "--out", "run", "--quiet")
    assert vista(*words).code == 0
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(vista, *words, "--epochs", "2", "--fresh").result().code == 0


def test_what_a_command_has_set_aside_no_other_one_puts_back(
    vista: Vista, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("train", *small, "--out", "run", "--quiet")
    assert vista(*words).code == 0
    said = []

    def drive(jobs: list[Job], *_: object) -> None:
        said.extend(vista(*words, *more) for more in ((), ("--fresh",)))
        raise Interrupted(jobs[0].out, signal.SIGTERM)

    monkeypatch.setattr(api, "_drive", drive)
    assert vista(*words, "--fresh").code == 128 + signal.SIGTERM
    assert len(said) == 2
    for each in said:
        assert each.code == 1
        assert f".run.replaced is in use by process {os.getpid()}: wait until that has ended" in each.err


def test_an_old_run_does_not_come_back_over_what_somebody_put_in_its_place(vista: Vista, small: Small) -> None:
    words = ("train", *small, "--out", "run", "--quiet")
    assert vista(*words).code == 0
    Path("run").rename(".run.replaced")
    Path("run").mkdir()
    Path("run/notes.txt").write_text("precious")
    said = vista(*words)
    assert said.code == 2
    assert "run contains notes.txt, but the run that was there before is in" in said.err
    assert Path("run/notes.txt").read_text() == "precious"
    assert Path(".run.replaced/metrics.json").exists()
    Path("run/notes.txt").unlink()
    assert vista(*words).code == 0
    assert not Path(".run.replaced").exists()


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("notes/mine.txt", "notes"),
        (".git/HEAD", ".git"),
        (".notes.txt", ".notes.txt"),
        ("tensorboard/mine.ipynb", "tensorboard/mine.ipynb"),
    ],
)
def test_what_is_not_of_a_run_does_not_go_with_it(vista: Vista, small: Small, file: str, named: str) -> None:
    words = ("train", *small, "--out", "run", "--quiet")
    mine = Path("run", file)
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("precious")
    assert vista(*words).code == 0
    assert vista("labels", "run").code == 0
    assert vista("report", "run", "-o", "run/report.html").code == 0
    for again in ((*words, "--fresh"), ("runs", "delete", "run", "--yes")):
        said = vista(*again)
        assert said.code == 2
        assert f"run contains {named}, which is not part of the run: move or delete that first" in said.err
    assert mine.read_text() == "precious"
    Path("run", named).rename("elsewhere")
    assert vista(*words, "--fresh").code == 0
    assert not Path("run/report.html").exists()
    assert vista("runs", "delete", "run", "--yes").code == 0


def test_another_option_in_the_same_place_is_named(vista: Vista, small: Small) -> None:
    words = ("--out", "run", "--quiet")
    assert vista("train", *small, "--method", "vista", *words).code == 0
    said = vista("train", *small, "--method", "vista", "--tau", "0.5", *words)
    assert "run holds another run, with tau=0.0 instead of 0.5: choose another --out, or replace" in said.err
    said = vista("train", *small, "--method", "ce", *words)
    assert "run holds another run, with method='vista' instead of 'ce'" in said.err
    for name, wrong in (("network", "mlpp"), ("method", "cee")):
        said = vista("train", *small, f"--{name}", wrong, *words)
        assert f"{name} {wrong!r} is unknown; did you mean {wrong[:-1]!r}" in said.err


def test_fresh_rejects_all_or_nothing(vista: Vista, small: Small) -> None:
    words = ("compare", *small, "--methods", "ce", "--seeds", "2", "--out", "runs", "--quiet")
    assert vista(*words).code == 0
    assert vista("train", *small, "--out", "runs/ce-seed1/mine", "--quiet").code == 0
    said = vista(*words, "--fresh")
    assert said.code == 2
    assert "runs/ce-seed1 contains another run, runs/ce-seed1/mine: move or delete that first" in said.err
    assert Path("runs/ce-seed0/metrics.json").exists()
    assert Path("runs/ce-seed1/mine/metrics.json").exists()
    assert vista("runs", "delete", "runs/ce-seed1/mine", "--yes").code == 0
    with RunFolder(Path("runs/ce-seed1")).locked():
        said = vista(*words, "--fresh")
    assert said.code == 1
    assert "runs/ce-seed1 is in use by process" in said.err
    assert sorted(path.name for path in Path("runs").iterdir()) == ["ce-seed0", "ce-seed1"]
    assert Path("runs/ce-seed0/metrics.json").exists()


def test_the_folder_one_is_in_is_not_removed(
    vista: Vista, small: Small, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = Path(small[small.index("--data") + 1].removeprefix("npz:")).resolve()
    own = ("--data", f"npz:{data}", "--out", ".", "--quiet", "--fresh")
    Path("run").mkdir()
    monkeypatch.chdir("run")
    assert vista("train", *small, *own).code == 0
    said = vista("train", *small, *own)
    assert said.code == 2
    assert ". is, or contains, the current folder: change to another folder first" in said.err
    assert Path("metrics.json").exists()
    Path("tensorboard").mkdir()
    monkeypatch.chdir("tensorboard")
    assert ".. is, or contains, the current folder" in vista("runs", "delete", "..", "--yes").err
    assert Path("../metrics.json").exists()


def stop_after(epoch: int, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The signal comes when the epoch ends."""

    def ended(self: Any, job: Any, way: Any, event: Any) -> None:
        if event.line["epoch"] == epoch:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(terminal.Display, "ended", ended)


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_stopped_it_says_how_to_go_on_and_resume_ends_as_if_never_stopped(
    vista: Vista, small: Small, monkeypatch: pytest.MonkeyPatch, number: int, name: str
) -> None:
    vista("train", *small, "--out", "whole", "--quiet")
    with monkeypatch.context() as patch:
        stop_after(1, patch, number)
        said = vista("train", *small, "--out", "run", "--quiet")
    assert said.code == 128 + number
    assert name in said.err
    assert "vista resume run" in said.err
    assert not Path("run/metrics.json").exists()
    again = vista("resume", "run", "--device", "cpu", "--quiet")
    assert again.code == 0
    for file in ("last.safetensors", "epochs.jsonl", "metrics.json"):
        assert Path("run", file).read_bytes() == Path("whole", file).read_bytes(), file


def test_stopped_in_a_run_that_it_needs_first_it_is_listed_and_resumed(
    vista: Vista, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("train", *small, "--method", "ban", "--out", "run", "--quiet")
    with monkeypatch.context() as patch:
        stop_after(1, patch, signal.SIGINT)
        said = vista(*words)
    assert said.code == 130
    assert "vista resume run" in said.err
    (row,) = json.loads(vista("runs", "run", "--json").out)["runs"]
    assert row["run"] == "run"
    assert row["status"] == "epoch 0 of 3"
    assert vista("report", "run").code == 2
    assert vista(*words, "--epochs", "2").code == 2
    assert vista("resume", "run", "--quiet").code == 0
    assert vista(*words, "--epochs", "2", "--fresh").code == 0


def test_resume_of_a_finished_run_says_so(vista: Vista, trained: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*") if path.name != "lock"}
    said = vista("resume", str(trained))
    assert said.code == 0
    assert "has already finished" in said.out
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert json.loads(vista("resume", str(trained), "--json").out)["run"] == str(trained)


def test_resume_of_something_else_is_rejected(vista: Vista) -> None:
    said = vista("resume", "nowhere")
    assert said.code == 2
    assert said.err.startswith("vista: error: nowhere does not exist")


def test_a_loss_that_is_not_finite_fails_with_its_place(vista: Vista, small: Small) -> None:
    said = vista("train", *small, "--lr", "1e30", "--out", "run", "--quiet")
    assert said.code == 1
    assert re.match(r"vista: error: the loss is not finite in epoch \d, step \d", said.err)


def test_tensorboard_gets_a_scalar_per_epoch(
    vista: Vista, small: Small, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written: list[tuple[str, float, int]] = []

    class Writer:
        def __init__(self, folder: str, purge_step: int) -> None:
            assert (folder, purge_step) == ("run/tensorboard", 1)

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((name, value, step))

        def flush(self) -> None: ...

        def close(self) -> None:
            written.append(("closed", 0.0, 0))

    fake = types.ModuleType("torch.utils.tensorboard")
    monkeypatch.setattr(fake, "SummaryWriter", Writer, raising=False)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    assert vista("train", *small, "--out", "run", "--tensorboard", "--quiet").code == 0
    lines = [json.loads(line) for line in Path("run/epochs.jsonl").read_text().splitlines()]
    assert [w for w in written if w[0] == "test_accuracy"] == [
        ("test_accuracy", line["test_accuracy"], line["epoch"]) for line in lines
    ]
    assert written[-1][0] == "closed"


def test_tensorboard_that_is_not_installed_is_named(
    vista: Vista, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    said = vista("train", *small, "--out", "run", "--tensorboard")
    assert said.code == 2
    assert "pip install 'vista-distill[tensorboard]'" in said.err
    assert not Path("run").exists()


def test_two_processes_train_one_run_and_the_first_alone_speaks(small: Small, port: str) -> None:
    first, second = in_two_processes(port, "train", *small, "--out", "run")
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "Saved in run" in first.out
    assert second.out == ""
    assert json.loads(Path("run/environment.json").read_text())["processes"] == 2


@pytest.mark.parametrize("name", ["a[/b].npz", "x[red].npz"])
def test_square_brackets_in_a_name_are_shown(vista: Vista, small: Small, data: str, name: str) -> None:
    Path(name).parent.mkdir(exist_ok=True)
    shutil.copy(data.removeprefix("npz:"), name)
    said = vista("train", *small, "--data", f"npz:{name}", "--method", "vista", "--out", "run", "--quiet")
    assert said.code == 0
    assert f"vista on npz:{name}, noise" in said.out


@pytest.mark.parametrize("method", ["ce", "ban"])
def test_a_rejected_run_leaves_nothing_behind(vista: Vista, method: str) -> None:
    said = vista("train", "--data", "npz:nowhere.npz", "--method", method, "--out", "deep/run")
    assert said.code == 2
    assert not Path("deep").exists()
    Path("mine").mkdir()
    vista("train", "--data", "npz:nowhere.npz", "--method", method, "--out", "mine")
    assert list(Path("mine").iterdir()) == []


@pytest.mark.parametrize(("command", "place"), [("train", "file"), ("train", "file/run"), ("compare", "file")])
def test_a_file_in_the_place_of_the_run_is_named(vista: Vista, small: Small, command: str, place: str) -> None:
    Path("file").write_text("mine")
    said = vista(command, *small, "--out", place)
    assert said.code == 2
    assert said.err == "vista: error: file is a file, but a run needs a folder: choose another --out\n"
    assert Path("file").read_text() == "mine"


def test_a_run_of_earlier_defaults_is_resumed_with_them(vista: Vista, data: str) -> None:
    earlier = ("--preset", "noisy", "--epochs", "2", "--method", "vista", "--tau", "0.02")
    words = ("train", "--data", data, "--noise", "symmetric:0.2", "--device", "cpu", "--out", "run")
    assert vista(*words, *earlier, "--quiet").code == 0
    written = Path("run/metrics.json").read_bytes()
    again = vista(*words)
    assert again.code == 0, again.err
    assert "auto: as in the run run: vista, 2 epochs, batch size 64, learning rate 0.1" in again.out
    assert Path("run/metrics.json").read_bytes() == written
    other = vista(*words, "--method", "elr")
    assert (other.code, "method='vista' instead of 'elr'" in other.err) == (2, True)
