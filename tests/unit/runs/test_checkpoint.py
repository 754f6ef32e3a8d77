"""Checkpoints are written atomically, rejected by name if damaged, and read without unpickling."""

from __future__ import annotations

import _pickle
import errno
import hashlib
import json
import os
import pickle
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from trainings import config, damage, ended_as, stopped, train

import vista
from vista.core import collectives
from vista.core.host_store import write_rows
from vista.core.store import RowsOnDisk
from vista.files import atomic
from vista.methods import WrittenOnce
from vista.runs import checkpoint
from vista.runs.checkpoint import BLOBS, FOLDER, MANIFEST, STATE, TENSORS, Checkpoints, Damaged, join, split
from vista.runs.folder import RunFolder

OLDER, NEWEST, LAST = "epoch-00002-step-0000001", "epoch-00003-step-0000000", "epoch-00003-step-0000001"
KINDS = "cut short", "flipped", "missing"


def small_state(seed: int, anchors: tuple[int, ...] = (1,)) -> dict[str, Any]:
    rows = {str(s): torch.full((4, 3), s / 7, dtype=torch.float16) for s in anchors}
    return {
        "epoch": seed,
        "weights": torch.full((2, 3), float(seed)),
        "bits": np.arange(seed, seed + 4, dtype=np.uint8),
        "momentum": [torch.ones(2), torch.zeros(1)],
        "method": {"_extra_state": {"rows": WrittenOnce(rows), "name": "ü", "none": None, "list": [1, 2.5, True]}},
        "best": WrittenOnce({"1": {"a.weight": torch.arange(3.0), "b": torch.tensor(2)}}),
    }


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for mine, yours in zip(one, other, strict=True):
            assert_same(mine, yours)
    elif isinstance(one, Tensor | np.ndarray):
        assert type(one) is type(other)
        assert one.dtype == other.dtype
        assert np.array_equal(np.asarray(one), np.asarray(other))
    else:
        assert one == other


def blobs(run: Path) -> set[str]:
    return {path.name for path in (run / BLOBS).iterdir()}


# ---------------------------------------------------------------- writing and reading


def test_state_comes_back_as_it_was(tmp_path: Path) -> None:
    state = small_state(1)
    state["best"]["2"] = {"values": torch.ones(2)}  # a network's only tensor, named as files name a lone one
    assert_same(join(*split(state)), state)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save("epoch-00001-step-0000000", state, wait=True)
    assert checkpoints.names() == ["epoch-00001-step-0000000"]
    assert_same(Checkpoints(tmp_path).load("epoch-00001-step-0000000"), state)


def test_tensors_come_back_from_however_deep_they_lie_and_however_they_are_laid_out(tmp_path: Path) -> None:
    """Tuples come back as lists, as JSON has it."""
    turned, step = np.arange(6, dtype=np.int64).reshape(2, 3).T[::-1], torch.arange(4.0).view(2, 2).T
    state = {"deep": [[step, 2], (torch.zeros(1),), [(step, "b")]], "flat": [(1, 2)], "turned": turned}
    Checkpoints(tmp_path).save("epoch-00001-step-0000000", state, wait=True)
    expected = {"deep": [[step, 2], [torch.zeros(1)], [[step, "b"]]], "flat": [[1, 2]], "turned": turned}
    assert_same(Checkpoints(tmp_path).load("epoch-00001-step-0000000"), expected)


def test_what_changes_after_a_save_is_not_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is copied before ``save`` returns; it is written while the training continues."""
    state, checkpoints = small_state(1), Checkpoints(tmp_path)
    monkeypatch.setattr(atomic, "on_write", lambda what, path: state["weights"].add_(1))
    checkpoints.save("epoch-00001-step-0000000", state)
    state["bits"] += 1
    state["method"]["_extra_state"]["list"].append("more")
    checkpoints.wait()
    assert_same(Checkpoints(tmp_path).load("epoch-00001-step-0000000"), small_state(1))


def test_the_newest_and_the_one_before_stay_with_what_they_need(tmp_path: Path) -> None:
    checkpoints, counts = Checkpoints(tmp_path), []
    for epoch, anchors in enumerate([(1,), (1, 2), (2, 3), (3,), (3,)], 1):
        checkpoints.save(f"epoch-{epoch:05d}-step-0000000", small_state(epoch, anchors), wait=True)
        counts.append(len(blobs(tmp_path)))
    assert checkpoints.names() == ["epoch-00005-step-0000000", "epoch-00004-step-0000000"]
    assert counts == [2, 3, 4, 3, 2], "the best weights, and anchors of two checkpoints"
    assert_same(Checkpoints(tmp_path).load("epoch-00004-step-0000000"), small_state(4, (3,)))


@pytest.mark.parametrize("name", ["best", "predictions", "checkpoints"])
def test_what_does_not_say_that_it_is_written_once_is_written_each_time(tmp_path: Path, name: str) -> None:
    """Whatever its name: a custom method names its state freely."""
    checkpoints = Checkpoints(tmp_path)
    for epoch in (1, 2):
        state = {"method": {"_extra_state": {name: {"mean": torch.full((2,), float(epoch))}}}}
        checkpoints.save(f"epoch-{epoch:05d}-step-0000000", state, wait=True)
        assert_same(Checkpoints(tmp_path).load(f"epoch-{epoch:05d}-step-0000000"), state)


def test_blobs_go_only_after_the_next_checkpoint_is_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every write the last two checkpoints can be read: whoever is killed there has them."""
    checkpoints, complete, read = Checkpoints(tmp_path), [], 0

    def read_all(what: str, path: Path) -> None:
        nonlocal read
        for name in complete[-2:]:
            assert_same(Checkpoints(tmp_path).load(name), small_state(int(name[6:11]), (int(name[6:11]),)))
            read += 1

    monkeypatch.setattr(atomic, "on_write", read_all)
    for epoch in range(1, 5):
        checkpoints.save(f"epoch-{epoch:05d}-step-0000000", small_state(epoch, (epoch,)), wait=True)
        complete.append(f"epoch-{epoch:05d}-step-0000000")
    assert read > 80
    assert len(blobs(tmp_path)) == 3


def test_a_checkpoint_that_was_resumed_from_is_not_written_again(tmp_path: Path) -> None:
    """It would be missing for a moment, and it may be the only one."""
    Checkpoints(tmp_path).save("epoch-00001-step-0000000", small_state(1), wait=True)
    resumed = Checkpoints(tmp_path)
    resumed.load_newest()
    before = (tmp_path / FOLDER / "epoch-00001-step-0000000" / STATE).stat()
    resumed.save("epoch-00001-step-0000000", small_state(1), wait=True)
    assert (tmp_path / FOLDER / "epoch-00001-step-0000000" / STATE).stat() == before


def test_a_blob_of_a_checkpoint_that_was_read_before_is_not_taken_for_this_ones(tmp_path: Path) -> None:
    """On a GPU training an epoch again gives other rounding, under the same name."""
    first = Checkpoints(tmp_path)
    first.save("epoch-00001-step-0000000", small_state(1, ()), wait=True)
    first.save("epoch-00002-step-0000000", small_state(2, (2,)), wait=True)
    again = Checkpoints(tmp_path)
    again.load("epoch-00002-step-0000000")
    again.load("epoch-00001-step-0000000")
    other = small_state(2, (2,))
    other["method"]["_extra_state"]["rows"]["2"] += 1
    again.save("epoch-00003-step-0000000", other, wait=True)
    assert_same(Checkpoints(tmp_path).load("epoch-00003-step-0000000"), other)


def test_a_checkpoint_that_another_process_cannot_read_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder may be restored: deleting the parts of others would lose what they hold."""
    Checkpoints(tmp_path).save("epoch-00001-step-0000000", small_state(1), wait=True)
    other = json.dumps(["state.json is missing", False, "rank 1 on host b"])
    with monkeypatch.context() as patch:
        patch.setattr(collectives, "gather_strings", lambda text: [text, other])
        with pytest.raises(OSError, match=r"nothing was deleted. rank 1 on host b: state.json is missing. Restore"):
            Checkpoints(tmp_path).load_newest()
    assert_same(Checkpoints(tmp_path).load_newest(), small_state(1))


def test_a_file_of_the_store_is_linked_not_written(tmp_path: Path) -> None:
    """Also if the method deletes its own name of it before the checkpoint is written in the background."""
    rows, files = torch.rand(5, 3).half(), []
    folder = tmp_path / "store" / "vista-store-host-1-00000000"
    folder.mkdir(parents=True)
    for number in range(2):
        path = folder / f"epoch-0000{number}.safetensors"
        digest = write_rows(path, (5, 3), torch.float16, iter([rows + number]))
        files.append(RowsOnDisk(rows + number, path, digest))
    checkpoints = Checkpoints(tmp_path)
    for number in (1, 2):
        state = {"rows": WrittenOnce({str(n): file for n, file in enumerate(files[:number])})}
        checkpoints.save(f"epoch-0000{number}-step-0000000", state)
        if number == 1:
            inode = files[0].path.stat().st_ino
            files[0].path.unlink()
        checkpoints.wait()
    name = f"{files[0].sha256[:32]}.safetensors"
    assert (tmp_path / BLOBS / name).stat().st_ino == inode
    assert hashlib.sha256((tmp_path / BLOBS / name).read_bytes()).hexdigest() == files[0].sha256
    loaded = Checkpoints(tmp_path).load_newest()["rows"]
    assert_same(loaded, {str(n): rows + n for n in range(2)})


def test_what_a_killed_process_left_half_written_is_cleared(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save("epoch-00001-step-0000000", small_state(1), wait=True)
    shutil.copytree(tmp_path / FOLDER / "epoch-00001-step-0000000", tmp_path / FOLDER / ".epoch-00002-step-0000000.tmp")
    shutil.copytree(
        tmp_path / FOLDER / "epoch-00001-step-0000000", tmp_path / FOLDER / "epoch-00002-step-0000000-rank1"
    )  # rank 0 has none
    (tmp_path / BLOBS / ".abc.safetensors.0.tmp").write_bytes(b"half")
    resumed = Checkpoints(tmp_path)
    assert_same(resumed.load_newest(), small_state(1))
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["epoch-00001-step-0000000"]
    resumed.save("epoch-00002-step-0000000", small_state(2), wait=True)
    assert all(name.endswith(".safetensors") for name in blobs(tmp_path))


@pytest.mark.parametrize("manifest", [None, "{", "[]"], ids=["missing", "cut short", "of another kind"])
def test_damage_while_a_run_continues_does_not_stop_it(tmp_path: Path, manifest: str | None) -> None:
    """What a checkpoint needs whose manifest is gone is not known: until it is old itself, nothing is deleted."""
    checkpoints = Checkpoints(tmp_path)
    for epoch, left in enumerate([2, 3, 3], 1):
        checkpoints.save(f"epoch-{epoch:05d}-step-0000000", small_state(epoch, (epoch,)), wait=True)
        if epoch == 1:
            (tmp_path / FOLDER / "epoch-00001-step-0000000" / MANIFEST).unlink()
            if manifest is not None:
                (tmp_path / FOLDER / "epoch-00001-step-0000000" / MANIFEST).write_text(manifest)
        assert len(blobs(tmp_path)) == left, "the best weights, and one of each epoch that may need it"


@pytest.mark.parametrize("failing", [STATE, TENSORS, MANIFEST, "epoch-00002-step-0000000", "safetensors"])
def test_a_full_disk_leaves_the_checkpoint_before_and_no_half_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save("epoch-00001-step-0000000", small_state(1, ()), wait=True)

    def fill(what: str, path: Path) -> None:
        if what == ("rename" if failing == "epoch-00002-step-0000000" else "half") and path.name.endswith(failing):
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(atomic, "on_write", fill)
    checkpoints.save("epoch-00002-step-0000000", small_state(2, (2,)))
    with pytest.raises(OSError) as raised:
        checkpoints.wait()
    assert raised.value.errno == errno.ENOSPC
    checkpoints.wait()  # it is raised once, and the next one may be written
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["epoch-00001-step-0000000"]
    assert_same(Checkpoints(tmp_path).load_newest(), small_state(1, ()))


def test_whatever_fails_in_the_background_is_raised_where_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(what: str, path: Path) -> None:
        raise MemoryError("no room")

    checkpoints = Checkpoints(tmp_path)
    monkeypatch.setattr(atomic, "on_write", fail)
    checkpoints.save("epoch-00001-step-0000000", small_state(1))
    with pytest.raises(MemoryError, match="no room"):
        checkpoints.wait()


def test_weights_of_anchors_are_written_once_and_go_with_their_anchor(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are larger than everything else in a checkpoint."""
    wanted, run = config(data, "vista-ema:tau=0.05", epochs=6), tmp_path / "run"
    written: list[str] = []

    def note(what: str, path: Path) -> None:
        if what == "done" and path.parent.name == BLOBS:
            written.append(path.name)

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "on_write", note)
        stopped(wanted, run, 6, 0)
    names = Checkpoints(run).names()
    for name in names:
        anchors = Checkpoints(run).load(name)["method"]["_extra_state"]["checkpoints"]
        assert len(needs(run, name)) == 1 + len(anchors), "the best weights, and those of each anchor"
    assert {f"{BLOBS}/{name}" for name in blobs(run)} == set().union(*(needs(run, name) for name in names))
    assert len(written) == len(set(written)) > len(blobs(run)), "each once, and some have gone since"
    train(wanted, run)
    train(wanted, tmp_path / "whole")
    assert ended_as(run) == ended_as(tmp_path / "whole")


# ---------------------------------------------------------------- damage, in a run


@pytest.fixture(scope="module")
def whole(data: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files of an uninterrupted run."""
    out = tmp_path_factory.mktemp("whole") / "run"
    train(config(data), out)
    return ended_as(out)


@pytest.fixture(scope="module")
def interrupted(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that stopped with two checkpoints, the newest in its third epoch."""
    return stopped(config(data), tmp_path_factory.mktemp("stopped") / "run", 3, 0)


@pytest.fixture
def copied(interrupted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(interrupted, tmp_path / "run"))


def needs(run: Path, checkpoint: str) -> set[str]:
    manifest = json.loads((run / FOLDER / checkpoint / MANIFEST).read_text())
    return {name for name in manifest if name.startswith(BLOBS)}


def file_of(run: Path, name: str) -> Path:
    """A file of the newest checkpoint; ``blob`` is one that the checkpoint before does not need."""
    if name != "blob":
        return run / FOLDER / NEWEST / name
    return run / min(needs(run, NEWEST) - needs(run, OLDER))


def test_the_run_to_be_damaged_is_what_these_tests_think(interrupted: Path) -> None:
    assert Checkpoints(interrupted).names() == [NEWEST, OLDER]
    assert needs(interrupted, NEWEST) - needs(interrupted, OLDER)


def test_an_undamaged_run_ends_as_one_never_stopped(data: str, copied: Path, whole: dict[str, str]) -> None:
    events = train(config(data), copied)
    assert events[0].epoch == 3
    assert ended_as(copied) == whole
    assert not {FOLDER, BLOBS} & {path.name for path in copied.iterdir()}, "a finished run needs no checkpoints"
    (copied / FOLDER / NEWEST).mkdir(parents=True)
    train(config(data), copied)
    assert not (copied / FOLDER).exists(), "nor one that was killed between its metrics and their deletion"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [STATE, TENSORS, MANIFEST, "blob"])
def test_a_damaged_checkpoint_is_rejected_by_name_and_the_one_before_is_used(
    data: str, copied: Path, whole: dict[str, str], name: str, kind: str
) -> None:
    damage(file_of(copied, name), kind)
    with pytest.warns(UserWarning, match=rf"checkpoint .*{NEWEST} is damaged: .*; it is not used"):
        events = train(config(data), copied)
    assert events[0].epoch == 2
    assert ended_as(copied) == whole


def test_without_a_sound_checkpoint_the_run_starts_anew(data: str, copied: Path, whole: dict[str, str]) -> None:
    """A damaged blob that both need."""
    stopped(config(data), copied, 3, 1)
    assert Checkpoints(copied).names() == [LAST, NEWEST]
    damage(copied / min(needs(copied, LAST) & needs(copied, NEWEST)), "flipped")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stopped(config(data), copied, 3, 1)
    said = [str(warning.message) for warning in caught]
    assert [name in words for name, words in zip((LAST, NEWEST, "starts from epoch 1"), said, strict=True)] == [
        True
    ] * 3
    assert Checkpoints(copied).load(LAST)["epoch"] == 3
    assert train(config(data), copied)[0].epoch == 3
    assert ended_as(copied) == whole


def test_a_run_that_has_lost_its_checkpoints_says_so(data: str, copied: Path, whole: dict[str, str]) -> None:
    shutil.rmtree(copied / "checkpoints")
    with pytest.warns(UserWarning, match=r"has a record of \d+ epochs but no checkpoint: it starts from epoch 1"):
        events = train(config(data), copied)
    assert events[0].epoch == 1
    assert ended_as(copied) == whole


def test_a_manifest_of_another_kind_is_damaged(data: str, copied: Path, whole: dict[str, str]) -> None:
    file_of(copied, MANIFEST).write_text("[]")
    with pytest.warns(
        UserWarning,
        match=rf"checkpoint .*{NEWEST} is damaged: .* must hold a JSON object, got list; .*; it is not used",
    ):
        train(config(data), copied)
    assert ended_as(copied) == whole


def test_a_damaged_blob_is_written_anew(data: str, copied: Path) -> None:
    """Although a file of its name exists when the run needs it again."""
    damage(file_of(copied, "blob"), "flipped")
    with pytest.warns(UserWarning, match="is damaged"):
        stopped(config(data), copied, 3, 0)
    assert Checkpoints(copied).load(NEWEST)["epoch"] == 3


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [("format", 99, "has format 99, but this version reads 1"), ("processes", 2, "-rank1 is damaged: .*2 processes")],
)
def test_what_this_version_or_start_cannot_read_is_rejected_not_overwritten(
    data: str, copied: Path, field: str, value: int, said: str
) -> None:
    folder = copied / FOLDER / NEWEST
    state = json.loads((folder / STATE).read_text())
    put(folder, STATE, json.dumps({**state, field: value}).encode())
    with pytest.raises(ValueError, match=f"{NEWEST} ?{said}"):
        train(config(data), copied)
    assert folder.exists()


def test_a_checkpoint_of_another_run_is_kept_but_not_used(
    data: str, copied: Path, tmp_path: Path, whole: dict[str, str]
) -> None:
    other = stopped(config(data, lr=0.2), tmp_path / "other", 3, 0)
    shutil.rmtree(copied / FOLDER / NEWEST)
    shutil.copytree(other / FOLDER / NEWEST, copied / FOLDER / NEWEST)
    shutil.copytree(other / BLOBS, copied / BLOBS, dirs_exist_ok=True)
    with pytest.warns(UserWarning, match=rf"{NEWEST} belongs to another run; it is not used, and kept as .*\.unused"):
        events = train(config(data), copied)
    assert events[0].epoch == 2
    kept = copied / FOLDER / f"{NEWEST}.unused"
    for name in needs(copied, kept.name):
        assert (copied / name).read_bytes() == (other / name).read_bytes()
    for path in (other / FOLDER / NEWEST).iterdir():
        assert (kept / path.name).read_bytes() == path.read_bytes()
    shutil.rmtree(copied / FOLDER)
    shutil.rmtree(copied / BLOBS)
    assert ended_as(copied) == whole


UNREADABLE = ("EIO", "EACCES", "file as checkpoint", "folder as state", "FIFO as tensors")


@pytest.mark.parametrize("kind", UNREADABLE)
def test_an_unreadable_checkpoint_is_named_and_the_previous_one_is_used(
    data: str, copied: Path, whole: dict[str, str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    folder, real_open = copied / FOLDER / NEWEST, os.open
    if kind == "file as checkpoint":
        shutil.rmtree(folder)
        folder.write_text("a file")
    elif " as " in kind:
        path = folder / (STATE if "state" in kind else TENSORS)
        path.unlink()
        path.mkdir() if "folder" in kind else os.mkfifo(path)
    else:

        def fail(path: Any, flags: int, *rest: Any, **options: Any) -> int:
            if Path(os.fsdecode(path)) == folder / TENSORS and not flags & os.O_CREAT:
                number = getattr(errno, kind)
                raise OSError(number, os.strerror(number), str(path))
            return real_open(path, flags, *rest, **options)

        monkeypatch.setattr(os, "open", fail)
    with pytest.warns(UserWarning, match=rf"checkpoint .*{NEWEST} (cannot be read|is damaged): .*; it is not used"):
        events = train(config(data), copied)
    assert events[0].epoch == 2
    for name in (FOLDER, BLOBS):
        shutil.rmtree(copied / name, ignore_errors=True)
    assert ended_as(copied) == whole


@pytest.mark.parametrize(
    "name", ["/dev/zero", "../../config.json", "notes.txt", f"{BLOBS}/../config.json", f"{BLOBS}/x"]
)
def test_a_manifest_may_name_only_files_of_a_checkpoint(tmp_path: Path, name: str) -> None:
    Checkpoints(tmp_path).save("epoch-00001-step-0000000", small_state(1), wait=True)
    manifest = tmp_path / FOLDER / "epoch-00001-step-0000000" / MANIFEST
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), name: "0" * 64}))
    with pytest.raises(Damaged, match=f"manifest.json names the foreign file {name!r}"):
        Checkpoints(tmp_path).load("epoch-00001-step-0000000")


def test_a_damaged_one_is_named_by_load(copied: Path) -> None:
    damage(file_of(copied, TENSORS), "flipped")
    with pytest.raises(Damaged, match=f"{NEWEST} is damaged: {TENSORS} does not have the checksum"):
        Checkpoints(copied).load(NEWEST)


@pytest.mark.parametrize(("file", "content"), [(STATE, b"{"), (TENSORS, b"{"), (MANIFEST, b"{}")])
def test_files_that_make_no_state_are_damaged_although_their_checksums_hold(
    tmp_path: Path, file: str, content: bytes
) -> None:
    Checkpoints(tmp_path).save("epoch-00001-step-0000000", small_state(1), wait=True)
    put(tmp_path / FOLDER / "epoch-00001-step-0000000", file, content)
    with pytest.raises(Damaged, match="epoch-00001-step-0000000 is damaged: "):
        Checkpoints(tmp_path).load("epoch-00001-step-0000000")


def put(folder: Path, file: str, content: bytes) -> None:
    """Write a file of a checkpoint, and its checksum."""
    (folder / file).write_bytes(content)
    if file != MANIFEST:
        manifest = json.loads((folder / MANIFEST).read_text())
        manifest[file] = hashlib.sha256(content).hexdigest()
        (folder / MANIFEST).write_text(json.dumps(manifest))


# ---------------------------------------------------------------- no pickle


@pytest.fixture
def without_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpickling fails the test."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("something was unpickled")

    for module in (pickle, _pickle):
        for name in ("load", "loads", "Unpickler"):
            monkeypatch.setattr(module, name, refuse)
    monkeypatch.setattr(pickle, "_Unpickler", refuse)
    monkeypatch.setattr(torch, "load", refuse)


@pytest.mark.usefixtures("without_pickle")
def test_nothing_of_a_run_is_unpickled(data: str, copied: Path, whole: dict[str, str]) -> None:
    with pytest.raises(AssertionError, match="unpickled"):
        pickle.loads(b"")  # noqa: S301
    state = Checkpoints(copied).load(NEWEST)
    method = state["method"]["_extra_state"]
    run = RunFolder.open(copied)
    labels, parts = run.labels(), run.split()
    given = {"labels": labels.given[parts.train], "val_labels": labels.given[parts.val]}
    fresh = vista.Vista(**given, num_classes=10, epochs=3, device="cpu")
    fresh.load_state_dict(method)
    assert fresh.epoch == 2
    assert len(run.record()) == 2
    train(config(data), copied)
    assert ended_as(copied) == whole
    readings: list[Callable[[], object]] = [run.metrics, run.environment, run.data, run.config, run.teacher]
    for read in (*readings, lambda: vista.load_model(copied, "best"), lambda: vista.load_model(copied, "last")):
        assert read() is not None


def test_a_checkpoint_never_creates_a_run_folder_that_was_moved_while_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, moved, to_bytes = tmp_path / "run", tmp_path / "moved", checkpoint.tensors_to_bytes
    run.mkdir()

    def move_first(*args: Any) -> bytes:
        if run.exists():
            run.rename(moved)
        return to_bytes(*args)

    monkeypatch.setattr(checkpoint, "tensors_to_bytes", move_first)
    with pytest.raises(FileNotFoundError):
        Checkpoints(run).save("epoch-00001-step-0000000", {"x": torch.ones(2)}, wait=True)
    assert not run.exists()


def test_a_folder_in_the_place_of_a_moved_run_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the run is replaced after the checkpoint was taken and before it is written in the background."""
    run, write = tmp_path / "run", Checkpoints._write_alone

    def replace_and_write(self: Checkpoints, name: str, copied: checkpoint.Copied) -> None:
        run.rename(tmp_path / "moved")
        run.mkdir()
        write(self, name, copied)

    run.mkdir()
    checkpoints = Checkpoints(run)
    monkeypatch.setattr(Checkpoints, "_write_alone", replace_and_write)
    with pytest.raises(FileNotFoundError, match=r"run does not exist any more"):
        checkpoints.save("epoch-00001-step-0000000", small_state(1), wait=True)
    assert list(run.iterdir()) == []
