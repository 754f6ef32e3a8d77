"""Output files must have the right extension, and never overwrite an input or part of a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from vista.analysis.recorder import TrajectoryRecorder

from .conftest import Vista


@pytest.fixture
def trajectory() -> Path:
    """Predictions of three epochs, as ``vista report`` draws them."""
    predictions = np.random.default_rng(0).integers(0, 3, size=(3, 12))
    np.savez("trajectory.npz", predictions=predictions, labels=np.arange(12) % 3)
    return Path("trajectory.npz")


@pytest.mark.parametrize(
    ("command", "option", "name", "endings"),
    [
        ("report", "-o", "code.py", ".html or .htm"),
        ("report", "--out", "page", ".html or .htm"),
        ("predict", "-o", "other.npz", ".csv"),
        ("predict", "--out", "predictions", ".csv"),
        ("labels", "--clean", "labels.npz", ".csv"),
        ("export", "--to", "model.pt", ".safetensors or .onnx, or be a folder (model.pt/)"),
    ],
)
def test_an_output_ends_as_its_kind_does(
    vista: Vista, trained: Path, data: str, command: str, option: str, name: str, endings: str
) -> None:
    Path(name).write_bytes(b"precious")
    said = vista(command, "trained", *(("--data", data) if command == "predict" else ()), option, name)
    argument = {"-o": "out"}.get(option, option.removeprefix("--"))
    assert (said.code, said.err) == (2, f"vista: error: {argument} must end in {endings}, got {name}\n")
    assert Path(name).read_bytes() == b"precious"


def test_an_earlier_output_of_the_same_kind_is_written_over(vista: Vista, trained: Path, data: str) -> None:
    words = (
        ("report", "trained", "-o", "page.HTML"),
        ("report", "trained", "-o", "page.htm"),
        ("predict", "trained", "--data", data, "-o", "p.csv"),
        ("labels", "trained", "--clean", "clean.csv"),
        ("export", "trained", "--to", "net.SafeTensors"),
    )
    for each in words:
        Path(each[-1]).write_text("from before")
        assert vista(*each).code == 0, each
        assert Path(each[-1]).read_bytes() != b"from before"


def test_an_export_does_not_overwrite_a_part_of_a_recorded_training(vista: Vista, trained: Path) -> None:
    TrajectoryRecorder("recorded", [0, 1]).end_epoch(np.eye(2))
    before = Path("recorded/coverage.safetensors").read_bytes()
    said = vista("export", "trained", "--to", "recorded/coverage.safetensors")
    assert said.code == 2
    assert "to must be another file, got recorded/coverage.safetensors: it is part of the run" in said.err
    assert Path("recorded/coverage.safetensors").read_bytes() == before
    assert vista("export", "trained", "--to", "recorded/net.safetensors").code == 0, (
        "other files there belong to no run"
    )
    Path("own").mkdir()
    assert vista("export", "trained", "--to", "own/coverage.safetensors").code == 0, "nothing was recorded there"


def test_a_report_does_not_overwrite_what_it_draws(vista: Vista, trajectory: Path) -> None:
    before = trajectory.read_bytes()
    said = vista("report", str(trajectory), "-o", f"./{trajectory}")
    assert said.code == 2
    assert "out must be another file, such as trajectory.html, got trajectory.npz: it holds what is drawn" in said.err
    shutil.copy(trajectory, "odd.html")
    assert "got odd.html: it holds what is drawn" in vista("report", "odd.html", "-o", "odd.html").err
    assert trajectory.read_bytes() == Path("odd.html").read_bytes() == before


@pytest.fixture
def relabelled(vista: Vista, data: str, small: tuple[str, ...]) -> Path:
    """A run on the labels of ``labels.csv``."""
    Path("labels.csv").write_text("id,label\n" + "".join(f"{place},{place % 3}\n" for place in range(120)))
    words = ("--data", data, "--noise", "file:labels.csv", *small[4:], "--method", "vista", "--quiet")
    assert vista("train", *words, "--out", "relabelled").code == 0
    return Path("relabelled")


def test_labels_that_a_run_was_trained_on_stay(vista: Vista, relabelled: Path, data: str) -> None:
    before = Path("labels.csv").read_bytes()
    Path("labels-2.csv").write_text("from before")
    taken = "must be another file, such as labels-3.csv, got {}: it holds the labels that the run was trained on\n"
    Path("link.csv").symlink_to("labels.csv")
    said = vista("labels", "relabelled", "--clean", "labels.csv")
    assert (said.code, said.err) == (2, f"vista: error: clean {taken.format('labels.csv')}")
    assert vista("labels", "relabelled", "--clean", "link.csv").code == 2
    said = vista("predict", "relabelled", "--data", data, "-o", "labels.csv")
    assert (said.code, said.err) == (2, f"vista: error: out {taken.format('labels.csv')}")
    assert not (relabelled / "suspected_labels.csv").exists()
    assert vista("labels", "relabelled", "--clean", "labels-3.csv").code == 0
    config = json.loads((relabelled / "config.json").read_text())
    (relabelled / "manifest.json").unlink(missing_ok=True)
    (relabelled / "config.json").write_text(json.dumps({**config, "noise": "file:labels-3.csv"}))
    assert "such as labels-4.csv, got" in vista("labels", "relabelled", "--clean", "labels-3.csv").err
    assert Path("labels.csv").read_bytes() == before


def test_lists_of_suspects_do_not_overwrite_the_labels_either(vista: Vista, relabelled: Path) -> None:
    Path("labels.csv").rename("suspected_labels.csv")
    config = json.loads((relabelled / "config.json").read_text())
    (relabelled / "manifest.json").unlink(missing_ok=True)
    (relabelled / "config.json").write_text(json.dumps({**config, "noise": "file:suspected_labels.csv"}))
    before = Path("suspected_labels.csv").read_bytes()
    said = vista("labels", "relabelled", "--out", ".")
    assert (said.code, said.err) == (
        2,
        "vista: error: out must be another folder, got .: its suspected_labels.csv holds the labels that the run was "
        "trained on\n",
    )
    assert Path("suspected_labels.csv").read_bytes() == before
