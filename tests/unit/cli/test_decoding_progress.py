"""Progress of decoding photos on stderr."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from rich.progress import Progress

from vista.cli import decoding_progress, terminal
from vista.cli.decoding_progress import decoding_shown
from vista.data import pixel_file


def decode(folder: Path) -> None:
    files = [folder / f"{number}.png" for number in range(3)]
    for number, file in enumerate(files):
        Image.fromarray(np.zeros((10 + number, 12, 3), dtype=np.uint8)).save(file)
    pixel_file.decode_all(files, folder, 8, 3, False)


def test_lines_on_stderr_without_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "SECONDS_BETWEEN_LINES", 0.0)
    before = pixel_file.on_progress
    with decoding_shown():
        decode(tmp_path)
    assert pixel_file.on_progress is before
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [f"decoding photos: {done} of 3" for done in (1, 2, 3)]


def test_a_bar_of_the_live_display_that_leaves_no_task(tmp_path: Path) -> None:
    live = Progress(console=Console(file=io.StringIO()))
    with decoding_shown(live):
        bar = pixel_file.on_progress
        assert isinstance(bar, decoding_progress._Bar)
        bar(1, 3)
        assert [(task.description, task.completed, task.total) for task in live.tasks] == [("decoding photos", 1, 3)]
        bar(3, 3)
    assert live.tasks == []
