"""Every version reads the runs, checkpoints and records of the versions before it, and resumes their runs.

``make.py`` wrote the archives. The tests use only the command line and the public names, so they hold whatever
becomes of the modules behind them. A key that a later version adds to a line or a file is no failure.
"""

from __future__ import annotations

import csv
import json
import runpy
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import vista
from vista.cli import main

ARCHIVES = sorted(Path(__file__).parent.glob("v*"))
MAKE = runpy.run_path(str(Path(__file__).parent / "make.py"))
EXPECTED = {archive: json.loads((archive / "expected.json").read_text()) for archive in ARCHIVES}
Command = Callable[..., str]


def of_each_version(kind: str) -> pytest.MarkDecorator:
    """One test for each run of this kind in each archive."""
    found = [(archive, method) for archive in ARCHIVES for method in EXPECTED[archive][kind]]
    return pytest.mark.parametrize(("archive", "method"), found, ids=[f"{a.name}-{m}" for a, m in found])


each_version = pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.name)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("VISTA_DATA", "VISTA_DEBUG", "COLUMNS", "WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    """Call ``vista`` with these words; returns what it printed to stdout."""

    def call(*words: str | Path) -> str:
        capfd.readouterr()
        code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        assert code == 0, err
        return out

    return call


@pytest.fixture(scope="session")
def arithmetic() -> str:
    digest: str = MAKE["arithmetic"]()
    return digest


def unpack(archive: Path, name: str) -> Path:
    with tarfile.open(archive / f"{name}.tar.xz") as file:
        file.extractall(".", filter="data")
    return Path(name)


def assert_contains(found: Any, archived: Any, exact: bool, where: str = "") -> None:
    """Every archived key is there with its value; ``exact=False`` allows floats another processor's rounding.

    There a sample or two may be classified otherwise, and with it another epoch may be the best one.
    """
    if isinstance(archived, dict):
        assert found.keys() >= archived.keys(), f"{where} lacks {sorted(archived.keys() - found.keys())}"
        for key, value in archived.items():
            assert_contains(found[key], value, exact, f"{where}.{key}")
    elif isinstance(archived, list):
        assert len(found) == len(archived), where
        for number, (one, value) in enumerate(zip(found, archived, strict=True)):
            assert_contains(one, value, exact, f"{where}[{number}]")
    elif exact:
        assert found == archived, where
    elif isinstance(archived, float):
        assert found == pytest.approx(archived, rel=0.05, abs=0.05), where


# ---------------------------------------------------------------- finished runs


@each_version
def test_runs_are_listed(archive: Path, command: Command) -> None:
    for method in EXPECTED[archive]["finished"]:
        unpack(archive, f"finished-{method}")
    for method in EXPECTED[archive]["resumed"]:
        unpack(archive, f"interrupted-{method}")
    rows = {row["run"]: row for row in json.loads(command("runs", ".", "--json"))["runs"]}
    for method, archived in EXPECTED[archive]["finished"].items():
        assert_contains(rows[f"finished-{method}"], archived["runs"], exact=True)
    for method in EXPECTED[archive]["resumed"]:
        assert rows[f"interrupted-{method}"]["status"] != "finished"


@of_each_version("finished")
def test_finished_runs_are_read(archive: Path, method: str, command: Command, arithmetic: str) -> None:
    run, archived = unpack(archive, f"finished-{method}"), EXPECTED[archive]["finished"][method]
    exact = arithmetic == EXPECTED[archive]["arithmetic"]
    assert_contains(json.loads(command("evaluate", run, "--json")), archived["evaluate"], exact)

    command("predict", run, "--data", "digits", "--out", "predictions.csv")
    with open("predictions.csv", newline="") as file:
        labels = [row["label"] for row in csv.DictReader(file)]
    changed = sum(a != b for a, b in zip(labels, archived["predictions"], strict=True))
    assert changed <= (0 if exact else 4)

    for which in ("best", "last"):
        command("export", run, "--to", "exported.safetensors", "--which", which)
        model, saved = vista.load_model(run, which=which), load_file(run / f"{which}.safetensors")
        assert not model.training
        assert saved
        for weights in (model.state_dict(), load_file("exported.safetensors")):
            assert weights.keys() == saved.keys()
            assert all(torch.equal(weights[name], saved[name]) for name in saved)


@each_version
def test_labels_are_ranked(archive: Path, command: Command) -> None:
    run = unpack(archive, "finished-vista-light")
    archived = EXPECTED[archive]["finished"]["vista-light"]["suspects"]
    listed = json.loads(command("labels", run, "--json", "--min-score", "0.5"))
    # The score has changed since version 0.1.0, and with it the order: the same labels are suspect.
    assert set(archived) <= {suspect["id"] for suspect in listed["suspects"]}
    if archive.name == "v0.1.0":
        assert listed["unjudged"]["no prediction"] > 0, "it kept no predictions of held-out samples"
    assert (run / "suspected_labels.csv").exists()


@each_version
def test_report_draws_every_run(archive: Path, command: Command) -> None:
    runs = [unpack(archive, f"finished-{method}") for method in EXPECTED[archive]["finished"]]
    command("report", *runs, unpack(archive, "interrupted-vista"), "--out", "runs.html")
    command("report", unpack(archive, "recorder"), "--out", "recorder.html")
    pages = {"runs.html": (*EXPECTED[archive]["finished"], "vista"), "recorder.html": ("mine",)}
    for page, methods in pages.items():
        text = Path(page).read_text()
        assert [method for method in methods if f'"{method}"' not in text] == [], page


# ---------------------------------------------------------------- interrupted runs


@of_each_version("resumed")
def test_an_interrupted_run_ends_as_if_never_interrupted(
    archive: Path, method: str, command: Command, arithmetic: str
) -> None:
    run, archived = unpack(archive, f"interrupted-{method}"), EXPECTED[archive]["resumed"][method]
    record = run / "epochs.jsonl"
    ended = len(record.read_text().splitlines()) if record.exists() else 0
    command("resume", run, "--quiet")
    found = MAKE["result"](run)
    assert_contains(found["epochs"][:ended], archived["epochs"][:ended], exact=True, where="epochs before")
    exact = arithmetic == EXPECTED[archive]["arithmetic"]
    assert_contains(found["epochs"], archived["epochs"], exact, "epochs")
    assert_contains(found["metrics"], archived["metrics"], exact, "metrics")
    assert found["files"].keys() >= archived["files"].keys()
    if exact:
        assert {name: found["files"][name] for name in archived["files"]} == archived["files"]
    assert not (run / "checkpoints").exists() or not any((run / "checkpoints").iterdir())


# ---------------------------------------------------------------- states, recorders, ledger


@each_version
def test_a_recorder_continues_its_folder(archive: Path) -> None:
    recorder = MAKE["open_recorder"](unpack(archive, "recorder"))
    assert recorder.epoch == 3
    assert recorder.end_epoch(np.eye(3)[np.arange(40) % 3]) == 4


@each_version
def test_a_saved_state_is_loaded(archive: Path) -> None:
    folder = unpack(archive, "state")
    loaded, x, _, val_x = MAKE["plain_vista"]()
    assert isinstance(loaded, vista.Vista)
    loaded.load_state_dict(torch.load(folder / "vista.pt", weights_only=True))
    expected = np.load(folder / "expected.npz")
    assert loaded.epoch == expected["epoch"]
    np.testing.assert_allclose(loaded.teacher().numpy(), expected["teacher"], atol=1e-6)
    np.testing.assert_allclose(loaded.targets(range(60)).numpy(), expected["targets"], atol=1e-6)
    rows = torch.arange(20, 60)  # the state was saved after the first 20 samples of the epoch
    loaded.loss(x[rows, :3].requires_grad_(), rows)
    assert loaded.end_epoch(val_x[:, :3]).unrecorded == 0


@pytest.mark.filterwarnings("ignore")  # those of transformers
@each_version
def test_a_checkpoint_of_the_hugging_face_trainer_is_loaded(archive: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    folder, teachers = unpack(archive, "trainer-checkpoint"), []

    class Watch(transformers.TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            teachers.append((trainer.vista.epoch, trainer.vista.teacher().numpy()))

    with torch.random.fork_rng():
        trainer = MAKE["trainer"](Path("trainer"), [Watch()])
        trainer.train(resume_from_checkpoint=str(folder))
    ((epoch, teacher),) = teachers
    expected = np.load(folder / "expected.npz")
    assert epoch == expected["epoch"]
    np.testing.assert_allclose(teacher, expected["teacher"], atol=1e-6)
    assert trainer.vista.epoch == 4


@each_version
def test_ledger_records_are_read(archive: Path, command: Command) -> None:
    ledger = unpack(archive, "ledger")
    plan = json.loads(command("reproduce", "table1", "--dry-run", "--json", "--results", ledger))["runs"]
    assert {(run["setting"], run["method"]) for run in plan if run["state"] == "in the ledger"} == {
        ("symmetric 40 %", "sat"),
        ("asymmetric 40 %", "vista-light"),
    }
    command("reproduce", "--table", "--results", ledger)
    table = Path("RESULTS.md").read_text()
    for path in (ledger / "runs").glob("*.json"):
        metrics = json.loads(path.read_text())["metrics"]
        for which in ("best", "last"):
            assert f" {100 * metrics[which]['test']['top1']:.2f} " in table, path.name
