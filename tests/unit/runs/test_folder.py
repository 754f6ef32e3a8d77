"""The run folder: its contents, the lock, and loading its network."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from trainings import Trainer, config, damage, stopped, train

import vista
from vista.runs import folder, lock
from vista.runs.description import DataDescription
from vista.runs.folder import RunFolder, find_runs, owner_of


@pytest.fixture(scope="module")
def finished(data: str, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    out = tmp_path_factory.mktemp("finished") / "run"
    train(config(data, epochs=5), out)
    return RunFolder.open(out)


def test_a_finished_run_holds_what_it_promises_and_nothing_else(finished: RunFolder) -> None:
    assert sorted(path.name for path in finished.path.iterdir()) == [
        "best.safetensors", "config.json", "coverage.safetensors", "data.json", "environment.json", "epochs.jsonl",
        "labels.safetensors", "last.safetensors", "lock", "manifest.json", "metrics.json", "predictions.safetensors",
        "split.safetensors", "teacher.safetensors", "timings.jsonl",
    ]  # fmt: skip
    assert finished.is_finished()
    assert finished.config().epochs == len(finished.record()) == finished.metrics()["last"]["epoch"] == 5
    assert finished.environment()["torch"] == torch.__version__
    assert finished.labels().hash == finished.data().labels_hash
    assert finished.split().hash == finished.data().split_hash
    assert finished.teacher().shape == (len(finished.split().train), 10)
    assert finished.size() == sum(path.stat().st_size for path in finished.path.iterdir())


@pytest.mark.parametrize("which", ["best", "last"])
def test_load_model_is_the_saved_network(finished: RunFolder, which: str) -> None:
    network, saved = vista.load_model(finished.path, which), load_file(finished.path / f"{which}.safetensors")
    assert not network.training
    assert network.state_dict().keys() == saved.keys()
    assert all(torch.equal(tensor, saved[name]) for name, tensor in network.state_dict().items())


def test_best_is_the_first_epoch_of_highest_validation_accuracy(finished: RunFolder) -> None:
    accuracies = finished.record().correct("val_given").mean(axis=1)
    assert finished.metrics()["best"]["epoch"] == int(np.argmax(accuracies)) + 1
    assert finished.metrics()["best"]["val"]["top1"] == accuracies.max()
    assert finished.metrics()["last"]["val"]["top1"] == accuracies[-1]


def test_another_which_is_rejected(finished: RunFolder) -> None:
    with pytest.raises(ValueError, match="which must be 'best' or 'last', got 'first'"):
        vista.load_model(finished.path, "first")  # type: ignore[arg-type]


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=rf"{tmp_path} is no run: it has no config\.json; `vista runs`"):
        RunFolder.open(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere does not exist; `vista runs`"):
        vista.load_model(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text('{"format": 99}')
    with pytest.raises(ValueError, match="the configuration has format 99, but this version reads 1"):
        RunFolder.open(tmp_path).config()


def test_what_an_unfinished_run_does_not_have_is_named(data: str, tmp_path: Path) -> None:
    run = RunFolder.open(stopped(config(data), tmp_path / "run", 2, 0))
    assert not run.is_finished()
    for read in (run.metrics, lambda: run.weights("best")):
        with pytest.raises(FileNotFoundError, match=f"`vista resume {run.path}`"):
            read()
    with pytest.raises(FileNotFoundError, match=r"has no teacher\.safetensors: .* or it has not finished"):
        run.teacher()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("best", "cut short"),
        ("labels", "cut short"),
        ("labels", "flipped"),
        ("split", "cut short"),
        ("split", "flipped"),
    ],
)
def test_a_damaged_file_is_named(finished: RunFolder, tmp_path: Path, name: str, kind: str) -> None:
    run = RunFolder(Path(shutil.copytree(finished.path, tmp_path / "run")))
    damage(run.path / f"{name}.safetensors", kind)
    reads = {"best": lambda: run.weights("best"), "labels": run.labels, "split": run.split}
    with pytest.raises(ValueError, match=rf"{name}\.safetensors is damaged"):
        reads[name]()


DESCRIPTION: dict[str, Any] = {"format": 1, "name": "x", "classes": ["a", "b"], "sample_shape": [5],
                               "mean": [], "std": []}  # fmt: skip


@pytest.mark.parametrize("lacking", ["classes", "sample_shape", "name", "mean", "std"])
def test_a_missing_field_of_the_description_is_named(tmp_path: Path, lacking: str) -> None:
    (tmp_path / folder.DATA).write_text(json.dumps({**DESCRIPTION, "mean": [0.1], "std": [0.2]}))
    assert RunFolder(tmp_path).data().mean == (0.1,)
    kept = {name: value for name, value in DESCRIPTION.items() if name != lacking}
    (tmp_path / folder.DATA).write_text(json.dumps(kept))
    with pytest.raises(ValueError, match=rf"data\.json is damaged: {lacking} is missing; restore the file"):
        RunFolder(tmp_path).data()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("classes", ["a", 3]),
        ("classes", ["a", None]),
        ("classes", "ab"),
        ("mean", [float("nan")]),
        ("mean", None),
        ("sample_shape", [5.5]),
        ("sample_shape", [True]),
        ("samples", {"train": "9"}),
        ("files", [1]),
        ("inputs_hash", 7),
    ],
)
def test_a_malformed_field_of_the_description_is_named(tmp_path: Path, name: str, value: object) -> None:
    (tmp_path / folder.DATA).write_text(json.dumps({**DESCRIPTION, name: value}))
    with pytest.raises(ValueError, match=rf"data\.json is damaged: ({name} has an unusable value|numbers must be fin)"):
        RunFolder(tmp_path).data()


def test_the_description_reads_what_it_wrote() -> None:
    full = DataDescription("x", ("a", "b"), (3, 4, 4), "mlp", {"train": 3}, 0.25, (0.5,), (1.0,), True, 2, "i", "l",
                           "s", "t", ("a/1.png",))  # fmt: skip
    assert DataDescription.from_json(json.loads(json.dumps(full.to_json()))) == full
    assert "files" not in DataDescription("x", ("a", "b"), (4,)).to_json()


@pytest.mark.parametrize("threads", [0, 100_000, "4", -1, 2.5])
def test_an_impossible_number_of_threads_is_damage(tmp_path: Path, threads: object) -> None:
    (tmp_path / folder.ENVIRONMENT).write_text(json.dumps({"threads": threads}))
    with pytest.raises(ValueError, match=r"environment\.json is damaged: threads must be 1 to 1024, got "):
        RunFolder(tmp_path).threads()


@pytest.mark.parametrize("which", ["best", "last"])
@pytest.mark.parametrize("value", [None, "0.5", float("nan"), float("inf")])
def test_metrics_without_a_number_are_damaged(tmp_path: Path, which: str, value: Any) -> None:
    whole = {name: {"test": {"top1": 0.5, "ece": 0.1, "aurc": 0.1}} for name in ("best", "last")}
    (tmp_path / folder.METRICS).write_text(json.dumps(whole))
    assert RunFolder(tmp_path).metrics() == whole
    (tmp_path / folder.METRICS).write_text(
        json.dumps({**whole, which: {"test": {**whole[which]["test"], "top1": value}}})
    )
    what = (
        "numbers must be finite"
        if isinstance(value, float)
        else rf"{which}\.test\.top1 must be a number, got {value!r}"
    )
    with pytest.raises(ValueError, match=rf"metrics\.json is damaged: {what}"):
        RunFolder(tmp_path).metrics()


def test_what_no_training_put_there_is_a_stranger(tmp_path: Path) -> None:
    for name in (*folder.OWN, ".hidden", "thesis.tex", "notes"):
        (tmp_path / name).touch()
    assert RunFolder(tmp_path).foreign_entries() == [".hidden", "notes", "thesis.tex"]
    assert {"lock", "tensorboard", "earlier", "checkpoints", "blobs", "config.json"} <= folder.OWN


def test_a_file_belongs_to_the_run_that_it_is_or_would_be_a_part_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path.resolve() / "run"
    run.mkdir()
    (run / folder.CONFIG).write_text("{}")
    monkeypatch.chdir(run)
    for own in (run / "metrics.json", run / "checkpoints" / "epoch-1" / "anything", Path("metrics.json")):
        assert owner_of(own) == run
    for other in (run / "page.html", run / "pages" / "metrics.json", tmp_path / "metrics.json"):
        assert owner_of(other) is None


def test_a_teacher_file_without_the_teacher_is_named(tmp_path: Path) -> None:
    save_file({"student": torch.zeros(3, 2)}, tmp_path / folder.TEACHER)
    with pytest.raises(
        ValueError, match=r"teacher\.safetensors is damaged: it has no tensor 'teacher'; restore the file"
    ):
        RunFolder(tmp_path).teacher()


def test_a_second_process_is_rejected_naming_the_first(data: str, tmp_path: Path, trainer: Trainer) -> None:
    with RunFolder(tmp_path / "run").locked():
        ended = trainer.try_to(config(data), tmp_path / "run")
        assert ended.failed
        said = f"{tmp_path / 'run'} is in use by process {os.getpid()}: wait until that has ended"
        assert f"RuntimeError: {said}" in ended.output
        assert [path.name for path in (tmp_path / "run").iterdir()] == [lock.FILE]
        with pytest.raises(RuntimeError, match=f"in use by process {os.getpid()}"):
            train(config(data), tmp_path / "run")
    assert not trainer(config(data), tmp_path / "run").failed, "who is done, or killed, holds no lock"


def test_runs_are_found_without_those_that_others_needed(tmp_path: Path) -> None:
    """Runs in a folder named earlier are listed; a run that is being replaced is not."""
    earlier = ("a/earlier/teacher", "a/earlier/teacher/earlier/first", "earlier/d", "later/earlier")
    for place in ("a", "b/c", *earlier, ".a.replaced", "b/.c.replaced"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / folder.CONFIG).write_text("{}")
    assert [run.path.relative_to(tmp_path).as_posix() for run in find_runs(tmp_path)] == [
        "a", "b/c", "earlier/d", "later/earlier",
    ]  # fmt: skip
    find_runs(tmp_path)[0].delete()
    assert [run.path.name for run in find_runs(tmp_path)] == ["c", "d", "earlier"]


def test_a_run_is_as_large_as_what_is_its_own(tmp_path: Path) -> None:
    contents = {"run": "{}", "run/earlier/teacher": "{   }", "run/more/another": "{" + 100 * " " + "}"}
    for place, content in contents.items():
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / folder.CONFIG).write_text(content)
    assert [run.size() for run in find_runs(tmp_path)] == [2 + 5, 102]


def test_foreign_files_of_a_folder_are_distinguished_from_those_of_a_run(data: str, tmp_path: Path) -> None:
    """A notebook beside TensorBoard's files and a repository are foreign; half-written files belong to the run."""
    run = RunFolder.open(stopped(config(data), tmp_path / "run", 2, 1))
    shutil.copytree(run.path, run.path / "earlier" / "teacher")
    for file in (
        "tensorboard/events.out.tfevents.1700000000.host.12.0",
        "checkpoints/.epoch-00003-step-0000000.tmp/.state.json.0-host-12.tmp",
        "blobs/.0123abcd.safetensors.0-host-12.tmp",
        ".metrics.json.0-host-12.tmp",
        "earlier/teacher/.epochs.jsonl.0.tmp",
        ".DS_Store",
        "checkpoints/Thumbs.db",
    ):
        (run.path / file).parent.mkdir(exist_ok=True)
        (run.path / file).touch()
    assert run.foreign_entries() == []
    put = {
        ".git/HEAD": ".git",
        ".notes.txt": ".notes.txt",
        "notes/mine.txt": "notes",
        "tensorboard/analysis.ipynb": "tensorboard/analysis.ipynb",
        "tensorboard/mine/events.out.tfevents.1": "tensorboard/mine/events.out.tfevents.1",
        "checkpoints/best.pt": "checkpoints/best.pt",
        "checkpoints/mine/notes.txt": "checkpoints/mine/notes.txt",
        "blobs/mine/a.safetensors": "blobs/mine/a.safetensors",
        "earlier/notes.txt": "earlier/notes.txt",
        "earlier/teacher/.notes.txt": "earlier/teacher/.notes.txt",
        "earlier/teacher/report.html": "earlier/teacher/report.html",
    }
    for file in put:
        (run.path / file).parent.mkdir(exist_ok=True, parents=True)
        (run.path / file).touch()
    assert run.foreign_entries() == sorted(put.values())
    assert "earlier/teacher/report.html" not in run.foreign_entries(besides=("report.html",))


def test_checkpoints_that_go_while_runs_are_listed_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkpoints" / "old").mkdir(parents=True)
    for file in (folder.CONFIG, "checkpoints/old/part", "checkpoints/model"):
        (tmp_path / file).write_text("{}")
    scan, look = os.scandir, os.stat

    def scan_late(path: str | int) -> os._ScandirIterator[str]:
        if str(path).endswith("old"):
            monkeypatch.undo()
            shutil.rmtree(path)
        return scan(path)

    def look_late(path: str | int, **how: Any) -> os.stat_result:
        if str(path).endswith("model"):
            os.unlink(path)
        return look(path, **how)

    monkeypatch.setattr(os, "scandir", scan_late)
    assert [run.path for run in find_runs(tmp_path)] == [tmp_path]
    monkeypatch.setattr(os, "stat", look_late)
    assert RunFolder(tmp_path).size() == len("{}")
    monkeypatch.undo()
    assert not list((tmp_path / "checkpoints").iterdir())


def test_a_file_that_is_gone_is_named(data: str, tmp_path: Path) -> None:
    out = stopped(config(data), tmp_path / "run", 2, 1)
    (out / "data.json").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"data\.json is missing: restore the file, or train the run again with --fresh"
    ):
        train(config(data), out)
