"""Run folders recreated from ledger records: the same figures and suspects, or an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import write_images, write_run

from vista.analysis import read_run
from vista.cli import main
from vista.data import source
from vista.noise import NoisyLabels
from vista.report.payload import payload
from vista.reproduce import ledger
from vista.reproduce.restore import restore
from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.split import Split
from vista.training import samples


@pytest.fixture
def run(tmp_path: Path) -> Path:
    data = write_images(tmp_path / "images.npz")
    folder = write_run(tmp_path / "runs" / "vista-seed0", method="vista", teacher=True, data=data)
    assert main(["labels", str(folder), "--top", "12"]) == 0
    return folder


@pytest.fixture
def kept(run: Path, tmp_path: Path) -> ledger.LedgerRecord:
    return ledger.read_record(ledger.add(RunFolder(run), tmp_path / "results", with_bits=True))


def shown(path: Path) -> dict[str, Any]:
    """What a page shows of a run, without its path and duration."""
    data = json.loads(json.dumps(payload([read_run(path)])).replace(path.name, "RUN"))
    (row,) = data["table"]["rows"]
    cells = {name: cell for name, cell in row["cells"].items() if name != "minutes"}
    note = data["suspects"]["note"].replace(str(path.parent), "")
    return {"cells": cells, "figures": data["figures"], "rows": data["suspects"]["rows"][:12], "note": note}


def test_the_page_of_a_restored_run_is_unchanged(run: Path, kept: ledger.LedgerRecord, tmp_path: Path) -> None:
    again = restore(kept, tmp_path / "again")
    assert again.path == tmp_path / "again" / kept.path.stem
    assert not (again.path / "teacher.safetensors").exists()
    before, after = shown(run), shown(again.path)
    assert len(after["rows"]) == 12
    assert after["rows"][0]["image"].startswith("data:image/png;base64,")
    facts, review = before["note"].split(" To decide about them: ")
    assert after["note"].startswith(facts.removesuffix("."))
    assert review in after["note"]
    assert {**after, "note": ""} == {**before, "note": ""}


def test_lists_of_suspects_are_not_read_as_records(kept: ledger.LedgerRecord, tmp_path: Path) -> None:
    assert kept.suspects.is_file()
    assert [record.path for record in ledger.read(tmp_path / "results")] == [kept.path]


def test_suspects_are_kept_only_with_a_trajectory(run: Path, tmp_path: Path) -> None:
    ledger.add(RunFolder(run), tmp_path / "results", with_bits=False)
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["runs"]


def test_runs_with_and_without_suspects_are_kept(run: Path, kept: ledger.LedgerRecord, tmp_path: Path) -> None:
    assert ledger.add(RunFolder(run), tmp_path / "results", with_bits=True) == kept.path
    other = write_run(tmp_path / "runs" / "ce-seed0")
    without = ledger.read_record(ledger.add(RunFolder(other), tmp_path / "results", with_bits=True))
    assert without.bits.read_bytes() == (other / "coverage.safetensors").read_bytes()
    assert [path.name for path in (tmp_path / "results" / "suspects").iterdir()] == [kept.path.name]


def test_other_data_are_rejected(kept: ledger.LedgerRecord, tmp_path: Path) -> None:
    with np.load(tmp_path / "images.npz") as file:
        arrays = dict(file)
    np.savez(tmp_path / "images.npz", **{**arrays, "y_train": arrays["y_train"][::-1]})
    with pytest.raises(ValueError, match=r"has labels_hash [0-9a-f]{64}, but the data give"):
        restore(kept, tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("name", ["labels_hash", "split_hash"])
@pytest.mark.parametrize("change", ["wrong", "missing"])
def test_a_record_with_a_wrong_or_missing_hash_is_rejected(
    kept: ledger.LedgerRecord, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, change: str
) -> None:
    content = json.loads(kept.path.read_text())
    content["data"] |= {name: "0" * 64}
    if change == "missing":
        del content["data"][name]
    kept.path.write_text(json.dumps(content))
    assert main(["reproduce", "--restore", str(kept.path), "--out", str(tmp_path / "again")]) == 2
    said = {"wrong": "0" * 64, "missing": "None"}[change]
    assert f"has {name} {said}, but the data give {kept.data[name]}" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "again").exists()


def test_an_existing_folder_is_not_overwritten(kept: ledger.LedgerRecord, tmp_path: Path) -> None:
    restore(kept, tmp_path / "again")
    with pytest.raises(FileExistsError, match=r"vista-seed0-\w+ already exists; choose another --out"):
        restore(kept, tmp_path / "again")


def test_a_record_without_its_trajectory_is_rejected(kept: ledger.LedgerRecord, tmp_path: Path) -> None:
    kept.bits.unlink()
    with pytest.raises(FileNotFoundError, match=r"has no trajectory \(.*\.safetensors\) beside it"):
        restore(kept, tmp_path / "again")


@pytest.mark.parametrize(
    ("change", "message"),
    [({"format": 2}, "has format 2, but this version reads format 1"), ({"given": 7}, "is 7, but num_classes is 3")],
)
def test_an_invalid_list_of_suspects_is_rejected(
    kept: ledger.LedgerRecord, tmp_path: Path, change: dict[str, int], message: str
) -> None:
    listed = json.loads(kept.suspects.read_text())
    (listed["suspects"][0] if "given" in change else listed).update(change)
    kept.suspects.write_text(json.dumps(listed))
    with pytest.raises(ValueError, match=message):
        payload([read_run(restore(kept, tmp_path / "again").path)])


def test_the_command_restores_several_records(
    kept: ledger.LedgerRecord, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = write_run(tmp_path / "runs" / "ce-seed0", data=kept.config.data)
    paths = [kept.path, ledger.add(RunFolder(again), tmp_path / "results", with_bits=True)]
    assert main(["reproduce", "--restore", *map(str, paths), "--out", str(tmp_path / "again")]) == 0
    said = capsys.readouterr().out
    for path in paths:
        assert f"{path} -> {tmp_path / 'again' / path.stem}\n" in said
        assert (tmp_path / "again" / path.stem / "metrics.json").is_file()


def test_the_command_reads_data_from_its_root(
    kept: ledger.LedgerRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, make, asked = source.load, samples.labels_and_split, []

    def loaded(name: str, root: str | None, own_validation: bool) -> source.Source:
        asked.append(root)
        return load(name)

    def made(config: TrainConfig, data: source.Source, root: str | None) -> tuple[NoisyLabels, Split]:
        asked.append(root)
        return make(config, data, None)

    monkeypatch.setattr(source, "load", loaded)
    monkeypatch.setattr("vista.reproduce.restore.labels_and_split", made)
    words = ["reproduce", "--restore", str(kept.path), "--out", str(tmp_path / "again"), "--root", "images"]
    assert main(words) == 0
    assert asked == ["images", "images"], "for the images, and for human labels"


def test_a_path_that_is_no_record_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--restore", "nowhere.json"]) == 2
    assert "nowhere.json does not exist; records are files in results/runs/" in capsys.readouterr().err
    assert main(["reproduce", "--restore", str(tmp_path)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"{tmp_path} is a folder; records are files in results/runs/" in said
