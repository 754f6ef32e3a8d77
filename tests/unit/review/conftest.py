"""A trained run on a folder of tiny images, some of them in the wrong class folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vista as package

CLASSES = ("<b>bright", "dark", "half")  # a class name with markup
WRONG = (3, 20, 37, 40)  # positions of images in the wrong folder


def write_folder(folder: Path, per_class: int = 20) -> None:
    """Images whose brightness says their class; ``<script>`` is in a file name."""
    generator = np.random.default_rng(0)
    for number in range(3 * per_class):
        true = number // per_class
        filed = (true + 1) % 3 if number in WRONG else true
        pixels = np.clip(generator.normal((230, 20, 120)[true], 12, (8, 8)), 0, 255).astype(np.uint8)
        place = folder / CLASSES[filed]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place / f"<script>{number:02d}.png")


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``data`` and ``run``, trained once; do not change them."""
    folder = tmp_path_factory.mktemp("prepared")
    write_folder(folder / "data")
    package.train(data=f"folder:{folder / 'data'}", out=folder / "run", network="mlp", epochs=8, batch_size=16, lr=0.02,
                  padding=0, validation=0.2, device="cpu", method="vista")  # fmt: skip
    return folder


@pytest.fixture
def run(prepared: Path) -> Path:
    """The run; decisions of other tests are removed."""
    for left in (prepared / "run").glob("decisions*"):
        left.unlink()
    return prepared / "run"


@pytest.fixture
def copied(prepared: Path, tmp_path: Path) -> Path:
    """A copy of the data at the same content, which may be changed."""
    shutil.copytree(prepared / "data", tmp_path / "data")
    return tmp_path / "data"
