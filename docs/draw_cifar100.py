"""Redraw the example report and the figures of the docs from the records in results/.

    python docs/draw_cifar100.py --root DATA

DATA contains CIFAR-100 (`vista data get cifar100 --root DATA`): the ledger stores neither labels nor images.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from PIL import Image

from vista.analysis.groups import grouped, read_runs
from vista.report import drawing
from vista.report.page import write_page
from vista.reproduce import ledger
from vista.reproduce.restore import restore

DOCS = Path(__file__).resolve().parent
RUNS = DOCS.parent / "results" / "runs"
SHOWN = ("ce-seed1-ecd15291fc0ccb11", "vista-seed1-7fa0468258edcbaa", "vista-light-seed1-739bce09d6b23ac6")
WIDE, TALL = 1400, 1000  # pixels across
ROW_HEIGHT = 212  # pixels of the first row of the gallery


@dataclass(frozen=True)
class Arguments:
    root: str
    """Folder that contains CIFAR-100."""


def main(args: Arguments) -> None:
    os.environ["VISTA_DATA"] = args.root  # not --root: the page shows the configuration of each run
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        page = DOCS / "cifar100-report.html"
        runs = folders(SHOWN)
        write_page(read_runs(runs), page)
        draw(runs)
    photograph(page, DOCS / "images" / "suspected-labels.png")


def folders(names: Sequence[str]) -> list[Path]:
    """Restore runs of the ledger as folders in the working directory."""
    records = (ledger.read_record(RUNS / f"cifar100-symmetric-0.4-{name}.json") for name in names)
    return [restore(record, Path()).path for record in records]


def draw(runs: list[Path]) -> None:
    """Draw every figure, small enough for a page."""
    for path in drawing.save_all(grouped(read_runs(runs)), DOCS / "images", list(drawing.DRAWINGS), ["png"]):
        shrink(path)
        print(f"wrote {path.relative_to(DOCS)}")


def shrink(path: Path, colours: int = 96) -> None:
    """Reduce an image file to the width and colours that a page needs."""
    image = Image.open(path).convert("RGB")
    width = min(image.width, WIDE if image.width > image.height else TALL)
    small = image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)
    small.quantize(colours, dither=Image.Dither.NONE).save(path, optimize=True)


def photograph(page: Path, path: Path) -> None:
    """Screenshot of the first row of the gallery, taken with the installed chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1000, "height": 700})
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-ready]")
        rows = tab.locator("#suspect-gallery").bounding_box()
        tab.screenshot(path=path, full_page=True, clip={**rows, "height": ROW_HEIGHT})
        browser.close()
    shrink(path, colours=256)
    print(f"wrote {path.relative_to(DOCS)}")


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
