"""The whole loop: a misfiled folder, training, review by keyboard, corrected labels, a second training."""

from __future__ import annotations

import csv
import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from review_server import Server, press, shown

TINY = ("--network", "mlp", "--epochs", "12", "--batch-size", "16", "--lr", "0.05", "--device", "cpu", "--quiet")
CLASSES = ("cat", "cow", "dog")


def vista(*words: str) -> str:
    """Call the command as a user does."""
    done = subprocess.run([sys.executable, "-m", "vista", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_image(path: Path, label: int, draws: np.random.Generator) -> None:
    """An image whose class is its strongest colour."""
    pixels = draws.integers(0, 150, (8, 8, 3))
    pixels[..., label] += 70
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(path)


def misfile(folder: Path) -> dict[str, str]:
    """Write 180 images, 30 of them in the folder of another class; returns all true classes."""
    draws, true = np.random.default_rng(0), {}
    for number in range(180):
        label = number % 3
        place = (label + 1 + number % 2) % 3 if number < 30 else label
        name = f"{CLASSES[place]}/{number:03d}.png"
        write_image(folder / name, label, draws)
        true[name] = CLASSES[label]
    return true


def wrong_labels(file: Path, true: dict[str, str]) -> int:
    with file.open(newline="") as table:
        return sum(row["label"] != true[row["file"]] for row in csv.DictReader(table))


def test_review_and_retraining_improve_labels_and_accuracy(
    tmp_path: Path, monkeypatch: Any, open_page: Callable[..., Any]
) -> None:
    """The accuracy is that on the true labels of the same test samples, which are misfiled too."""
    monkeypatch.chdir(tmp_path)
    true = misfile(tmp_path / "photos")
    vista("train", "--data", "folder:photos", "--method", "ce", "--out", "run", *TINY)
    listed = json.loads(vista("labels", "run", "--top", "60", "--json"))
    assert listed["unjudged"] == {}
    files = {row["id"]: row["file"] for row in listed["suspects"]}
    server = Server(tmp_path / "run")
    try:
        page = open_page(server.address)
        page.select_option("#status", "")
        page.fill("#low", "0")
        page.press("#low", "Enter")
        page.wait_for_selector("#progress:has-text('of 180 decided')")
        for _ in range(45):
            sample = shown(page)
            given, suggested = page.locator("#labels b").all_inner_texts()
            right = true[files[sample]]
            if right not in (given, suggested):
                page.keyboard.press("o")
                page.wait_for_selector("#search[open]")
                page.keyboard.type(right)
                press(page, "Enter")
            else:
                press(page, "a" if right == suggested else "k")
        page.click("#finish")
        page.wait_for_selector("#end[open]")
        commands = page.locator("#commands pre").all_inner_texts()
        server.rest()
    finally:
        server.stop()
    folder = tmp_path / "run"
    for command in commands[:2]:
        words = shlex.split(command)
        vista(*words[1:], *(("--device", "cpu", "--quiet") if words[1] == "train" else ()))
    assert wrong_labels(tmp_path / "labels.csv", true) <= 10, "of 30"
    again = Path(f"{folder}-corrected")
    assert accuracy(again) > accuracy(folder)
    compared = json.loads(vista("compare", str(folder), str(again), "--device", "cpu", "--json"))
    assert compared["metrics_after"]["top1"] >= compared["metrics_before"]["top1"]


def accuracy(run: Path) -> float:
    """Share of 150 new images that the run classifies as what they are."""
    draws = np.random.default_rng(1)
    for number in range(150):
        write_image(Path("new") / f"{number}.png", number % 3, draws)
    vista("predict", str(run), "--data", "folder:new", "--out", f"{run.name}.csv", "--device", "cpu")
    with Path(f"{run.name}.csv").open(newline="") as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == 150
    return sum(row["label"] == CLASSES[int(Path(row["file"]).stem) % 3] for row in rows) / len(rows)
