"""The script that builds a folder with misfiled images."""

import csv
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from vista.data import load
from vista.data.source import Source

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "misfiled_folder.py"


@pytest.fixture
def script(monkeypatch):
    """The script, on a small data set instead of CIFAR-100: 12 classes of which it takes 10."""
    spec = importlib.util.spec_from_file_location("misfiled_folder", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, "misfiled_folder", module)
    spec.loader.exec_module(module)
    labels, test = np.repeat(np.arange(12), 12), np.repeat(np.arange(12), 3)
    pixels = np.random.default_rng(0).integers(0, 255, (144, 8, 8, 3), dtype=np.uint8)
    names = tuple(f"class{number:02d}" for number in range(12))
    small = Source("cifar100", pixels, labels, pixels[:36], test, names, (0.5,) * 3, (0.2,) * 3)
    monkeypatch.setattr(module, "load", lambda name, root: small)
    monkeypatch.setattr(module, "PER_CLASS", 10)
    return module


@pytest.mark.parametrize("sizes", [None, (20, 60)])
def test_a_fixed_share_is_misfiled_and_listed(script, tmp_path, sizes):
    assert script.build(tmp_path / "one", sizes=sizes) == 15
    source = load(f"folder:{tmp_path / 'one'}")
    assert (len(source.labels), len(source.test_labels), source.num_classes) == (100, 30, 10)
    with (tmp_path / "one" / "misfiled.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 15
    for row in rows:
        assert row["file"] in source.files
        assert Path(row["file"]).parts[1] != row["true"]
    script.build(tmp_path / "two", sizes=sizes)
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.*"))
    assert all((tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes() for file in files)
    with pytest.raises(FileExistsError, match="already exists; choose another --out"):
        script.build(tmp_path / "two")
