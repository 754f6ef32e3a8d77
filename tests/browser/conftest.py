"""A real browser: the system's chromium, driven by playwright."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "analysis"))
NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def _missing(what: str) -> None:
    """Skip with the reason, or fail where a browser is required."""
    if os.environ.get("VISTA_REQUIRE_BROWSER") == "1":
        pytest.fail(f"VISTA_REQUIRE_BROWSER is 1, but {what}")
    pytest.skip(what)


@pytest.fixture(scope="session")
def patience() -> float:
    """Timeout of each browser action in milliseconds; the default of 30 s may be too short on a busy machine."""
    return 120_000


@pytest.fixture(scope="session")
def browser(patience: float) -> Iterator[Any]:
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        _missing("chromium is not installed: run `make browser`")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("the package playwright is not installed: pip install 'vista-distill[test]'")
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program, args=list(QUIET), timeout=patience)
        yield started
        started.close()
