"""Links, FIFOs and foreign entries at every position in a run folder, and every command that writes or deletes there.

Whatever is at a position: no command hangs, prints a traceback, changes or deletes anything outside the run folder or
any foreign entry, or finishes a run with other bytes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from reliability import record
from trainings import config, ended_as, stopped, train

from vista.analysis import suspect_files
from vista.cli import main
from vista.runs import checkpoint, folder, lock
from vista.runs.checkpoint import BLOBS, FOLDER, STORE, UNUSED
from vista.runs.folder import EARLIER, RunFolder

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]
NEWEST, OF_A_METHOD = "epoch-00003-step-0000000", "vista-store-host-1-00000000"
FOREIGN = (
    "notes.txt", f"{FOLDER}/notes.txt", f"{BLOBS}/@eaDir", f"{FOLDER}/{NEWEST}/notes.txt", f"{EARLIER}/notes",
    f"{STORE}/notes.txt", f"{STORE}/{OF_A_METHOD}/notes.txt", f"{folder.FOLDS}/notes", "../.run.replaced",
)  # fmt: skip
ONLY_TRAINING_USES = (
    f"{folder.FOLDS}/{folder.FOLD_LABELS}", STORE, f"{STORE}/{OF_A_METHOD}", f"{STORE}/{OF_A_METHOD}/rows",
)  # fmt: skip
OWN = (
    *sorted(folder.VERIFIED - {folder.TEACHER}), folder.TEACHER, folder.MANIFEST, lock.FILE,
    EARLIER, folder.TENSORBOARD, FOLDER, BLOBS, f"{FOLDER}/{NEWEST}", f"{BLOBS}/a blob", folder.FOLDS,
    *ONLY_TRAINING_USES,
    *(f"{FOLDER}/{NEWEST}/{name}" for name in sorted(checkpoint.FILES)), f"{FOLDER}/.{NEWEST}.tmp",
    suspect_files.TABLE, suspect_files.LIST, "report.html", "predictions.csv", "network.safetensors",
)  # fmt: skip
TRAINS = "resume", "train", "fresh", "delete"  # on an interrupted run
USES = "resume", "train", "fresh", "delete", "labels", "report", "export", "predict", "evaluate"  # on a finished run


@pytest.fixture(scope="module")
def finished(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    train(config(data), out)
    return out


@pytest.fixture(scope="module")
def interrupted(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stopped(config(data), tmp_path_factory.mktemp("stopped") / "run", 3, 0)


def command(name: str, data: str) -> list[str]:
    if name in ("train", "fresh"):
        values = config(data).to_json()
        flags = ("noise", "network", "epochs", "batch_size", "lr", "rotation", "validation", "checkpoint_seconds")
        words = [word for flag in flags for word in (f"--{flag.replace('_', '-')}", str(values[flag]))]
        words += ["--method", "vista", "--preset", "noisy", "--lr-schedule", "cosine", "--device", "cpu", "--quiet"]
        return ["train", "--data", data, *words, "--out", "run", *(["--fresh"] if name == "fresh" else [])]
    return {
        "resume": ["resume", "run", "--quiet"],
        "delete": ["runs", "delete", "run", "--yes"],
        "labels": ["labels", "run", "--clean", "run/labels.csv"],
        "report": ["report", "run"],
        "export": ["export", "run", "--to", "run/network.safetensors"],
        "predict": ["predict", "run", "--data", data, "--device", "cpu", "--out", "run/predictions.csv"],
        "evaluate": ["evaluate", "run", "--device", "cpu"],
    }[name]


# ---------------------------------------------------------------- what is put there


def put_symbolic_link(path: Path, outside: Path, content: bytes | None) -> None:
    """A link to a copy of the file, or to a foreign folder."""
    target = outside / "photos"
    if content is not None:
        target = outside / "target"
        target.write_bytes(content)
    path.symlink_to(target)


def put_hard_link(path: Path, outside: Path, content: bytes | None) -> None:
    (outside / "target").write_bytes(content or b"mine")
    path.hardlink_to(outside / "target")


def put_fifo(path: Path, outside: Path, content: bytes | None) -> None:
    os.mkfifo(path)


def put_folder(path: Path, outside: Path, content: bytes | None) -> None:
    (path / "inner").mkdir(parents=True)
    (path / "inner" / "thesis.tex").write_text("mine")


KINDS = {"link": put_symbolic_link, "hard link": put_hard_link, "FIFO": put_fifo, "folder": put_folder}


def put(run: Path, position: str, kind: Callable[..., None], outside: Path) -> Path:
    """Put an entry at a position, in the place of what is there."""
    path = Path(os.path.normpath(run / position))
    if position == f"{BLOBS}/a blob":
        path = min((run / BLOBS).glob("*"), default=run / BLOBS / f"{'0' * 32}.safetensors")
    content = path.read_bytes() if path.is_file() else None
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    kind(path, outside, content)
    return path


def fingerprint(path: Path) -> dict[str, tuple[int, str]]:
    """Kind and content of everything at and below a path; links are not followed."""
    found = {}
    inner = sorted(path.rglob("*")) if path.is_dir() and not path.is_symlink() else []
    for each in [path, *inner] if os.path.lexists(path) else []:
        mode = os.lstat(each).st_mode
        text = os.readlink(each) if stat.S_ISLNK(mode) else ""
        if stat.S_ISREG(mode):
            text = hashlib.sha256(each.read_bytes()).hexdigest()
        found[str(each.relative_to(path))] = stat.S_IFMT(mode), text
    return found


def foreign_files() -> list[tuple[str, str]]:
    """Every file that :func:`put_folder` put somewhere, wherever it is now."""
    return [(path.name, path.read_text()) for path in Path().rglob("inner/thesis.tex")]


# ---------------------------------------------------------------- every position, kind and command


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("state", ["interrupted", "finished"])
def test_nothing_foreign_is_changed(
    data: str, state: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    whole = files_of(request.getfixturevalue("finished"))
    original, tried, succeeded = request.getfixturevalue(state), 0, 0
    for position in (*OWN, *FOREIGN):
        for name in TRAINS if state == "interrupted" or position in ONLY_TRAINING_USES else USES:
            where = tmp_path / f"case-{tried}"
            run, outside = where / "run", where / "outside"
            (outside / "photos").mkdir(parents=True)
            (outside / "photos" / "1.jpg").write_text("mine")
            monkeypatch.chdir(where)
            shutil.copytree(original, run)
            path = put(run, position, KINDS[kind], outside)
            before, entry = fingerprint(outside), fingerprint(path)
            capfd.readouterr()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                code, tried = main(command(name, data)), tried + 1
            said, case = capfd.readouterr().err, (position, name)
            assert code in (0, 1, 2), (case, said)
            assert "Traceback" not in said, (case, said)
            assert code == 0 or said.count("vista: error: ") == 1, (case, said)
            assert fingerprint(outside) == before, case
            if position in FOREIGN and NEWEST not in position:
                assert fingerprint(path) == entry, (case, "a foreign entry is left alone")
            if kind == "folder":
                assert foreign_files() == [("thesis.tex", "mine")], (case, said)
            if code == 0 and name in ("resume", "train", "fresh"):
                succeeded += 1
                expected = dict(whole)
                if state == "finished" and name != "fresh":  # taken as it is
                    expected.pop(position, None)
                assert {file: digest for file, digest in files_of(run).items() if file in expected} == expected, case
            monkeypatch.chdir(tmp_path)
            shutil.rmtree(where)
    record(f"{kind} in a {state} run", positions=len(OWN) + len(FOREIGN), calls=tried, finished=succeeded, harmed=0)


def files_of(run: Path) -> dict[str, str]:
    """The files that the seed decides, without foreign and kept ones."""
    names = folder.VERIFIED | {folder.MANIFEST}
    return {name: digest for name, digest in ended_as(run, 0).items() if name in names}


def test_a_checkpoint_with_a_foreign_file_is_kept_without_its_own_files(interrupted: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(interrupted, tmp_path / "run"))
    (run / FOLDER / NEWEST / "notes.txt").write_text("mine")
    with pytest.warns(UserWarning, match=rf"{NEWEST}{UNUSED} holds entries that are not of this run"):
        train(RunFolder(run).config(), run)
    assert [path.name for path in (run / FOLDER / f"{NEWEST}{UNUSED}").iterdir()] == ["notes.txt"]
    assert not (run / BLOBS).exists()
