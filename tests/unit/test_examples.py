"""Every example is a short, complete script, and runs."""

import json
import os
import re
import runpy
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
EXAMPLES = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
NEEDS = {
    "lightning_digits": "lightning",
    "huggingface_digits": "transformers",
    "accelerate_digits": "accelerate",
    "sklearn_digits": "skorch",
    "tracked_digits": "tensorboard",
}
ARGUMENTS = {"text": ["--seeds", "1", "--epochs", "3"], "tabular": ["--seeds", "1", "--epochs", "3"]}
OWN_PROCESS = {"accelerate_digits": {}}  # Accelerate's settings are global to a process


def needs(module):
    pytest.importorskip(module, reason=f"{module} is not installed")


def in_own_process(path, *words, **environment):
    done = subprocess.run(
        [sys.executable, str(path), *words],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_short_and_self_contained(name):
    text = EXAMPLES[name].read_text()
    assert len(text.splitlines()) < 80
    assert f"examples/{name}.py" in text.split('"""')[1]  # the docstring shows the command
    imported = re.findall(r"^\s*(?:from|import) (\w+)", text, re.MULTILINE)
    assert not set(imported) & (set(EXAMPLES) - {"text"})


@pytest.mark.filterwarnings("ignore")  # from the libraries
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name, tmp_path, monkeypatch, capsys):
    if name in NEEDS:
        needs(NEEDS[name])
    monkeypatch.chdir(tmp_path)
    if name in OWN_PROCESS:
        out = in_own_process(EXAMPLES[name])
    else:
        monkeypatch.setattr(sys, "argv", [str(EXAMPLES[name]), *ARGUMENTS.get(name, [])])
        with torch.random.fork_rng():
            runpy.run_path(str(EXAMPLES[name]), run_name="__main__")
        out = capsys.readouterr().out
    found = re.findall(r"test (0\.\d+)", out)
    if found:
        assert float(found[-1]) > 0.8  # a network that memorised the 40 % wrong labels has less
    else:
        assert re.search(r"best \d+\.\d last \d+\.\d|logged 15 epochs to", out)


def test_trackio_stores_what_the_example_logged(tmp_path):
    needs("trackio")
    in_own_process(EXAMPLES["tracked_digits"], "trackio", TRACKIO_DIR=str(tmp_path))
    rows = list(sqlite3.connect(tmp_path / "digits.db").execute("select step, metrics from metrics"))
    lines = [json.loads(values) for _, values in rows if b"vista/beta" in bytes(values)]
    assert len(lines) == 15
    assert {"vista/accuracy", "vista/anchors", "vista/deviation_gap", "vista/weight/1"} <= lines[0].keys()
    assert len(list(tmp_path.rglob("*.png"))) == 3


@pytest.mark.parametrize("name", ["text", "tabular"])
def test_the_records_match_the_examples(name):
    record = json.loads((ROOT / "results" / "examples" / f"{name}.json").read_text())
    example = runpy.run_path(str(EXAMPLES[name]))
    assert record["example"] == f"examples/{name}.py"
    assert record["config"]["noise"] == f"symmetric:{example['NOISE']}" == "symmetric:0.3"
    assert (record["config"]["lr"], record["config"]["batch_size"]) == (example["LR"], example["BATCH"])
    assert record["seeds"] == [0, 1, 2]
    assert {row["method"]: len(row["runs"]) for row in record["rows"]} == {"ce": 3, "vista": 3}
    for row in record["rows"]:
        for which in ("best", "last"):
            mean = sum(run[which] for run in row["runs"]) / 3
            assert row[which]["mean"] == pytest.approx(mean)
