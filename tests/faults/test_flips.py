"""Every flipped bit in a finished run is noticed by every command that reads the file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from reliability import record
from trainings import config, train

import vista
from vista import analysis
from vista.cli import main
from vista.runs import folder
from vista.runs.folder import RunFolder
from vista.runs.record import COVERAGE, EPOCHS, TIMINGS

pytestmark = pytest.mark.faults
FLIPS = 100
BEST = folder.WEIGHTS["best"]
LABELLED = {folder.CONFIG, folder.DATA, folder.LABELS}
REPORT = LABELLED | {folder.ENVIRONMENT, folder.METRICS, folder.SPLIT, EPOCHS, COVERAGE, TIMINGS}
READ_BY = {  # besides the manifest, which is read with any of them
    "evaluate": {folder.CONFIG, folder.DATA, folder.METRICS, BEST},
    "predict": {folder.CONFIG, folder.DATA, BEST},
    "export": {folder.CONFIG, folder.DATA, folder.METRICS, BEST},
    "export last": {folder.CONFIG, folder.DATA, folder.METRICS, folder.WEIGHTS["last"]},
    "report": REPORT | {folder.PREDICTIONS},
    "labels": LABELLED | {folder.SPLIT, folder.PREDICTIONS},
    "labels --decisions": LABELLED,
    "compare": {folder.CONFIG, folder.DATA, folder.METRICS, BEST},
    "resume": {folder.CONFIG, folder.METRICS, EPOCHS, COVERAGE, TIMINGS},
    "train --split-from": {folder.DATA, folder.LABELS, folder.SPLIT},
}


@pytest.fixture(scope="module")
def finished(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    train(config(data), out)
    return out


def commands(data: str) -> dict[str, list[str]]:
    short = ("--network", "tiny-staged", "--epochs", "2", "--device", "cpu", "--dry-run")
    return {
        "evaluate": ["evaluate", "run", "--device", "cpu"],
        "predict": ["predict", "run", "--data", data, "--device", "cpu", "--out", "predictions.csv"],
        "export": ["export", "run", "--to", "network.safetensors"],
        "export last": ["export", "run", "--to", "network.safetensors", "--which", "last"],
        "report": ["report", "run", "--out", "page.html"],
        "labels": ["labels", "run"],
        "labels --decisions": ["labels", "run", "--decisions", "decisions.jsonl", "--clean", "labels.csv"],
        "compare": ["compare", "other", "run"],
        "resume": ["resume", "run"],
        "train --split-from": ["train", "--data", data, "--split-from", "run", *short],
    }


@pytest.fixture
def run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("decisions.jsonl").touch()
    shutil.copytree(finished, "other")
    return Path(shutil.copytree(finished, "run"))


def flip(path: Path, generator: np.random.Generator) -> bytes:
    """Flip a random bit; returns the content before."""
    content = path.read_bytes()
    flipped, position = bytearray(content), int(generator.integers(8 * len(content)))
    flipped[position // 8] ^= 1 << position % 8
    path.write_bytes(flipped)
    return content


def test_every_command_succeeds_on_the_undamaged_run(run: Path, data: str) -> None:
    for words in commands(data).values():
        assert main(words) == 0, words


def test_flipped_bits_are_noticed_by_every_command_that_reads_the_file(
    run: Path, data: str, capfd: pytest.CaptureFixture[str]
) -> None:
    generator, tried, noticed = np.random.default_rng(0), 0, 0
    files = sorted(name for name in folder.VERIFIED | {folder.MANIFEST} if (run / name).exists())
    for number in range(FLIPS):
        file = files[number % len(files)]
        content = flip(run / file, generator)
        readers = [name for name, read in READ_BY.items() if file in read | {folder.MANIFEST}]
        for name in readers:
            capfd.readouterr()
            code, tried = main(commands(data)[name]), tried + 1
            err = capfd.readouterr().err
            assert code == 2, (file, name)
            assert err.startswith(f"vista: error: run/{file} is damaged: "), (name, err)
            assert err.count("\n") == 1
            noticed += 1
        for read in () if readers else _readers_in_python(file):
            with pytest.raises(ValueError, match=f"{file} is damaged"):
                read()
        (run / file).write_bytes(content)
    record("bit flips in a finished run", files=len(files), flips=FLIPS, commands=tried, noticed=noticed)


def _readers_in_python(file: str) -> list[Callable[[], object]]:
    """Readers of a file that no command reads: the teacher judges labels only where there are no predictions."""
    assert file == folder.TEACHER
    return [RunFolder(Path("run")).teacher]


def test_a_run_without_a_manifest_is_read_as_before(run: Path, data: str) -> None:
    (run / folder.MANIFEST).unlink()
    for words in commands(data).values():
        assert main(words) == 0, words
    assert vista.load_model(run)
    assert len(analysis.read_run(run)) == 3
