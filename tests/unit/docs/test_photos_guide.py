"""The commands of the guide for photos run, in order, on generated photos."""

from __future__ import annotations

import csv
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doc_pages import DOCS, blocks_of
from PIL import Image

from vista.cli import main


def write_photos(folder: Path, count: int, draws: np.random.Generator) -> None:
    """Photos of any size and of several formats, of one colour with noise."""
    folder.mkdir(parents=True)
    colour = draws.integers(40, 215, 3)
    for number in range(count):
        width, height = (int(side) for side in draws.integers(40, 200, 2))
        pixels = (colour + draws.integers(-40, 40, (height, width, 3))).clip(0, 255).astype(np.uint8)
        mode, suffix = (("RGB", "jpg"), ("CMYK", "jpg"), ("RGBA", "png"), ("RGB", "webp"))[number % 4]
        Image.fromarray(pixels).convert(mode).save(folder / f"IMG_{number:04d}.{suffix}")


@pytest.mark.filterwarnings("default")
def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxscript", reason="needs vista-distill[onnx]")
    monkeypatch.chdir(tmp_path)
    draws = np.random.default_rng(0)
    for name in ("cat", "dog"):
        write_photos(Path("photos") / name, 20, draws)
    write_photos(Path("new"), 100, draws)
    blocks = [block.text for block in blocks_of(DOCS / "photos.md") if block.language == "sh"]
    commands = [line for text in blocks for line in text.splitlines() if line.strip()]
    assert len(commands) == 10
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "vista"
        words += ["--epochs", "2", "--device", "cpu", "--quiet"] if words[1] == "train" else []
        assert main(words[1:]) == 0, command
    assert Path("photos.64px.pixels").exists()
    assert Path("exported_model/model.safetensors").exists()
    with open("predictions.csv") as file, open("one.csv") as one:
        predicted, single = list(csv.DictReader(file)), list(csv.DictReader(one))
    assert len(predicted) == 100
    same = [row for row in predicted if row["file"] == "IMG_0099.webp"]
    assert [{**row, "id": "0"} for row in single] == [
        {name: {**row, "id": "0"}[name] for name in single[0]} for row in same
    ]
    code = [block.text for block in blocks_of(DOCS / "photos.md") if block.language == "python"]
    assert len(code) == 2
    names: dict[str, Any] = {}
    for text in code:
        *lines, last = text.strip().splitlines()
        exec("\n".join(lines), names)
        shown = eval(last, names)
        assert single[0]["label"] in (shown, *shown[0]), "the same class by the command, in Python and in onnxruntime"
