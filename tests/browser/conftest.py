"""A real browser: the system's chromium, driven by playwright."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "analysis"))
sys.path.insert(0, str(Path(__file__).parent))
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


@pytest.fixture
def open_page(browser: Any, patience: float) -> Iterator[Callable[..., Any]]:
    contexts, complaints = [], []

    def opened(address: str, **options: Any) -> Any:
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.set_default_timeout(patience)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        page.wait_for_selector("#one img, #empty:not([hidden])")
        return page

    yield opened
    for context in contexts:
        context.close()
    expected = (  # two tabs, and every way in which a request ends when the server is killed
        "409",
        "ERR_CONNECTION_ABORTED",
        "ERR_CONNECTION_CLOSED",
        "ERR_CONNECTION_REFUSED",
        "ERR_CONNECTION_RESET",
        "ERR_EMPTY_RESPONSE",
        "ERR_CONTENT_LENGTH_MISMATCH",
        "ERR_INCOMPLETE_CHUNKED_ENCODING",
        "ERR_SOCKET_NOT_CONNECTED",
    )
    assert [each for each in complaints if not any(code in each for code in expected)] == []
