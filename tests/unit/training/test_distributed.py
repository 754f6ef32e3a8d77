"""One training on several processes: equal decisions in each process and for any number of processes."""

from __future__ import annotations

import dataclasses
import json
import platform
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks
import torch
from trainings import Kill, Trainer, config, damage, ended_as, train, write_digits

from vista.runs.checkpoint import Checkpoints
from vista.runs.folder import RunFolder
from vista.training import distributed
from vista.training.evaluate import evaluate

Results = dict[str, list[Any]]


# ---------------------------------------------------------------- Vista on given logits


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return given_logits(tmp_path_factory.mktemp("alone"), 1)[0]


def given_logits(out: Path, processes: int) -> list[Results]:
    if processes == 1:
        ranks.given_logits(out)
    return [json.loads((out / f"{processes}-{rank}.json").read_text()) for rank in range(processes)]


@pytest.mark.parametrize("processes", [2, 4])
def test_given_logits_any_number_of_processes_decides_the_same(
    trainer: Trainer, alone: Results, tmp_path: Path, processes: int
) -> None:
    """Anchors, weights, targets, teacher and state, bit for bit, in every process and every epoch."""
    trainer.call("given_logits", tmp_path, processes)
    for rank, results in enumerate(given_logits(tmp_path, processes)):
        assert results == alone, f"process {rank} of {processes}"


@pytest.mark.parametrize("name", ["basic", "light", "top-k"])
def test_the_store_on_the_host_decides_the_same(alone: Results, name: str) -> None:
    for one, other in zip(alone[name], alone[f"{name} on the host"], strict=True):
        assert one[:3] == other[:3]
        assert {**one[3], "state": ""} == {**other[3], "state": ""}


def test_what_they_decide_is_worth_comparing(alone: Results) -> None:
    assert alone.keys() == ranks.OPTIONS.keys()
    for name, epochs in alone.items():
        assert len(epochs) == ranks.EPOCHS
        assert len(epochs[-1][0]) > 1, f"{name} has several anchors"
        assert len({hashes["targets"] for *_, hashes in epochs}) > 2
    assert alone["light"][-1][0].keys() < alone["basic"][-1][0].keys()


def test_a_padded_sample_counts_once(alone: Results) -> None:
    """31 validation samples over 4 processes are 32 rows; the accuracy is that of the 31."""
    assert all(len(ranks.part(size, 1)) == size for size in (ranks.SAMPLES, ranks.VALIDATION)), "alone: no padding"
    for epoch, (_, accuracy, unrecorded, _) in enumerate(alone["basic"], 1):
        right = ranks.drawn(ranks.VAL_LABELS, epoch).argmax(dim=1) == ranks.VAL_LABELS
        assert accuracy == pytest.approx(float(right.double().mean()), abs=1e-15)
        assert unrecorded == 0


def test_processes_that_disagree_are_caught(trainer: Trainer, tmp_path: Path) -> None:
    trainer.call("another_tolerance", tmp_path, 2)
    for rank in range(2):
        said = "the anchors of epoch 1 differ between rank 0 and ranks [1]: give all processes the same data"
        assert (tmp_path / f"said-{rank}").read_text() == said


# ---------------------------------------------------------------- whole trainings


def divided(data: str, method: str, **changes: Any) -> Any:
    """Without BatchNorm, in float64: how a batch is divided changes rounding alone."""
    return config(data, method, network="trainings:plain", precision="fp64", batch_size=12, lr=0.2, **changes)


@pytest.mark.parametrize("method", ["ce", "vista", "kf-kd"])
def test_two_processes_train_to_the_weights_of_one(trainer: Trainer, data: str, tmp_path: Path, method: str) -> None:
    for processes in (1, 2):
        trainer(divided(data, method), tmp_path / str(processes), processes=processes)
    one, two = RunFolder.open(tmp_path / "1"), RunFolder.open(tmp_path / "2")
    for which in ("best", "last"):
        ours, theirs = one.weights(which), two.weights(which)
        assert ours.keys() == theirs.keys()
        for name, weights in ours.items():
            assert weights.dtype == torch.float64
            assert float((weights - theirs[name]).abs().max()) < 1e-6
    for samples in ("val_given", "val_true", "test"):
        assert np.array_equal(one.record().correct(samples), two.record().correct(samples))
    first, second = one.record().lines, two.record().lines
    for line, other in zip(first, second, strict=True):
        assert line.keys() == other.keys()
        assert {k: v for k, v in line.items() if k != "train_loss"} == {
            k: v for k, v in other.items() if k != "train_loss"
        }
        assert line["train_loss"] == pytest.approx(other["train_loss"], rel=1e-6)
    assert first[0]["train_loss"] > first[-1]["train_loss"], "it learns"


CUTMIX = 0.7  # of the batches


@pytest.mark.parametrize(
    ("method", "cutmix"),
    [
        *((method, 0.0) for method in ("ce", "vista", "ps-kd", "tf-kd", "elr", "cs-kd", "zipf-ls")),
        *((method, CUTMIX) for method in ("ce", "zipf-ls")),
    ],
)
def test_labels_that_are_missing_weigh_the_same_in_any_number_of_processes(
    trainer: Trainer, data: str, tmp_path: Path, method: str, cutmix: float
) -> None:
    """Each process has another share of the batch's labelled samples; some have none at all."""
    with np.load(data.removeprefix("npz:")) as file:
        labels = np.where(np.arange(len(file["y_train"])) % 3 > 0, -1, file["y_train"])
    (tmp_path / "given.csv").write_text("id,label\n" + "".join(f"{i},{label}\n" for i, label in enumerate(labels)))
    wanted = dataclasses.replace(
        divided(data, method), noise=f"file:{tmp_path / 'given.csv'}", batch_size=4, cutmix=cutmix
    )
    for processes in (1, 2):
        trainer(wanted, tmp_path / str(processes), processes=processes)
    one, two = RunFolder.open(tmp_path / "1").weights("last"), RunFolder.open(tmp_path / "2").weights("last")
    assert max(float((weights - two[name]).abs().max()) for name, weights in one.items()) < 1e-6


def test_an_average_is_judged_with_the_statistics_that_are_saved(trainer: Trainer, data: str, tmp_path: Path) -> None:
    trainer(config(data, "ema:decay=0.9"), tmp_path / "run", processes=2)
    folder = RunFolder.open(tmp_path / "run")
    for which in ("best", "last"):
        found = evaluate(folder, which, device="cpu")
        for part in ("val", "test"):
            assert found[part]["nll"] == pytest.approx(folder.metrics()[which][part]["nll"], rel=1e-5)


@pytest.mark.parametrize("method", ["vista", "elr"])
def test_processes_end_in_the_same_state(trainer: Trainer, data: str, tmp_path: Path, method: str) -> None:
    """With BatchNorm and CutMix; only the draws of a method and the losses of its own samples are a process's own."""
    trainer(config(data, method, cutmix=0.5 if method == "vista" else 0.0), tmp_path / "run", processes=2)
    refuse_apart(tmp_path / "run")


@pytest.mark.parametrize("method", ["vista", "vista-ema", "kf"])
def test_each_process_judges_its_samples_for_all(trainer: Trainer, data: str, tmp_path: Path, method: str) -> None:
    """Even where they would judge differently: they round in their own ways."""
    trainer(config(data, method, network="trainings:judged_otherwise"), tmp_path / "run", processes=2)
    refuse_apart(tmp_path / "run")


def refuse_apart(run: Path) -> None:
    ended = ended_as(run, 2)
    parts = {name.rpartition(": ")[2] for name in ended if name.startswith("state of process 0")}
    own = {part for part in parts if ended[f"state of process 0: {part}"] != ended[f"state of process 1: {part}"]}
    assert own <= {"generator", "losses", "draws", "evidence"}
    assert {"network", "momentum", "method", "best", "record"} <= parts - own


@pytest.mark.parametrize("method", ["vista", "vista:store=host"])
def test_a_part_that_one_process_cannot_read_stops_all_and_deletes_nothing(
    trainer: Trainer, data: str, tmp_path: Path, method: str
) -> None:
    wanted, out = config(data, method, batch_size=24, epochs=2), tmp_path / "run"
    trainer(wanted, tmp_path / "whole", processes=2)
    assert trainer(wanted, out, Kill(event="Stepped", count=9), processes=2).killed
    names = {path.name for path in (out / "checkpoints").iterdir()}
    newest = max(name.removesuffix("-rank1") for name in names)
    part = out / "checkpoints" / f"{newest}-rank1" / "tensors.safetensors"
    content = part.read_bytes()
    damage(part, "flipped")
    ended = trainer.try_to(wanted, out, processes=2)
    assert ended.failed
    why = f"rank 1 on host {platform.node()}: checkpoint {part.parent} is damaged: tensors.safetensors does not have"
    assert ended.output.count(why) >= 2, "every process says so"
    assert {path.name for path in (out / "checkpoints").iterdir()} == names, "nothing is deleted"
    part.write_bytes(content)
    trainer(wanted, out, processes=2)
    assert ended_as(out, 2) == ended_as(tmp_path / "whole", 2)


@pytest.mark.parametrize("method", ["vista", "vista:store=host"])
def test_another_number_of_processes_resumes_and_says_that_bytes_differ(
    trainer: Trainer, data: str, tmp_path: Path, method: str
) -> None:
    """The predictions of the current epoch are taken over: no sample is missing at its end."""
    wanted, out = config(data, method, batch_size=24, epochs=2), tmp_path / "run"
    assert trainer(wanted, out, Kill(event="Stepped", count=10), processes=2).killed
    for processes in (1, 3):
        copied = Path(shutil.copytree(out, tmp_path / str(processes)))
        ended = trainer(wanted, copied, processes=processes)
        assert ended.began_at[0] == 2
        assert ended.output.count("was written by 2 processes and is resumed by") == 1
        lines = RunFolder.open(copied).record().lines
        assert [line["unrecorded"] for line in lines] == [0, 0]
        predicted = RunFolder.open(copied).predictions().classes
        assert (predicted >= 0).all()
    for part in (out / "checkpoints").glob("*-rank1"):
        shutil.rmtree(part)
    with pytest.raises(
        ValueError, match=r"needs all of their parts in one folder: copy .* torchrun --nproc-per-node=2"
    ):
        train(wanted, out)
    assert Checkpoints(out).names(), "nothing is deleted"


@pytest.mark.parametrize("method", ["vista", "vista:store=host"])
def test_machines_that_share_no_disk(trainer: Trainer, data: str, tmp_path: Path, method: str) -> None:
    """Each process has a folder of its own. One of them is emptied, as on a machine that was replaced."""
    wanted = config(data, method, batch_size=24, epochs=3)
    whole, out = tmp_path / "whole", tmp_path / "run"
    trainer(wanted, whole, processes=2)
    assert trainer(wanted, out, Kill(event="Stepped", count=14), processes=2, apart=True).killed
    other = Path(f"{out}-1")
    assert Checkpoints(other, rank=1).names() == Checkpoints(out).names() != []
    assert not (other / "config.json").exists()
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file() and path.name != "lock"}
    moved = other.rename(tmp_path / "lost")
    ended = trainer.try_to(wanted, out, processes=2, apart=True)
    assert ended.failed
    assert ended.output.count(f"rank 1 on host {platform.node()} has no part of it in") >= 2, ended.output
    assert "nothing was deleted. Restore that folder" in ended.output
    kept = [path for path in before if path.relative_to(out).parts[0] in ("checkpoints", "blobs")]
    assert kept
    assert all(path.read_bytes() == before[path] for path in kept)
    shutil.rmtree(other)
    moved.rename(other)
    assert trainer(wanted, out, processes=2, apart=True).began_at[0] > 1
    assert ended_as(out, 1) == ended_as(whole, 1)
    assert not other.exists() or not any(path.is_file() for path in other.rglob("*")), "each cleans its own folder"
    trainer(wanted, out, processes=2, apart=True)


def test_a_store_folder_that_processes_of_a_host_do_not_share_is_rejected(trainer: Trainer, tmp_path: Path) -> None:
    trainer.call("store_folder_of_its_own", tmp_path, 2)
    for rank in range(2):
        said = (tmp_path / f"said-{rank}").read_text()
        assert re.fullmatch(
            rf"{tmp_path}/vista-store-\S+, where rank {1 - rank} stores predictions, is not visible to rank {rank} on "
            rf"host {platform.node()}: give all processes of a host one store_dir that they share",
            said,
        ), said


def test_a_checkpoint_that_one_process_cannot_write_is_none(trainer: Trainer, tmp_path: Path) -> None:
    trainer.call("full_disk_of_one", tmp_path, 2)
    said = [json.loads((tmp_path / f"said-{rank}").read_text()) for rank in range(2)]
    assert said[0][0] == "another process could not write its part of the checkpoint epoch-00002-step-0000000"
    assert said[1][0].endswith("state.json: No space left on device")
    assert [left for _, left in said] == [0.0, 0.0], "both continue from the one before"


def test_processes_with_other_versions_or_data_are_rejected(trainer: Trainer, tmp_path: Path) -> None:
    write_digits(tmp_path / "digits.npz")
    here = f"host {platform.node()}"
    for rank in range(2):
        with np.load(tmp_path / "digits.npz") as arrays:
            np.savez(tmp_path / f"digits-{rank}.npz", **{**arrays, "x_train": arrays["x_train"] + rank})
    for function, said in {
        "other_versions": f"rank 1 on {here} has torch 1.0, but rank 0 on {here} has {torch.__version__}: install the "
        "same version everywhere",
        "other_data": f"rank 1 on {here} reads other data or labels than rank 0 on {here}: give all processes the "
        "same files",
    }.items():
        trainer.call(function, tmp_path, 2)
        assert [(tmp_path / f"said-{rank}").read_text() for rank in range(2)] == [said, said]
        assert not (tmp_path / "run" / "config.json").exists()


def test_a_run_that_fails_in_one_process_stops_all_before_the_next(trainer: Trainer, tmp_path: Path) -> None:
    """Otherwise processes that are still in the failed run would use the next run's gradients."""
    write_digits(tmp_path / "digits.npz")
    failed, whole = tmp_path / "failed", tmp_path / "whole"
    failed.mkdir()
    trainer.call("in_use_for_the_first", failed, 2)
    first, second = ((failed / f"said-{rank}").read_text() for rank in range(2))
    assert first.startswith(f"{failed / '0'} is in use by process ")
    assert second, "it was left alone in the run"
    assert not (failed / "1").exists(), "the next one was not started"
    for out in (failed, whole):
        trainer.call("one_after_the_other", out, 2)
    for seed in ("0", "1"):
        assert ended_as(failed / seed, 2) == ended_as(whole / seed, 2)


# ---------------------------------------------------------------- joining


def test_who_was_started_alone_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert distributed.process_count() == 1
    assert distributed.is_first_process()
    assert distributed.own_device("cpu") == "cpu"
    with distributed.process_group("cpu"):
        assert not torch.distributed.is_initialized()


def test_a_started_process_knows_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    assert not distributed.is_first_process()
    with pytest.raises(ValueError, match="WORLD_SIZE is 2, but MASTER_ADDR is not set: start with torchrun"):
        distributed.process_group("cpu").__enter__()
