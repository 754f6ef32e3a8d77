import re

import numpy as np
import pytest

from vista.data import load, names, source


def test_an_unknown_name_gets_a_close_suggestion():
    assert names() == (
        "digits",
        "cifar10",
        "cifar100",
        "cifar100-small",
        "tinyimagenet",
        "folder:PATH",
        "npz:PATH",
        "csv:PATH",
        "parquet:PATH",
        "hf:PATH",
    )
    with pytest.raises(ValueError, match=re.escape("data 'cifar-100' is unknown; did you mean 'cifar100'?")):
        load("cifar-100")
    with pytest.raises(ValueError, match=re.escape("did you mean 'folder:PATH'?")):
        load("foldr:x")
    with pytest.raises(ValueError, match="data 'npz:' must have a path: 'npz:PATH'"):
        load("npz:")


@pytest.mark.parametrize("name", ["mnist-c", "", "~nobody", "x\0y", "table.tsv"])
def test_an_unknown_name_without_a_close_match_gets_the_list_only(name, tmp_path, monkeypatch):
    (tmp_path / "table.tsv").write_text("id\tlabel\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=re.escape(f"data {name!r} is unknown; known: digits, cifar10,")):
        load(name)


def test_a_path_gets_the_prefix_that_reads_it(tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("photos", "./photos", str(tmp_path / "photos")):
        with pytest.raises(ValueError, match=re.escape(f"data {name!r} is unknown; did you mean 'folder:{name}'?")):
            load(name)
    with pytest.raises(ValueError, match=re.escape("did you mean 'npz:data/train.npz'?")):
        load("data/train.npz")
    with pytest.raises(ValueError, match=re.escape("did you mean 'npz:PATH'?")):
        load("nzp:data/train.npz")


@pytest.mark.parametrize(
    ("name", "folder"),
    [("cifar10", "cifar-10-batches-py"), ("cifar100", "cifar-100-python"), ("tinyimagenet", "tiny-imagenet-200")],
)
def test_missing_data_names_its_folder_and_the_download_command(name, folder, tmp_path, monkeypatch):
    monkeypatch.delenv("VISTA_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=f"vista data get {name} --root DIR"):
        load(name)
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / folder))):
        load(name, tmp_path)
    monkeypatch.setenv("VISTA_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / folder))):
        load(name)


def test_the_hash_of_inputs_covers_type_shape_and_every_byte(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "_CHUNK", 7)
    inputs = np.arange(120 * 6, dtype=np.uint8).reshape(120, 2, 3, 1)
    mapped = np.memmap(tmp_path / "pixels", dtype=np.uint8, mode="w+", shape=inputs.shape)
    mapped[:] = inputs

    def hashed(values):
        labels = np.zeros(len(values), dtype=np.int64)
        return source.Source("made", values, labels, values[:1], labels[:1], ("a", "b"), (), ()).inputs_hash

    assert hashed(inputs) == hashed(mapped) == hashed(np.asfortranarray(inputs))
    changed = inputs.copy()
    changed[-1, -1, -1] += 1
    others = [changed, inputs[:, ::-1], inputs.reshape(120, 3, 2, 1), inputs[:-1], inputs.astype(np.float32)]
    assert len({hashed(inputs), *map(hashed, others)}) == 6


def test_inputs_are_hashed_once(monkeypatch):
    data = load("digits")
    first = data.inputs_hash
    monkeypatch.setattr(source.hashlib, "sha256", None)
    assert data.inputs_hash == first


def test_a_constant_channel_has_std_1():
    """Rounding of the mean leaves a tiny spread, which must not become the divisor."""
    images = np.random.default_rng(0).integers(0, 256, (7, 8, 8, 3), dtype=np.uint8)
    for value in range(256):
        images[..., 2] = value
        mean, std = source.channel_statistics(images)
        assert mean[2] == pytest.approx(value / 255)
        assert std[2] == 1.0, value
        assert std[:2] == pytest.approx(images[..., :2].std(axis=(0, 1, 2)) / 255)
        images[0, 0, 0, 2] ^= 1
        assert 0 < source.channel_statistics(images)[1][2] < 1e-3
