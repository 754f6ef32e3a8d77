"""Draw the screenshots of docs/clean-labels.md from a finished run on a folder of benchmarks/misfiled_folder.py.

    python benchmarks/misfiled_folder.py --root DATA --out photos
    vista train --data folder:photos --network small-cnn --out runs/photos
    python docs/draw_review.py runs/photos

Needs chromium and the package playwright. The run is copied, so that no decision is added to it.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent / "images"
COLOURS = 192  # of a palette, which makes the files small
BUSY = 120_000  # milliseconds that a step may take on a busy machine
OPTIONS = ["--no-sandbox", "--disable-gpu"]


def main(run: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        copy = Path(folder) / run.name
        shutil.copytree(run, copy, ignore=shutil.ignore_patterns("checkpoints", "blobs", "decisions.jsonl"))
        server = subprocess.Popen(
            [sys.executable, "-u", "-m", "vista", "review", str(copy), "--no-open"], stdout=subprocess.PIPE, text=True
        )
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=OPTIONS, timeout=BUSY)
        try:
            address = next(found[0] for line in server.stdout or () if (found := re.search(r"http://\S+", line)))
            draw(browser.new_page(viewport={"width": 1200, "height": 720}), address)
        finally:
            browser.close()
            server.kill()
            server.wait()


def draw(page: Any, address: str) -> None:
    """One sample after a few decisions, and the grid with a selection."""
    page.set_default_timeout(BUSY)
    page.emulate_media(color_scheme="light")
    page.goto(address)
    page.wait_for_selector("#one img")
    decided = 0
    while decided < 4 or not page.locator("#history .class").count():
        before = page.get_attribute("#one", "data-id")
        page.keyboard.press("a" if decided < 4 else "ArrowRight")
        decided += 1
        page.wait_for_selector(f'#one:not([data-id="{before}"])')
    save(page, "review-one.png")
    page.keyboard.press("g")
    page.wait_for_selector(".card img")
    for number in (1, 2, 4):
        page.click(f".card >> nth={number}")
    save(page, "review-grid.png")


def save(page: Any, name: str) -> None:
    """Save what is visible, once all images are loaded, with a palette."""
    for image in page.locator("img:visible").all():
        while not image.evaluate("image => image.complete"):
            page.wait_for_timeout(20)
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    shot.quantize(COLOURS, dither=Image.Dither.NONE).save(IMAGES / name, optimize=True)
    print(f"{IMAGES / name}: {(IMAGES / name).stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
