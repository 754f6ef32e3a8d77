"""``vista.train`` and ``vista.compare``: the same runs, bytes and rows as the command line, and errors that raise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import vista
from vista.cli import main
from vista.runs.config import TrainConfig
from vista.training.events import EpochEnded, Event, Finished, Started
from vista.training.scheduler import Job

SHORT = {"noise": "symmetric:0.4", "epochs": 2, "device": "cpu"}
WORDS = ("--noise", "symmetric:0.4", "--epochs", "2", "--device", "cpu")
SAME_BYTES = (
    "best.safetensors",
    "last.safetensors",
    "metrics.json",
    "epochs.jsonl",
    "coverage.safetensors",
    "config.json",
)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VISTA_DATA", raising=False)


def test_train_writes_the_bytes_of_the_command_line() -> None:
    result = vista.train(method="vista:tau=0.01", out="python", **SHORT)
    assert repr(result).startswith("Result('python', vista: test accuracy best ")
    assert main(["train", *WORDS, "--tau", "0.01", "--out", "command", "--quiet"]) == 0
    for name in SAME_BYTES:
        assert Path("python", name).read_bytes() == Path("command", name).read_bytes(), name
    assert result.folder == Path("python")
    assert result.metrics == json.loads(Path("python/metrics.json").read_text())
    assert result.config.to_json() == json.loads(Path("python/config.json").read_text())
    for which in ("best", "last"):
        weights = result.model(which).state_dict()
        loaded = vista.load_model("python", which).state_dict()
        assert all(torch.equal(weights[name], loaded[name]) for name in loaded)


def test_default_folder_and_preset_are_those_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    result = vista.train(method="ce", seed=3, **SHORT)
    assert str(result.folder) == "runs/digits-symmetric-0.4-ce-seed3"
    assert (result.config.batch_size, result.config.lr) == (32, 0.05)
    capsys.readouterr()
    assert main(["train", *WORDS, "--method", "ce", "--seed", "3", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["run"] == str(result.folder)
    assert "has already finished" in printed.err, "it is the same run"


def test_events_are_passed_on_and_fields_override_the_configuration() -> None:
    events: list[Event] = []
    config = TrainConfig(method="ce", batch_size=64, **SHORT)
    result = vista.train(config, "run", events.append, batch_size=128)
    assert result.config.batch_size == 128
    assert isinstance(events[0], Started)
    assert [event.line["epoch"] for event in events if isinstance(event, EpochEnded)] == [1, 2]
    assert isinstance(events[-1], Finished)
    again: list[Event] = []
    assert vista.train(config, "run", again.append, batch_size=128).metrics == result.metrics
    assert [type(event) for event in again] == [Finished], "a finished run is reused"
    vista.train(config, "run", again.append, batch_size=128, fresh=True)
    assert isinstance(again[1], Started)


def test_compare_returns_the_rows_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    seen: set[str] = set()

    def on_event(job: Job, _event: Event) -> None:
        seen.add(job.out.name)

    rows = vista.compare(["ce", "vista-light"], seeds=2, on_event=on_event, **SHORT)
    assert seen == {f"{method}-seed{seed}" for method in ("ce", "vista-light") for seed in (0, 1)}
    capsys.readouterr()
    assert main(["compare", *WORDS, "--methods", "ce,vista-light", "--seeds", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == rows
    assert rows[0]["runs"][1]["run"] == "runs/compare-digits-symmetric-0.4/ce-seed1"


def test_errors_are_raised() -> None:
    with pytest.raises(TypeError, match="field 'epohcs' is unknown; did you mean 'epochs'"):
        vista.train(epohcs=3)
    with pytest.raises(ValueError, match="out must be the path of a folder, got ''"):
        vista.train(out="")
    with pytest.raises(ValueError, match="method 'foo' is unknown; known: ce, "):
        vista.train(method="foo")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.npz does not exist"):
        vista.train(data="npz:nowhere.npz", device="cpu")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.npz does not exist"):
        vista.compare(["ce", "vista"], seeds=1, data="npz:nowhere.npz", device="cpu")
    with pytest.raises(ValueError, match="at_once must be at least 1, got 0"):
        vista.compare(["ce"], seeds=1, at_once=0, device="cpu")
    assert not Path("runs").exists()


def test_a_run_that_fails_is_reported_in_its_row() -> None:
    rows = vista.compare(["byot", "ce"], seeds=1, network="mlp", **SHORT)
    assert rows[0]["runs"][0]["error"]
    assert (rows[0]["seeds"], rows[1]["seeds"]) == (0, 1)


def test_version_is_the_same_in_the_command_the_record_and_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    result = vista.train(method="ce", out="run", **SHORT)
    assert json.loads((result.folder / "environment.json").read_text())["vista"] == vista.__version__
    assert main(["report", "run"]) == 0
    assert f"Written by vista {vista.__version__} " in Path("run/report.html").read_text()
    capsys.readouterr()
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"vista {vista.__version__}\n"
