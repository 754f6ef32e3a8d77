"""Measure the size and opening time of a report: 3 runs of 200 epochs x 5,000 samples, 500 suspected labels.

    python benchmarks/report_page.py

Trajectories and images are random and do not compress, so real pages are smaller.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from playwright.sync_api import sync_playwright

from vista.analysis.runs import Run
from vista.report.images import thumbnail
from vista.report.page import page
from vista.report.payload import payload
from vista.runs.environment import environment
from vista.runs.record import TEST, VAL_GIVEN, VAL_TRUE, Record


@dataclass(frozen=True)
class Arguments:
    runs: int = 3
    """Runs of different methods."""
    epochs: int = 200
    """Epochs of each run."""
    samples: int = 5000
    """Validation samples."""
    suspects: int = 500
    """Suspected labels, each with an image of 32 x 32 pixels."""
    times: int = 5
    """Number of times the page is opened."""
    browser: str = shutil.which("chromium") or "chromium"
    """Browser executable."""
    out: str = "results/report_page.json"
    """File of the record."""


def main(args: Arguments) -> None:
    began = time.monotonic()
    text = page(made_payload(args))
    written = time.monotonic() - began
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(text)
        opened = open_times(args, path)
    sizes = {"runs": args.runs, "epochs": args.epochs, "samples": args.samples, "suspects": args.suspects}
    record = {
        "config": sizes,
        "environment": environment(torch.device("cpu")),
        "load_average": round(os.getloadavg()[0], 1),  # times depend on the load of the machine
        "cores": os.cpu_count(),
        "bytes": len(text.encode()),
        "write_seconds": round(written, 3),
        "first_screen_seconds": summary([first for first, _ in opened]),
        "open_seconds": summary([everything for _, everything in opened]),
    }
    Path(args.out).parent.mkdir(parents=True, exist_ok=True)
    Path(args.out).write_text(json.dumps(record, indent=1) + "\n")
    size = record["bytes"] / 1e6
    first, drawn = (record[name]["median"] for name in ("first_screen_seconds", "open_seconds"))
    print(f"{size:.2f} MB, written in {written:.2f} s, first screen {first:.2f} s, all {drawn:.2f} s after the request")
    print(f"Wrote {args.out}")


def made_payload(args: Arguments) -> dict:
    """The data of a page; the suspects are made up, because real ones need a data set."""
    generator = np.random.default_rng(0)
    data = payload([made_run(args, number, generator) for number in range(args.runs)])
    classes = [f"class {k}" for k in range(100)]
    rows = [
        {
            "id": number,
            "given": number % 100,
            "suggested": (number + 1) % 100,
            "score": 0.9 - 0.0005 * number,
            "image": thumbnail(generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)),
        }
        for number in range(args.suspects)
    ]
    return {**data, "suspects": {"rows": rows, "classes": classes, "note": "Made up.", "run": "run0"}}


def made_run(args: Arguments, number: int, generator: np.random.Generator) -> Run:
    """A run on samples of varying difficulty whose accuracy rises."""
    difficulty = generator.random(args.samples)
    skill = np.linspace(0.1, 0.8, args.epochs)[:, None]
    right = generator.random((args.epochs, args.samples)) < np.clip(skill * 1.5 - difficulty, 0.02, 0.98)
    record = Record({VAL_GIVEN: args.samples, VAL_TRUE: args.samples, TEST: args.samples})
    for epoch, row in enumerate(right, 1):
        record.append({"epoch": epoch, "anchors": 1}, {}, {VAL_GIVEN: row, VAL_TRUE: row, TEST: row})
    return Run(
        name=f"run{number}",
        path=Path(f"run{number}"),
        record=record,
        config={"method": ("ce", "vista", "vista-light")[number % 3], "options": {"number": number}, "data": "made up"},
        classes=tuple(f"class {k}" for k in range(100)),
        val_labels=np.arange(args.samples) % 100,
        val_true=np.arange(args.samples) % 100,
        samples=45_000,
    )


def summary(times: list[float]) -> dict:
    return {"median": round(statistics.median(times), 3), "all": [round(t, 3) for t in times]}


def open_times(args: Arguments, path: Path) -> list[tuple[float, float]]:
    """Seconds from the request until the first screen and the whole page are drawn, in a new tab each time."""
    times = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=args.browser, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(args.times):
            tab = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
            began = time.monotonic()
            tab.goto(path.as_uri(), wait_until="commit")
            tab.wait_for_selector("html[data-first]")
            first = time.monotonic() - began
            tab.wait_for_selector("html[data-ready]")
            times.append((first, time.monotonic() - began))
            tab.context.close()
        browser.close()
    return times


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
