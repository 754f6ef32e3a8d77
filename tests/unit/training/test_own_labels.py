"""Labels and splits that replace those of the data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vista
from vista.data import source
from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.training.before_after import compare_before_after
from vista.training.own_labels import hold_out_fold, keep_split, replace_labels
from vista.training.samples import labels_and_split, load_samples, load_source

SMALL = {"network": "mlp", "epochs": 2, "batch_size": 16, "lr": 0.01, "device": "cpu", "validation": 0.2}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of 20 different images each."""
    generator = np.random.default_rng(0)
    for number in range(40):
        path = tmp_path / "data" / ("cat", "dog")[number % 2] / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)
    return tmp_path / "data"


def test_labels_of_all_samples_are_replaced_test_samples_included(folder: Path, tmp_path: Path) -> None:
    data = source.load(f"folder:{folder}")
    tested, trained = int(data.test_ids[0]), int(data.train_ids[0])
    lines = [f"{data.files[tested]},dog", f"{data.files[trained]},1", f"{data.files[int(data.test_ids[1])]},-1"]
    (tmp_path / "l.csv").write_text("\n".join(["file,label", *lines]))
    changed = replace_labels(data, tmp_path / "l.csv")
    assert (changed.labels[tested], changed.labels[trained]) == (1, 1)
    assert changed.test_labels[0] == 1
    assert changed.test_ids.tolist() == np.delete(data.test_ids, 1).tolist(), "without a label nothing is tested"
    assert len(changed.test_labels) == len(changed.test_ids) == len(changed.test_files)


def test_labels_of_a_separate_test_set_follow_the_others(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x_train=x[:8], y_train=np.arange(8) % 2, x_test=x[8:], y_test=np.zeros(4, int))
    (tmp_path / "l.csv").write_text("id,label\n0,1\n8,1\n9,-1\n")
    changed = replace_labels(source.load(f"npz:{tmp_path / 'd.npz'}"), tmp_path / "l.csv")
    assert changed.labels.tolist() == [1, 1, 0, 1, 0, 1, 0, 1]
    assert changed.test_labels.tolist() == [1, 0, 0]
    assert np.array_equal(changed.test_inputs, x[[8, 10, 11]])


def test_samples_that_a_label_file_does_not_name_are_counted(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("id,label\n0,1\n5,0\n")
    config = TrainConfig(data=f"folder:{folder}", labels=str(tmp_path / "l.csv"), validation=0.2)
    with pytest.warns(UserWarning, match=r"^38 of 40 samples keep their own label: .*l\.csv does not name them$"):
        load_samples(config, torch.device("cpu"))


def test_no_label_of_a_file_is_declared_true(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("id,label\n0,1\n")
    config = TrainConfig(data=f"folder:{folder}", labels=str(tmp_path / "l.csv"), validation=0.2)
    given, _ = labels_and_split(config, load_source(config, None), None)
    assert (given.given[0], given.true[0], given.spec) == (1, 1, "none")
    with pytest.raises(ValueError, match=r"labels and noise cannot be combined, got noise 'symmetric:0\.4'"):
        TrainConfig(labels="l.csv", noise="symmetric:0.4")


def test_the_split_is_kept_when_files_move(folder: Path, tmp_path: Path) -> None:
    """By content: moved, renamed and new files change nothing else."""
    first = vista.train(data=f"folder:{folder}", out=tmp_path / "run", **SMALL)
    before = source.load(f"folder:{folder}")
    split = RunFolder.open(first.folder).split()
    content = before.sample_hashes
    parts = [{content[k] for k in ids} for ids in (split.train, split.val, before.test_ids)]
    (folder / before.files[int(split.train[0])]).rename(folder / "dog" / "zz.png")
    (folder / before.files[int(before.test_ids[1])]).rename(folder / "dog" / "aa.png")
    (folder / before.files[int(split.val[0])]).rename(folder / "dog" / "bb.png")
    second = vista.train(data=f"folder:{folder}", split_from=str(first.folder), out=tmp_path / "again", **SMALL)
    now, again = source.load(f"folder:{folder}"), RunFolder.open(second.folder).split()
    outside = np.setdiff1d(np.arange(40), np.concatenate([again.train, again.val]))
    assert [{now.sample_hashes[k] for k in ids} for ids in (again.train, again.val, outside)] == parts
    found = compare_before_after(RunFolder.open(first.folder), RunFolder.open(second.folder), device="cpu")
    assert (found.samples, found.changed, found.left_out) == (8, 1, 0)
    assert found.after["top1"] == second.metrics["best"]["test"]["top1"]
    assert found.difference == pytest.approx(found.after["top1"] - found.before["top1"])
    Image.fromarray(np.full((8, 8), 7, np.uint8)).save(folder / "cat" / "new.png")
    (folder / "dog" / "zz.png").unlink()
    with pytest.warns(UserWarning, match="1 samples of .* are missing in .*; 1 new ones are trained on"):
        keep_split(source.load(f"folder:{folder}"), RunFolder.open(first.folder))


def test_a_run_of_other_samples_has_no_split_to_keep(folder: Path, tmp_path: Path) -> None:
    vista.train(data=f"folder:{folder}", out=tmp_path / "run", **SMALL)
    run = RunFolder.open(tmp_path / "run")
    with pytest.raises(ValueError, match="digits has none of the samples of that run"):
        keep_split(source.load("digits"), run)
    (tmp_path / "run" / "content.safetensors").unlink()
    with pytest.raises(ValueError, match="did not record the content of its samples: restore the data"):
        keep_split(source.load("digits"), run)


def test_folds_hold_out_every_labelled_sample_once(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("id,label\n3,-1\n")
    data = replace_labels(source.load(f"folder:{folder}"), tmp_path / "l.csv")
    parts = [hold_out_fold(data, f"{number}/5", seed=0) for number in range(1, 6)]
    held_out = np.concatenate([part.test_ids for part in parts])
    assert sorted(held_out.tolist()) == [sample for sample in range(40) if sample != 3]
    assert all(np.bincount(part.test_labels).tolist() in ([4, 4], [3, 4], [4, 3]) for part in parts)
    assert all(3 in part.train_ids for part in parts)
    for bad in ("0/5", "6/5", "1/1", "one"):
        with pytest.raises(ValueError, match="fold must be K/N"):
            TrainConfig(fold=bad)
