"""Links and foreign entries in a run folder: no command writes or deletes through a link, or deletes foreign files."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from trainings import Kill, Trainer, config, ended_as, stopped, train

from vista.cli import main
from vista.files import atomic
from vista.runs import checkpoint, lock
from vista.runs.checkpoint import BLOBS, FOLDER, Checkpoints
from vista.runs.config import TrainConfig
from vista.runs.folder import CONFIG, EARLIER, RunFolder
from vista.training.resolve import identity

NEWEST = "epoch-00003-step-0000000"
COMMANDS = "resume", "train", "fresh", "delete"
Contents = dict[str, str]


@pytest.fixture(scope="module")
def whole(data: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    out = tmp_path_factory.mktemp("whole") / "run"
    train(config(data), out)
    return ended_as(out)


@pytest.fixture(scope="module")
def interrupted(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stopped(config(data), tmp_path_factory.mktemp("stopped") / "run", 3, 0)


@pytest.fixture
def run(interrupted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(interrupted, tmp_path / "run"))


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder of another user: files, folders, a hidden file and names that look like ours."""
    folder = tmp_path / "foreign"
    for file in ("thesis.tex", "photos/1.jpg", ".hidden", "model.safetensors", f"{NEWEST}/{checkpoint.STATE}"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(file)
    return folder


def contents(folder: Path) -> Contents:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def command(name: str, run: Path, data: str) -> list[str]:
    if name in ("resume", "delete"):
        return ["resume", str(run)] if name == "resume" else ["runs", "delete", str(run), "--yes"]
    values: dict[str, Any] = RunFolder(run).config().to_json()
    flags = ("noise", "network", "epochs", "batch_size", "lr", "rotation", "validation", "device", "checkpoint_seconds")
    words = [word for flag in flags for word in (f"--{flag.replace('_', '-')}", str(values[flag]))]
    fresh = ["--fresh"] if name == "fresh" else []
    words += ["--method", "vista", "--preset", "noisy", "--lr-schedule", "cosine"]
    return ["train", "--data", data, *words, "--out", str(run), *fresh]


def replace_by_link(path: Path, target: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


# ---------------------------------------------------------------- links


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("linked", [FOLDER, BLOBS, EARLIER, f"{FOLDER}/{NEWEST}"])
def test_no_command_deletes_or_writes_through_a_linked_folder(
    data: str, run: Path, foreign: Path, linked: str, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = contents(foreign)
    replace_by_link(run / linked, foreign)
    assert main(command(name, run, data)) == 2
    assert contents(foreign) == before
    assert (run / CONFIG).exists()
    assert (run / linked).is_symlink()
    said = capfd.readouterr().err
    assert f"{run / linked} is a symbolic link" in said
    assert "--checkpoint-dir" in said


@pytest.mark.parametrize("file", ["config.json", "metrics.json", "epochs.jsonl", "coverage.safetensors", "tensorboard"])
def test_a_linked_file_that_a_training_writes_is_rejected(
    data: str, run: Path, tmp_path: Path, file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "target"
    target.write_text((run / file).read_text("latin-1") if (run / file).exists() else "mine")
    if file == "metrics.json":
        target.unlink()  # a link without a target: the run is not finished
    replace_by_link(run / file, target)
    before = target.read_text("latin-1") if target.exists() else None
    assert main(["resume", str(run)]) == 2
    assert (
        f"{run / file} is {'damaged: it is ' if file == 'config.json' else ''}a symbolic link" in capfd.readouterr().err
    )
    assert (target.read_text("latin-1") if target.exists() else None) == before


def test_runs_set_aside_behind_a_link_are_left_alone(data: str, run: Path, foreign: Path) -> None:
    (foreign / "teacher").mkdir()
    (foreign / ".teacher.replaced").mkdir()
    (foreign / ".teacher.replaced" / CONFIG).write_text("{}")
    (run / EARLIER).symlink_to(foreign)
    before = contents(foreign)
    assert main(["resume", str(run)]) == 2
    assert contents(foreign) == before


def test_a_folder_that_becomes_a_link_during_the_run_stops_it(
    data: str, run: Path, foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(foreign)

    def swap(what: str, path: Path) -> None:
        if path.name == checkpoint.MANIFEST and what == "done" and not (run / BLOBS).is_symlink():
            replace_by_link(run / BLOBS, foreign)

    monkeypatch.setattr(atomic, "on_write", swap)
    with pytest.raises(ValueError, match=r"blobs is a symbolic link"):
        train(config(data), run)
    assert contents(foreign) == before


def test_deleting_entries_follows_no_link(tmp_path: Path, foreign: Path) -> None:
    before = contents(foreign)
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "link").symlink_to(foreign)
    (folder / "link").symlink_to(foreign)
    atomic.delete_entries(folder, ["inner", "link", "missing"], {"link"}.__contains__)
    assert list(folder.iterdir()) == []
    (tmp_path / "linked").symlink_to(foreign)
    with pytest.raises(ValueError, match="linked is a symbolic link"):
        atomic.delete_entries(tmp_path / "linked", ["thesis.tex", "photos"], {"1.jpg"}.__contains__)
    assert contents(foreign) == before


def test_a_temporary_name_that_is_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "file"
    target.write_text("mine")
    temporary = f"{atomic._temporary_prefix(path)}{os.getpid()}.tmp"
    (tmp_path / temporary).symlink_to(target)
    atomic.write(path, b"content")
    assert (target.read_text(), path.read_text()) == ("mine", "content")


# ---------------------------------------------------------------- foreign entries


@pytest.mark.parametrize("folder", [FOLDER, BLOBS])
def test_foreign_entries_are_reported_and_left_alone(data: str, run: Path, whole: dict[str, str], folder: str) -> None:
    put = ("@eaDir/thumb", "notes.txt", "epoch-3/state.json", ".cache.tmp", "zeta.safetensors")
    for file in put:
        (run / folder / file).parent.mkdir(exist_ok=True)
        (run / folder / file).write_text("mine")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        events = train(config(data), run)
    reported = [str(warning.message) for warning in caught if "@eaDir" in str(warning.message)]
    assert len(reported) == 1
    assert f"{run / folder} holds entries that are not of this run" in reported[0]
    assert events[0].epoch == 3
    assert contents(run / folder) == dict.fromkeys(put, "mine")
    ended = {name: digest for name, digest in ended_as(run).items() if not name.startswith(f"{folder}/")}
    assert ended == whole
    assert not {FOLDER, BLOBS} - {folder} & {path.name for path in run.iterdir()}


def test_foreign_entries_do_not_keep_blobs_that_no_checkpoint_needs(data: str, tmp_path: Path) -> None:
    (tmp_path / "run" / FOLDER / "@eaDir").mkdir(parents=True)
    with pytest.warns(UserWarning, match="@eaDir"):
        run = stopped(config(data, epochs=6), tmp_path / "run", 6, 0)
    manifests = [
        json.loads((run / FOLDER / name / checkpoint.MANIFEST).read_text()) for name in Checkpoints(run).names()
    ]
    needed = {Path(file).name for manifest in manifests for file in manifest if file.startswith(BLOBS)}
    assert {path.name for path in (run / BLOBS).iterdir()} == needed


# ---------------------------------------------------------------- the lock


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("make", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_a_linked_lock_is_rejected_and_its_target_unchanged(
    data: str, run: Path, tmp_path: Path, name: str, make: Callable[..., None], capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    (run / lock.FILE).unlink()
    make(target, run / lock.FILE)
    assert main(command(name, run, data)) == 2
    assert target.read_text() == "mine"
    assert (run / CONFIG).exists()
    said = capfd.readouterr().err
    assert f"{run / lock.FILE} is a" in said
    assert "remove it" in said or "replace it" in said


@pytest.mark.parametrize("kind", ["fifo", "folder", "dangling link"])
def test_a_lock_that_is_no_file_is_rejected_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / lock.FILE
    {"fifo": os.mkfifo, "folder": os.mkdir, "dangling link": lambda p: os.symlink(tmp_path / "none", p)}[kind](path)
    with pytest.raises(ValueError, match=r"lock is a .*: remove it"), lock.locked(tmp_path):
        pass
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_reported_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(file: object, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(lock, "fcntl", SimpleNamespace(**{**vars(fcntl), "flock": flock}))
    with (
        pytest.raises(OSError, match=r"run/lock cannot be locked: .*supports flock"),
        lock.locked(tmp_path / "run"),
    ):
        pass


# ---------------------------------------------------------------- --checkpoint-dir


def seeded(out: Path) -> dict[str, str]:
    """The files that the seed decides; the configuration records the folder of the checkpoints."""
    return {name: digest for name, digest in ended_as(out).items() if not name.endswith(CONFIG)}


def test_a_killed_run_resumes_from_its_checkpoint_folder_to_the_same_bytes(
    trainer: Trainer, data: str, tmp_path: Path, whole: dict[str, str]
) -> None:
    scratch, out = tmp_path / "scratch", tmp_path / "run"
    assert trainer(config(data, checkpoint_dir=str(scratch)), out, Kill(event="Stepped", count=5)).killed
    (own,) = scratch.iterdir()
    assert own.name.startswith("run.")
    assert Checkpoints(own).names()
    assert not {FOLDER, BLOBS} & {path.name for path in out.iterdir()}
    assert RunFolder(out).checkpoints_size() > 0
    assert RunFolder(out).size() > RunFolder(out).checkpoints_size()
    moved = out.rename(tmp_path / "moved")
    assert trainer(RunFolder(moved).config(), moved).began_at > (1, 2), "a checkpoint was found"
    assert list(scratch.iterdir()) == []
    assert seeded(moved) == {name: digest for name, digest in whole.items() if name != CONFIG}


def test_the_recorded_folder_is_used_without_the_option_and_its_new_path_with_it(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    out = stopped(config(data, checkpoint_dir="scratch"), tmp_path / "run", 2, 1)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert stopped(config(data), out, 3, 0) == out
    (own,) = (tmp_path / "scratch").iterdir()
    assert Checkpoints(own).names()[0] == NEWEST
    assert main(["resume", str(out), "--checkpoint-dir", "other"]) == 2
    assert f"move {own} to {tmp_path / 'elsewhere' / 'other'}" in capfd.readouterr().err
    (tmp_path / "scratch").rename(tmp_path / "moved")
    assert main(["resume", str(out)]) == 2
    assert f"{tmp_path / 'scratch'} does not exist" in capfd.readouterr().err
    assert stopped(config(data, checkpoint_dir=str(tmp_path / "moved")), out, 3, 1) == out
    assert RunFolder(out).config().checkpoint_dir == str(tmp_path / "moved" / own.name)
    assert main(["resume", str(out), "--quiet"]) == 0
    assert list((tmp_path / "moved").iterdir()) == []


def test_checkpoints_in_the_run_folder_are_not_forgotten(data: str, run: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has its checkpoints in .*run/checkpoints: .* without --checkpoint-dir"):
        train(config(data, checkpoint_dir=str(tmp_path / "scratch")), run)


def test_runs_that_share_a_checkpoint_folder_do_not_collide(data: str, tmp_path: Path) -> None:
    """Also with one name and configuration, and with a run that another one needs first."""
    scratch = tmp_path / "scratch"
    wanted = config(data, checkpoint_dir=str(scratch))
    stopped(wanted, tmp_path / "a" / "run", 2, 1)
    stopped(wanted, tmp_path / "b" / "run", 3, 0)
    stopped(config(data, "ban", checkpoint_dir=str(scratch)), tmp_path / "ban", 2, 1)
    names = sorted(path.name.partition(".")[0] for path in scratch.iterdir())
    assert names == ["run", "run", "teacher"]
    assert train(wanted, tmp_path / "a" / "run")[0].epoch == 2
    assert train(wanted, tmp_path / "b" / "run")[0].epoch == 3
    assert seeded(tmp_path / "a" / "run") == seeded(tmp_path / "b" / "run")
    train(config(data, "ban", checkpoint_dir=str(scratch)), tmp_path / "ban")
    assert list(scratch.iterdir()) == []


def test_a_copy_of_a_run_does_not_use_its_checkpoints(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    out = stopped(config(data, checkpoint_dir="scratch"), tmp_path / "run", 2, 1)
    (own,) = (tmp_path / "scratch").iterdir()
    shutil.copytree("run", "copy")
    names = Checkpoints(own).names()
    assert main(["resume", "copy", "--quiet"]) == 2
    assert capfd.readouterr().err == (
        f"vista: error: copy is a copy of {out}, and the checkpoints in {own} belong to that run: resume {out}, or "
        "train the copy from epoch 1 with --fresh\n"
    )
    assert main(["runs", "delete", "copy", "--yes"]) == 0
    assert Checkpoints(own).names() == names, "the copy is deleted, the checkpoints of the original are not"
    shutil.copytree("run", "copy")
    assert main([*command("fresh", Path("copy"), data), "--quiet"]) == 0
    assert Checkpoints(own).names() == names
    assert train(RunFolder(out).config(), out)[0].epoch == 2, "the original resumes"
    assert not own.exists()


def test_compare_shares_a_checkpoint_folder(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["compare", "--data", data, "--methods", "ce,vista", "--seeds", "1", "--epochs", "2", "--device", "cpu"]
    words += ["--checkpoint-seconds", "0", "--checkpoint-dir", "scratch", "--out", "runs", "--network", "tiny-staged"]
    assert main([*words, "--quiet"]) == 0
    recorded = [RunFolder(path).config().checkpoint_dir for path in sorted((tmp_path / "runs").iterdir())]
    assert len(set(recorded)) == 2
    assert all(path is not None and Path(path).parent == tmp_path / "scratch" for path in recorded)
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("name", ["delete", "fresh"])
def test_removing_a_run_removes_its_own_checkpoints_alone(data: str, tmp_path: Path, foreign: Path, name: str) -> None:
    before = contents(foreign)
    out = stopped(config(data, checkpoint_dir=str(foreign)), tmp_path / "run", 2, 1)
    own = Path(str(RunFolder(out).config().checkpoint_dir))
    (own / FOLDER / "@eaDir").mkdir()
    (own / FOLDER / "@eaDir" / "thumb").write_text("mine")
    assert own.parent == foreign
    assert main([*command(name, out, data), *([] if name == "delete" else ["--quiet"])]) == 0
    assert contents(foreign) == {**before, f"{own.name}/{FOLDER}/@eaDir/thumb": "mine"}
    assert out.exists() == (name == "fresh")


def test_a_recorded_folder_that_is_no_name_of_ours_is_not_deleted_from(data: str, run: Path, tmp_path: Path) -> None:
    """A configuration edited by hand."""
    other = stopped(config(data), tmp_path / "other", 2, 1)
    values = json.loads((run / CONFIG).read_text())
    (run / CONFIG).write_text(json.dumps({**values, "checkpoint_dir": str(other)}))
    names = Checkpoints(other).names()
    assert main(["runs", "delete", str(run), "--yes"]) == 0
    assert Checkpoints(other).names() == names


def test_the_checkpoint_folder_is_not_part_of_what_a_run_is(data: str) -> None:
    assert identity(config(data, checkpoint_dir="a")) == identity(config(data))
    assert TrainConfig.from_json({k: v for k, v in config(data).to_json().items() if k != "checkpoint_dir"})
