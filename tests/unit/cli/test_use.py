"""vista evaluate, predict, runs, methods, data."""

from __future__ import annotations

import csv
import errno
import functools
import hashlib
import http.server
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from vista.analysis import TrajectoryRecorder
from vista.cli import runs
from vista.cli.arguments import method_flag
from vista.cli.methods import explanations
from vista.data import download, source
from vista.methods import available, choose
from vista.runs import folder, lock
from vista.training.predict import read_samples

from .conftest import Vista


def test_evaluate_finds_what_the_run_reported(vista: Vista, trained: Path) -> None:
    reported = json.loads((trained / "metrics.json").read_text())
    found = json.loads(vista("evaluate", str(trained), "--device", "cpu", "--json").out)
    assert found["best"] == reported["best"]
    assert found["last"] == reported["last"]
    table = vista("evaluate", str(trained), "--which", "last", "--device", "cpu").out
    assert f"{100 * reported['last']['test']['top1']:.2f}" in table
    assert "best" not in table


@pytest.mark.parametrize("precision", ["bf16", "fp32", "fp64"])
def test_evaluate_computes_as_precisely_as_the_run_did(vista: Vista, small: tuple[str, ...], precision: str) -> None:
    assert vista("train", *small, "--precision", precision, "--out", "run", "--quiet").code == 0
    reported = json.loads(Path("run/metrics.json").read_text())
    found = json.loads(vista("evaluate", "run", "--device", "cpu", "--json").out)
    assert {which: found[which] for which in ("best", "last")} == {which: reported[which] for which in ("best", "last")}


def test_evaluate_rejects_data_that_the_run_was_not_trained_on(vista: Vista, trained: Path, data: str) -> None:
    with np.load(data.removeprefix("npz:")) as file:
        arrays = dict(file)
    arrays["y_train"] = arrays["y_train"][::-1]
    np.savez("other.npz", **arrays)
    config = json.loads((trained / "config.json").read_text())
    (trained / "config.json").write_text(json.dumps({**config, "data": "npz:other.npz"}))
    said = vista("evaluate", str(trained))
    assert said.code == 2
    assert "its labels differ" in said.err


def test_evaluate_of_an_unfinished_run_says_how_to_finish_it(vista: Vista, trained: Path) -> None:
    (trained / "metrics.json").unlink()
    said = vista("evaluate", str(trained))
    assert said.code == 2
    assert "vista resume trained" in said.err


def test_predictions_are_those_of_the_network(vista: Vista, trained: Path, data: str) -> None:
    said = vista("predict", str(trained), "--data", data, "--device", "cpu", "-o", "p.csv")
    assert said.code == 0
    assert "Wrote 30 predictions to p.csv" in said.out
    with open("p.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    with np.load(data.removeprefix("npz:")) as file:
        y_test = file["y_test"]
    right = np.mean([int(row["label"]) == y for row, y in zip(rows, y_test, strict=True)])
    assert right == pytest.approx(json.loads((trained / "metrics.json").read_text())["best"]["test"]["top1"])
    assert [row["id"] for row in rows] == [str(i) for i in range(30)]
    assert all(1 / 3 < float(row["confidence"]) <= 1 for row in rows)


def test_few_predictions_are_also_printed(vista: Vista, trained: Path, data: str) -> None:
    with np.load(data.removeprefix("npz:")) as file:
        np.savez("few.npz", x=file["x_test"][:2])
    said = vista("predict", str(trained), "--data", "npz:few.npz", "--device", "cpu", "-o", "few.csv")
    with open("few.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    shown = [f"sample {row['id']}: {row['label']} ({float(row['confidence']):.1%})" for row in rows]
    assert said.out.splitlines()[:2] == shown
    assert "sample 0" not in vista("predict", str(trained), "--data", data, "--device", "cpu", "-o", "p.csv").out


def test_an_array_x_needs_no_labels(vista: Vista, trained: Path, data: str) -> None:
    with np.load(data.removeprefix("npz:")) as file:
        np.savez("new.npz", x=file["x_test"])
    vista("predict", str(trained), "--data", data, "--device", "cpu", "-o", "test.csv")
    said = vista("predict", str(trained), "--data", "npz:new.npz", "--device", "cpu", "-o", "new.csv")
    assert said.code == 0
    assert Path("new.csv").read_bytes() == Path("test.csv").read_bytes()


def test_the_error_for_a_file_without_x_states_what_predict_takes(vista: Vista, trained: Path) -> None:
    np.savez("new.npz", features=np.zeros((2, 6), np.float32))
    said = vista("predict", str(trained), "--data", "npz:new.npz")
    assert (said.code, said.err) == (
        2, "vista: error: new.npz must contain the array x, got features: save the samples as x\n",
    )  # fmt: skip
    np.savez("new.npz", **{f"a{number}": np.zeros(1) for number in range(7)}, x_test=np.zeros((2, 6)))
    assert "got a0, a1, a2, a3, a4 ...: save" in vista("predict", str(trained), "--data", "npz:new.npz").err
    np.savez("new.npz")
    assert "got nothing: save" in vista("predict", str(trained), "--data", "npz:new.npz").err


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 5), np.float32), "features of shape 5, but trained was trained on features of shape 6"),
        (np.zeros((2, 8, 8, 1), np.uint8), "images of shape 1 x 8 x 8"),
        (np.full((2, 6), np.nan), "x[0] has a value that is not finite"),
        (np.zeros((2, 6), np.int64), "for features, got int64 of shape (2, 6)"),
    ],
)
def test_samples_that_do_not_fit_are_rejected(vista: Vista, trained: Path, x: np.ndarray, message: str) -> None:
    np.savez("new.npz", x=x)
    said = vista("predict", str(trained), "--data", "npz:new.npz", "--device", "cpu")
    assert said.code == 2
    assert message in said.err
    assert not Path("predictions.csv").exists()


# ---------------------------------------------------------------- runs


def test_runs_lists_what_there_is(vista: Vista, trained: Path) -> None:
    Path("elsewhere").mkdir()
    Path("elsewhere/config.json").write_text("{}")
    config = json.loads((trained / "config.json").read_text())
    Path("half").mkdir()
    for file in ("config.json", "coverage.safetensors", "epochs.jsonl", "timings.jsonl"):
        Path("half", file).write_bytes((trained / file).read_bytes())
    Path("half/epochs.jsonl").write_text("".join(Path("half/epochs.jsonl").read_text().splitlines(keepends=True)[:2]))
    finished, half = sorted(
        json.loads(vista("runs", ".", "--json").out)["runs"], key=lambda row: row["status"] != "finished"
    )
    assert (finished["run"], finished["method"], finished["data"], finished["seed"]) == (
        "trained", "vista", config["data"], 0,
    )  # fmt: skip
    assert finished["last"] == 100 * json.loads((trained / "metrics.json").read_text())["last"]["test"]["top1"]
    assert finished["bytes"] == sum(path.stat().st_size for path in trained.rglob("*") if path.is_file())
    assert half["status"] == "epoch 2 of 3"
    table = vista("runs", ".").out
    assert "trained" in table
    assert "epoch 2 of 3" in " ".join(table.split()), "a long line may be wrapped between words"
    assert "2 runs" in table


def test_no_runs_yet(vista: Vista) -> None:
    assert "No runs in runs.\nNext: vista train\n" in vista("runs").out
    TrajectoryRecorder("mine", [0, 1]).end_epoch(np.eye(2))
    assert "No runs in mine, but recorded trainings.\nNext: vista report mine --open\n" in vista("runs", "mine").out
    assert vista("runs", "nowhere").code == 2


def test_the_name_of_a_run_can_be_copied_out_of_a_narrow_terminal(
    vista: Vista, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "digits-symmetric-0.4-vista-schedulecosine-tau0.01-seed0"
    trained.rename(name)
    for width in ("60", "80"):
        monkeypatch.setenv("COLUMNS", width)
        assert name in vista("runs", ".").out


def test_a_finished_run_in_a_place_that_cannot_be_written_to_is_used_again(
    vista: Vista, trained: Path, small: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and allowed(path, mode))
    monkeypatch.setattr(lock, "_lock_file", lambda *_: pytest.fail("no lock is needed"))
    said = vista("train", *small, "--method", "vista", "--out", "trained", "--quiet")
    assert said.code == 0
    assert "Saved in trained" in said.out


@pytest.mark.parametrize("command", ["runs", "labels", "methods", "data"])
def test_whoever_has_read_enough_of_a_table_is_no_failure(trained: Path, command: str) -> None:
    words = [sys.executable, "-m", "vista", command, *(["trained"] if command == "labels" else [])]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 128 + signal.SIGPIPE


@pytest.mark.parametrize(("answer", "is_kept"), [("", True), ("n\n", True), ("y\n", False)])
def test_delete_asks_first(
    vista: Vista, trained: Path, monkeypatch: pytest.MonkeyPatch, answer: str, is_kept: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    said = vista("runs", "delete", str(trained))
    assert "Delete trained (" in said.out
    assert trained.exists() == is_kept
    assert said.code == int(is_kept)


def test_delete_without_a_question(vista: Vista, trained: Path) -> None:
    """Files that other commands wrote for the run are deleted with it."""
    for made in ("suspected_labels.csv", "suspected_labels.json", "report.html", "predictions.csv"):
        (trained / made).touch()
    assert vista("runs", "delete", str(trained), "--yes").code == 0
    assert not trained.exists()


def test_delete_rejects_what_is_no_run_and_then_deletes_nothing(vista: Vista, trained: Path) -> None:
    Path("precious").mkdir()
    said = vista("runs", "delete", str(trained), "precious", "--yes")
    assert said.code == 2
    assert "precious is no run" in said.err
    Path("precious/config.json").write_text('{"format": "theirs"}')
    assert vista("runs", "delete", "precious", str(trained), "--yes").code == 2
    assert Path("precious/config.json").exists()
    assert trained.exists()


def test_delete_of_a_run_named_twice_deletes_it_once(vista: Vista, trained: Path) -> None:
    said = vista("runs", "delete", str(trained), f"./{trained}", "--yes")
    assert said.code == 0
    assert said.out.count("Deleted ") == 1


def test_delete_rejects_a_run_in_progress(vista: Vista, trained: Path) -> None:
    with folder.RunFolder(trained).locked():
        said = vista("runs", "delete", str(trained), "--yes")
    assert said.code == 1
    assert "in use" in said.err
    assert trained.exists()


@pytest.mark.parametrize(("number", "code"), [(errno.EROFS, 1), (errno.EACCES, 2)], ids=["disk", "folder"])
def test_delete_of_what_cannot_be_written_to_says_so(
    vista: Vista, trained: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    opened = os.open

    def refused_lock(path: Any, *options: Any, **named: Any) -> int:
        if str(path).endswith("lock"):
            raise OSError(number, os.strerror(number))
        return opened(path, *options, **named)

    end = f"{os.strerror(number)}; make it writable first\n"
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", refused)
        said = vista("runs", "delete", str(trained), "--yes")
    assert (said.code, said.err) == (code, f"vista: error: trained cannot be deleted: {end}")
    with monkeypatch.context() as patched:
        patched.setattr(lock.os, "open", refused_lock)
        said = vista("runs", "delete", str(trained), "--yes")
        assert (said.code, said.err) == (code, f"vista: error: trained cannot be written to: {end}")
        (trained / "metrics.json").unlink()
        said = vista("resume", str(trained))
        assert (said.code, said.err) == (code, f"vista: error: trained cannot be written to: {end}")
    assert trained.exists()


def test_delete_looks_again_after_its_question(vista: Vista, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def confirmed(_question: str) -> bool:
        (trained / "notes.txt").write_text("precious")
        return True

    monkeypatch.setattr(runs, "_confirmed", confirmed)
    assert "contains notes.txt, which is not part of the run" in vista("runs", "delete", str(trained)).err
    assert (trained / "notes.txt").exists()


def test_delete_of_a_link_names_the_run(vista: Vista, trained: Path) -> None:
    Path("link").symlink_to(trained)
    said = vista("runs", "delete", "--yes", "link")
    assert said.code == 2
    assert said.err == (
        f"vista: error: link is a link: name the run itself, {trained.resolve()}, and remove the link with rm\n"
    )
    assert trained.exists()


def test_runs_in_a_folder_with_an_odd_name_are_listed(vista: Vista, trained: Path) -> None:
    place = Path("p[/q]\x1b[2J")
    place.mkdir(parents=True)
    trained.rename(place / "run[red]")
    said = vista("runs", str(place))
    assert said.code == 0
    assert "in p[/q]\\x1b[2J" in said.out
    assert "run[red]" in said.out
    assert "\x1b" not in said.out + vista("runs", "delete", str(place / "\x1b"), "--yes").err


# ---------------------------------------------------------------- damaged runs

DAMAGE = [
    ("config.json", b"[]", "it must hold a JSON object, got list"),
    ("config.json", b"\xff\xfe", "it is not UTF-8 text"),
    ("config.json", b'{"format": 1, "epochs": "two"}', "epochs must be a whole number, got 'two'"),
    ("config.json", b'{"format": 1, "lr": true}', "lr must be a number, got True"),
    ("config.json", b'{"format": 1, "noise": 3}', "noise must be a text, got 3"),
    ("metrics.json", b"{}", "best.test.top1 must be a number, got None"),
    ("metrics.json", b"null", "it must hold a JSON object, got NoneType"),
    ("metrics.json", b'{"best": null, "last": null}', "best.test.top1 must be a number"),
    ("data.json", b"{}", "format is None, but this version reads 1"),
    ("data.json", b"[]", "it must hold a JSON object, got list"),
]


@pytest.mark.parametrize(("file", "content", "message"), DAMAGE)
def test_a_damaged_file_is_named_by_every_command(
    vista: Vista, trained: Path, small: tuple[str, ...], file: str, content: bytes, message: str
) -> None:
    (trained / file).write_bytes(content)
    commands: dict[str, tuple[str, ...]] = {
        "evaluate": ("evaluate", "trained", "--device", "cpu"),
        "predict": ("predict", "trained", "--device", "cpu", *small[:2]),
        "resume": ("resume", "trained"),
        "train": ("train", *small, "--out", "trained"),
    }
    readers = {"config.json": list(commands), "metrics.json": ["evaluate", "resume", "train"]}
    for name in readers.get(file, ["evaluate", "predict"]):
        said = vista(*commands[name])
        assert said.code == 2, name
        assert said.err.startswith(f"vista: error: trained/{file} "), name
        assert message in said.err, name
        assert said.err.count("\n") == 1, name


@pytest.mark.parametrize(("file", "content", "message"), [case for case in DAMAGE if case[0] != "data.json"])
def test_a_damaged_run_is_listed_as_such_and_can_be_deleted(
    vista: Vista, trained: Path, file: str, content: bytes, message: str
) -> None:
    shutil.copytree(trained, "whole")
    (trained / file).write_bytes(content)
    status = {row["run"]: row["status"] for row in json.loads(vista("runs", ".", "--json").out)["runs"]}
    assert status["whole"] == "finished"
    assert status["trained"].startswith("damaged: ")
    assert message in status["trained"]
    assert vista("runs", "delete", "trained", "--yes").code == 0
    assert not trained.exists()


@pytest.mark.parametrize("lost", ["mean", "std"])
def test_a_run_that_has_lost_how_images_are_normalised_is_rejected(
    vista: Vista, trained: Path, small: tuple[str, ...], lost: str
) -> None:
    data = json.loads((trained / "data.json").read_text())
    del data[lost]
    (trained / "data.json").write_text(json.dumps(data))
    for words in (("predict", "trained", *small[:2]), ("export", "trained", "--to", "a.safetensors")):
        said = vista(*words)
        assert said.code == 2
        assert said.err.startswith(f"vista: error: trained/data.json is damaged: {lost} is missing"), words


def test_a_damaged_run_is_not_called_finished_first(vista: Vista, trained: Path) -> None:
    (trained / "metrics.json").write_text('{"best": ')
    said = vista("resume", "trained")
    assert (said.code, said.out) == (2, "")
    assert "trained/metrics.json" in said.err


def test_metrics_that_lack_a_number_are_rejected(vista: Vista, trained: Path, small: tuple[str, ...]) -> None:
    metrics = json.loads((trained / "metrics.json").read_text())
    del metrics["last"]["val"]["nll"]
    (trained / "metrics.json").write_text(json.dumps(metrics))
    for words in (("evaluate", "trained"), ("resume", "trained"), ("train", *small, "--out", "trained", "--quiet")):
        said = vista(*words)
        assert said.code == 2
        assert "trained/metrics.json is damaged: last.val.nll must be a number, got None" in said.err


def test_options_of_another_kind_are_rejected(vista: Vista, trained: Path) -> None:
    config = json.loads((trained / "config.json").read_text())
    (trained / "config.json").write_text(json.dumps({**config, "options": {"tau": "two"}}))
    said = vista("evaluate", "trained", "--device", "cpu")
    assert said.code == 2
    assert "tau" in said.err


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_an_unknown_device_is_rejected(vista: Vista, trained: Path, data: str, command: str) -> None:
    more = ("--data", data) if command == "predict" else ()
    said = vista(command, "trained", "--device", "gpu", *more)
    assert said.code == 2
    assert "device must be cpu, cuda, cuda:NUMBER or auto, got 'gpu'" in said.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("command", ["evaluate", "predict", "train"])
def test_a_card_that_is_not_there_is_named(vista: Vista, trained: Path, data: str, command: str) -> None:
    words = {"evaluate": ["trained"], "predict": ["trained", "--data", data], "train": ["--data", data, "--quiet"]}
    said = vista(command, *words[command], "--device", "cuda")
    assert said.code == 2
    assert "device is 'cuda', but 0 CUDA devices were found: use --device cpu" in said.err


def test_predictions_do_not_overwrite_their_samples(vista: Vista, trained: Path, data: str) -> None:
    shutil.copy(data.removeprefix("npz:"), "own.npz")
    before = Path("own.npz").read_bytes()
    said = vista("predict", "trained", "--data", "npz:own.npz", "-o", "./own.npz")
    assert said.code == 2
    assert "got own.npz: it holds the samples" in said.err
    Path("moved").mkdir()
    shutil.move("own.npz", "moved/own.npz")
    said = vista("predict", "trained", "--data", "npz:own.npz", "--root", "moved", "-o", "moved/own.npz")
    assert said.code == 2
    assert Path("moved/own.npz").read_bytes() == before


@pytest.mark.parametrize(
    ("command", "option", "name"),
    [
        ("export", "--to", "last.safetensors"),
        *product(("predict", "report"), ("-o",), ("config.json", "metrics.json", "checkpoints/page.html")),
        ("labels", "--clean", "epochs.jsonl"),
    ],
)
def test_nothing_is_written_over_a_part_of_a_run(
    vista: Vista, trained: Path, data: str, command: str, option: str, name: str
) -> None:
    words = (command, "trained", *(("--data", data) if command == "predict" else ()), option)
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    said = vista(*words, f"trained/{name}")
    assert said.code == 2
    assert f"got trained/{name}: it is part of the run" in said.err
    assert {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()} == before


def test_files_go_home_and_into_the_runs_folder(
    vista: Vista, trained: Path, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    assert vista("predict", "trained", "--data", data, "-o", "~/p.csv").code == 0
    assert vista("report", "trained", "-o", "~/r.html").code == 0
    assert vista("export", "trained", "--to", "~/n.safetensors").code == 0
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == ["n.safetensors", "p.csv", "r.html"]
    assert vista("report", "trained", "-o", "trained/report.html").code == 0
    assert Path("trained/report.html").exists()


def test_a_file_where_a_folder_of_figures_should_be_is_named(vista: Vista, trained: Path) -> None:
    Path("file").touch()
    said = vista("report", "trained", "--figures", "file")
    assert said.code == 2
    assert "figures must be a folder, got the file file" in said.err


def test_samples_that_were_set_aside_are_predicted_under_their_ids(trained: Path) -> None:
    run = folder.RunFolder(trained)
    x, y = np.random.default_rng(0).normal(size=(60, 6)), np.arange(60) % 3
    np.savez("one.npz", x=x, y=y)
    np.savez("two.npz", x_train=x, y_train=y, x_test=x[:9], y_test=y[:9])
    found = read_samples(run, "digits")
    ids, inputs, files = found.ids, found.inputs, found.files
    digits = source.load("digits")
    assert digits.test_ids is not None
    assert list(ids) == digits.test_ids.tolist()
    assert np.array_equal(inputs, digits.inputs[list(ids)])
    assert files is None
    assert list(read_samples(run, "npz:one.npz").ids) == list(range(60)), "all of x, in its order"
    assert list(read_samples(run, "npz:two.npz").ids) == list(range(9))


def write_images(*names: str, mode: str = "RGB") -> None:
    """Images of one colour at these paths, each its own."""
    for value, name in enumerate(names):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, (8, 8), 7 * value if mode == "L" else (7 * value, 0, 0)).save(name)


def test_of_a_new_folder_every_image_is_predicted_and_named(vista: Vista) -> None:
    write_images(*(f"own/{name}/{number}.png" for name in ("a", "b") for number in range(10)))
    words = ("--data", "folder:own", "--epochs", "2", "--batch-size", "8", "--device", "cpu", "--out", "run", "--quiet")
    assert vista("train", *words).code == 0

    def predicted(data: str) -> list[dict[str, str]]:
        assert vista("predict", "run", "--data", data, "--device", "cpu", "-o", "p.csv").code == 0
        with open("p.csv") as file:
            return list(csv.DictReader(file))

    write_images("new/2.png", "new/b/deep/1.png", "new/test/0.png", mode="L")
    assert [(row["id"], row["file"]) for row in predicted("folder:new")] == [
        ("0", "2.png"), ("1", "b/deep/1.png"), ("2", "test/0.png"),
    ]  # fmt: skip
    own = source.load("folder:own")
    assert own.test_ids is not None
    for data in ("folder:own", f"folder:{Path.cwd()}/own"):
        assert [int(row["id"]) for row in predicted(data)] == own.test_ids.tolist(), "not what it was trained on"
    assert [row["file"] for row in predicted("folder:own")] == [f"{'ab'[i // 10]}/{i % 10}.png" for i in own.test_ids]
    write_images(*(f"parts/{part}/{name}/1.png" for part in ("train", "test", "val") for name in ("a", "b")))
    assert [row["file"] for row in predicted("folder:parts")] == ["test/a/1.png", "test/b/1.png"]


def test_a_plain_path_is_predicted_whole_also_if_the_run_was_trained_on_it(vista: Vista) -> None:
    write_images(*(f"own/{name}/{number}.png" for name in ("a", "b") for number in range(10)))
    words = ("--data", "folder:own", "--epochs", "2", "--batch-size", "8", "--device", "cpu", "--out", "run", "--quiet")
    assert vista("train", *words).code == 0
    predict = ("predict", "run", "--raw", "--device", "cpu", "-o")
    said = vista(*predict, "all.csv", "--data", "own")
    assert "Wrote 20 predictions" in said.out
    assert "test samples" not in said.out
    said = vista(*predict, "tested.csv", "--data", "folder:own")
    line = "4 of 20: the test samples of folder:own; --data own predicts all"
    assert said.out.splitlines()[4:6] == [line, "Wrote 4 predictions to tested.csv"]
    everything, tested = (Path(name).read_text().splitlines() for name in ("all.csv", "tested.csv"))
    assert {line.partition(",")[2] for line in tested} < {line.partition(",")[2] for line in everything}
    to_stdout = vista(*predict, "-", "--data", "folder:own")
    assert to_stdout.out == Path("tested.csv").read_text()
    assert to_stdout.err == f"{line}\n"
    write_images(*(f"parts/{part}/{name}/1.png" for part in ("train", "test") for name in ("a", "b")))
    assert "Wrote 4 predictions" in vista(*predict, "p.csv", "--data", "parts").out
    assert "2 of 4: the test samples of folder:parts" in vista(*predict, "p.csv", "--data", "folder:parts").out
    write_images("own/a/new.png")
    said = vista(*predict, "p.csv", "--data", "folder:own")
    assert said.code == 2
    assert "folder:own has changed since run was trained on it, so that its test samples are not known" in said.err
    assert "Wrote 21 predictions" in vista(*predict, "p.csv", "--data", "own").out


def test_a_path_that_does_not_exist_is_named_as_such(vista: Vista, trained: Path, data: str) -> None:
    said = vista("predict", "trained", "--data", "nothere")
    assert (said.code, said.err) == (
        2, "vista: error: data 'nothere' is neither an existing path nor a data set; known: digits, cifar10, cifar100, "
        "cifar100-small, tinyimagenet\n",
    )  # fmt: skip
    with np.load(data.removeprefix("npz:")) as file:
        Path("moved").mkdir()
        np.savez("moved/new.npz", x=file["x_test"])
    said = vista("predict", "trained", "--data", "new.npz", "--root", "moved")
    assert said.code == 0, said.err


def test_paths_need_no_kind_and_may_come_from_stdin(vista: Vista, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(*(f"own/{name}/{number}.png" for name in ("a", "b,c") for number in range(10)))
    words = ("--data", "folder:own", "--epochs", "2", "--batch-size", "8", "--device", "cpu", "--out", "run", "--quiet")
    assert vista("train", *words).code == 0
    write_images("new/0.png", "new/deep/1.png")
    common = ("predict", "run", "--device", "cpu", "--raw", "-o", "-", "--data")
    named = vista(*common, "folder:new")
    assert named.out.splitlines()[0] == "id,label,confidence,file"
    assert vista(*common, "new") == named
    assert vista(*common, "new/deep/1.png").out.splitlines()[1].startswith("0,")
    monkeypatch.setattr("sys.stdin", io.StringIO("new/deep/1.png\n\nnew/0.png\n"))
    listed = list(csv.DictReader(io.StringIO(vista(*common, "-", "--proba").out)))
    rows = list(csv.DictReader(io.StringIO(named.out)))
    assert [row["file"] for row in listed] == ["new/deep/1.png", "new/0.png"], "as given"
    for row, other in zip(listed, reversed(rows), strict=True):
        assert (row["label"], row["confidence"]) == (other["label"], other["confidence"])
        assert float(row["proba_a"]) + float(row["proba_b,c"]) == pytest.approx(1, abs=2e-6)
        assert row[f"proba_{row['label']}"] == row["confidence"]
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert "stdin is empty: write one path per line to it" in vista(*common, "-").err
    Path("list.csv").write_text("image\nnew/deep/1.png\n")
    assert "name its column of image files with --image-column" in vista(*common, "list.csv").err
    table = vista(*common, "list.csv", "--image-column", "image")
    assert table.out.splitlines()[1].split(",")[1:3] == [listed[0]["label"], listed[0]["confidence"]]


def test_suspects_among_the_images_of_a_folder_are_named_by_their_file(vista: Vista) -> None:
    names = [f"own/{name}/{number:02d}.png" for name in ("a", "=b") for number in range(20)]
    write_images(*names)
    words = ("--data", "folder:own", "--noise", "symmetric:0.3", "--epochs", "3", "--batch-size", "8")
    assert vista("train", *words, "--device", "cpu", "--out", "run", "--quiet").code == 0
    said = vista("labels", "run", "--top", "3")
    files = sorted(name.removeprefix("own/") for name in names)
    listed = json.loads(Path("run/suspected_labels.json").read_text())["suspects"]
    assert [row["file"] for row in listed] == [files[row["id"]] for row in listed]
    with open("run/suspected_labels.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["file"].lstrip("'") for row in rows] == [row["file"] for row in listed]
    assert not any(row["file"].startswith("=") for row in rows), "no formula"
    assert all(row["file"] in said.out for row in listed)
    assert vista("report", "run", "-o", "page.html").code == 0
    assert vista("labels", "run", "--clean", "clean.csv").code == 0
    again = ("train", "--data", "folder:own", "--noise", "file:clean.csv", *words[4:], "--device", "cpu", "--quiet")
    assert vista(*again, "--out", "again").code == 0
    write_images("own/a/00-new.png")
    said = vista(*again, "--out", "third")
    assert said.code == 2
    assert "must be a/00-new.png, got a/00.png: files were added or removed" in said.err
    Path("run/manifest.json").unlink()
    described = json.loads(Path("run/data.json").read_text())
    for damaged, message in (
        (files[:-1], "names 39 files, but has 40 labels"),
        ([*files[:-1], 3], "files has an unusable value"),
    ):
        Path("run/data.json").write_text(json.dumps(described | {"files": damaged}))
        said = vista("labels", "run")
        assert said.code == 2
        assert message in said.err


@pytest.mark.filterwarnings("default")
def test_listed_labels_that_are_believed_stay_and_this_is_reported(vista: Vista, trained: Path) -> None:
    run = folder.RunFolder(trained)
    labelled = len(run.split().train)
    said = vista("labels", str(trained), "--top", str(labelled), "--clean", "clean.csv", "--json")
    listed = [row for row in json.loads(said.out)["suspects"] if row["id"] in run.split().train]
    believed = sum(row["score"] <= 0.5 for row in listed)
    assert believed > 0
    note = f"{believed:,} of the {labelled:,} most suspect samples keep their label: no other class is more likely"
    assert said.err == f"vista: note: {note}\n"
    with open("clean.csv") as file:
        labels = [int(row["label"]) for row in csv.DictReader(file)]
    assert sum(now != given for now, given in zip(labels, run.labels().given, strict=True)) == len(listed) - believed
    assert vista("labels", str(trained), "--top", str(labelled), "--clean", "clean.csv", "--drop").err == ""


def test_a_teacher_that_is_the_labels_themselves_is_reported(vista: Vista, data: str) -> None:
    words = ("--data", data, "--noise", "symmetric:0.2", "--epochs", "2", "--lr", "1e-9", "--device", "cpu")
    assert vista("train", *words, "--method", "vista", "--tau", "0.9", "--out", "run", "--quiet").code == 0
    for name in ("predictions.safetensors", "manifest.json"):  # a run of an earlier version
        (Path("run") / name).unlink()
    said = " ".join(vista("labels", "run").out.split())
    assert "Caution: The predictions for training samples equal the given labels: train for more epochs." in said


@pytest.mark.filterwarnings("default")
def test_a_custom_validation_set_is_used_by_default(vista: Vista, small: tuple[str, ...], data: str) -> None:
    with np.load(data.removeprefix("npz:")) as file:
        np.savez("mine.npz", **file, x_val=file["x_test"], y_val=file["y_test"])
        trained, tested = len(file["y_train"]), len(file["y_test"])
    options = ("--data", "npz:mine.npz", *small[2:], "--quiet")
    assert vista("train", *options, "--out", "drawn", "--no-own-validation").err == ""
    assert vista("train", *options, "--out", "fifth", "--no-own-validation", "--validation", "0.2").err == ""
    said = vista("train", *options, "--validation", "0.2", "--out", "own")
    assert said.code == 0
    own = "npz:mine.npz has its own validation samples, which are used; --no-own-validation draws new ones"
    assert said.err == f"vista: note: validation is 0.2, but {own}\n"
    split = folder.RunFolder(Path("own")).split()
    assert split.val.tolist() == list(range(trained, trained + tested))
    for run in ("own", "drawn"):
        found = vista("evaluate", run, "--device", "cpu", "--json")
        assert found.err == ""
        metrics = json.loads(found.out)["best"]
        assert (metrics["val"] == metrics["test"]) == (run == "own"), "these are the same samples here"
    assert vista("labels", "own").code == 0
    assert vista("report", "own", "drawn").code == 2, "they were judged by other samples"
    for run in ("own", "drawn"):
        assert vista("report", run).code == 0
    assert vista("train", *options, "--out", "quiet").err == ""


def test_own_data_may_lie_below_root(vista: Vista, small: tuple[str, ...], data: str) -> None:
    shutil.copy(data.removeprefix("npz:"), "mine.npz")
    assert vista("train", "--data", "npz:mine.npz", *small[2:], "--out", "run", "--quiet").code == 0
    Path("moved").mkdir()
    shutil.move("mine.npz", "moved/mine.npz")
    said = vista("evaluate", "run", "--device", "cpu")
    assert said.code == 2
    assert "data file mine.npz does not exist" in said.err
    assert vista("evaluate", "run", "--device", "cpu", "--root", "moved").code == 0
    assert source.load("npz:mine.npz", "moved").name == "npz:mine.npz"


def test_a_run_whose_method_is_not_known_here_can_be_used(vista: Vista, trained: Path, data: str) -> None:
    config = json.loads((trained / "config.json").read_text())
    (trained / "config.json").write_text(json.dumps({**config, "method": "doubting", "options": {"doubt": 0.5}}))
    for words in (("evaluate",), ("predict", "--raw", "--data", data), ("export", "--raw", "--to", "n.safetensors")):
        command, *more = words
        said = vista(command, str(trained), *more)
        assert (said.code, said.err) == (0, ""), words


def test_a_run_kept_without_its_weights_says_so(vista: Vista, trained: Path) -> None:
    (trained / "best.safetensors").unlink()
    said = vista("export", "trained", "--to", "net.safetensors")
    assert said.code == 2
    assert "best.safetensors does not exist: the run was stored without its weights" in said.err
    assert "resume" not in said.err


def test_of_fused_epochs_every_command_says_that_it_has_one_network(vista: Vista, small: tuple[str, ...]) -> None:
    data = small[small.index("--data") + 1]
    trained = vista("train", *small, "--method", "kf", "--out", "kf", "--quiet")
    assert trained.code == 0
    assert [row for row in ("fused, val", "fused, test", "best (epoch", "last (epoch") if row not in trained.out] == []
    for words in (
        ("evaluate", "kf"),
        ("evaluate", "kf", "--json"),
        ("predict", "kf", "--data", data),
        ("export", "kf", "--to", "net.safetensors"),
    ):
        assert "kf fuses the predictions of several epochs; this is the network alone" in vista(*words).err
    metrics = json.loads(Path("kf/metrics.json").read_text())
    alone = metrics["network"]
    printed = json.loads(vista("evaluate", "kf", "--json").out)
    assert [printed[which]["test"]["top1"] for which in alone] == [alone[which]["test"]["top1"] for which in alone]
    Path("kf/manifest.json").unlink()
    Path("kf/metrics.json").write_text(json.dumps({**metrics, "network": {"best": alone["best"]}}))
    damaged = vista("train", *small, "--method", "kf", "--out", "kf", "--quiet")
    assert "metrics.json is damaged: network.last.epoch must be a number, got None" in damaged.err


# ---------------------------------------------------------------- methods and data


def test_methods_lists_all_with_their_variants(vista: Vista) -> None:
    rows = json.loads(vista("methods", "--json").out)["methods"]
    names = [name for row in rows for name in (row["name"], *row["variants"])]
    assert names == list(available())
    table = vista("methods").out
    for name in names:
        assert name in table
    assert "tsd †" in table


@pytest.mark.parametrize("name", available())
def test_every_method_is_explained_with_its_options(vista: Vista, name: str) -> None:
    chosen = choose(name)
    words = " ".join(vista("methods", name).out.split())
    for text in (chosen.method.summary, chosen.method.source.split()[0], *chosen.method.variants):
        assert text in words
    texts = explanations(chosen.method.Config)
    for option, value in chosen.options.items():
        assert f"--{method_flag(chosen, option)} {value} {texts[option].split()[0]}" in words
    row = json.loads(vista("methods", name, "--json").out)["methods"][0]
    assert row["options"] == json.loads(json.dumps(chosen.options))


def test_an_unknown_method_names_the_nearest(vista: Vista) -> None:
    said = vista("methods", "byott")
    assert said.code == 2
    assert "did you mean 'byot'" in said.err


def test_data_tells_what_is_there(vista: Vista) -> None:
    Path("root/cifar-100-python").mkdir(parents=True)
    rows = {row["name"]: row for row in json.loads(vista("data", "--root", "root", "--json").out)["data"]}
    assert rows["cifar100"] == {"name": "cifar100", "there": True, "place": "root/cifar-100-python"}
    assert not rows["cifar10"]["there"]
    assert rows["digits"]["there"]
    assert "vista data get cifar10 --root DIR" in vista("data").out


def test_data_get_downloads_from_a_mirror(vista: Vista, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = tmp_path / "served"
    served.mkdir()
    with tarfile.open(served / "toy.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("toy/a.txt")
        member.size = 3
        tar.addfile(member, io.BytesIO(b"abc"))
    md5 = hashlib.md5((served / "toy.tar.gz").read_bytes(), usedforsecurity=False).hexdigest()
    monkeypatch.setitem(download.ARCHIVES, "toy", download.Archive("http://unused", "toy.tar.gz", md5, "toy"))

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=served)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        said = vista("data", "get", "toy", "--root", "root", "--mirror", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert said.code == 0
    assert said.out == "toy is in root/toy\nNext: vista train --data toy --root root\n"
    assert "toy: " in said.err
    assert Path("root/toy/a.txt").read_text() == "abc"


def test_data_of_home_are_listed_and_got_there(vista: Vista, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "sets" / "cifar-100-python").mkdir(parents=True)
    rows = json.loads(vista("data", "--root", "~/sets", "--json").out)["data"]
    assert [row["name"] for row in rows if row["there"]] == ["digits", "cifar100"]
    assert (
        f"cifar100 is in {tmp_path}/sets/cifar-100-python\n" in vista("data", "get", "cifar100", "--root", "~/sets").out
    )
    assert not Path("~").exists()


def test_digits_need_no_download(vista: Vista) -> None:
    said = vista("data", "get", "digits")
    assert (said.code, said.out) == (
        0,
        "digits is part of scikit-learn: nothing to download\nNext: vista train --data digits\n",
    )


def test_data_get_needs_a_root_and_a_known_name(vista: Vista) -> None:
    assert "--root DIR" in vista("data", "get", "cifar10").err
    said = vista("data", "get", "cifar1000", "--root", "root")
    assert said.code == 2
    assert "did you mean 'cifar100" in said.err
