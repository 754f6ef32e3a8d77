"""Redraw the example report and the figures of the docs from the records in results/.

    python docs/draw_cifar100.py --root DATA

DATA contains CIFAR-100 (`vista data get cifar100 --root DATA`): the ledger stores neither labels nor images.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tyro
from PIL import Image

from vista.analysis.groups import check_comparable, group_runs
from vista.analysis.runs import Run, read_run
from vista.report import drawing
from vista.report.page import write_page
from vista.reproduce import ledger
from vista.reproduce.restore import restore
from vista.runs.record import Record

DOCS = Path(__file__).resolve().parent
RUNS = DOCS.parent / "results" / "runs"
# Three seeds of each method; records with a trajectory say which samples were right, the others only how many.
SHOWN = {
    "ce": ("seed0-ef5d26469f7f541a", "seed1-ecd15291fc0ccb11", "seed2-ec6739b0e0177b10"),
    "vista": ("seed0-7a5b975f2ccc616c", "seed1-7fa0468258edcbaa", "seed2-4968d7afbdb5f909"),
    "vista-light": ("seed0-d61ba0a65d36d1c8", "seed1-739bce09d6b23ac6", "seed2-3a82a74b5945b2b5"),
    "sat": ("seed0-318c288c828d63b5", "seed1-6e2db81a65ecf2fd", "seed2-9582a54b120b72e0"),
    "kf": ("seed0-d42c8d0c7c36bc1a", "seed1-c50417b52fda610a", "seed2-63cf831ca92d2169"),
    "ps-kd-beta": ("seed0-5bf78fe9d83bfd79", "seed1-7ed0480bea069ed7", "seed2-508e41447d4e78a8"),
}
WIDE, TALL = 1400, 1000  # pixels across


@dataclass(frozen=True)
class Arguments:
    root: str
    """Folder that contains CIFAR-100."""


def main(args: Arguments) -> None:
    os.environ["VISTA_DATA"] = args.root  # not --root: the page shows the configuration of each run
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        page = DOCS / "cifar100-report.html"
        runs = [run_of(f"{method}-{name}") for method, names in SHOWN.items() for name in names]
        check_comparable([run for run in runs if run.has_samples])
        write_page(runs, page)
        draw(runs)
    photograph(page, DOCS / "images" / "suspected-labels.png")


def run_of(name: str) -> Run:
    """A run of the ledger: restored as a folder if its trajectory was kept, otherwise its accuracies alone."""
    record = ledger.read_record(RUNS / f"cifar100-symmetric-0.4-{name}.json")
    if record.bits.exists():
        return read_run(restore(record, Path()).path)
    return Run(
        name=record.path.stem,
        path=Path(record.path.stem),
        record=Record({}, record.epochs),
        config=record.config.to_json(),
        environment=record.environment,
        metrics=record.metrics,
        classes=tuple(record.data["classes"]),
        samples=record.data["samples"]["train"],
        epochs=record.config.epochs,
        is_folder=True,
    )


def draw(runs: list[Run]) -> None:
    """Draw every figure, small enough for a page."""
    for path in drawing.save_all(group_runs(runs), DOCS / "images", list(drawing.DRAWINGS), ["png"]):
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
        first = tab.locator("#suspect-gallery .suspect").first.bounding_box()
        tab.screenshot(path=path, full_page=True, clip={**rows, "height": first["y"] + first["height"] - rows["y"]})
        browser.close()
    shrink(path, colours=256)
    print(f"wrote {path.relative_to(DOCS)}")


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
