"""The script that measures the start on a large folder."""

import importlib.util
from pathlib import Path

import numpy as np

from vista.data import load

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "large_folder.py"


def test_its_sparse_pixel_file_is_taken_for_that_of_the_folder(tmp_path):
    spec = importlib.util.spec_from_file_location("large_folder", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    file = module.make_folder(tmp_path / "photos", images=6, classes=2)
    before = file.stat()
    source = load(f"folder:{tmp_path / 'photos'}", image_size=module.IMAGE_SIZE)  # empty files: they cannot be decoded
    assert sorted(source.labels) == [0, 0, 0, 1, 1, 1]
    assert not np.any(source.inputs)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
