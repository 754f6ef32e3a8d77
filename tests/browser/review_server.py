"""``vista review`` in a separate process, and its page driven by keys."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


class Server:
    """``vista review`` in a process of its own."""

    def __init__(self, run: Path) -> None:
        self.run = run
        words = [sys.executable, "-u", "-m", "vista", "review", str(run), "--no-open"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout is not None
        self.lines = []
        for line in self.process.stdout:
            self.lines.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+/\S+/", line):
                self.address = found[0]
                return
        raise AssertionError("".join(self.lines))

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Kill it if it still runs."""
        if self.process.poll() is None:
            self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def rest(self) -> str:
        return str(self.process.communicate(timeout=300)[0])


def wait(page: Any, condition: str) -> None:
    """Wait for a condition in the page; its security policy forbids playwright's own way, which evaluates text."""
    end = time.monotonic() + 120
    while not page.evaluate(f"() => Boolean({condition})"):
        assert time.monotonic() < end, f"{condition}; the page says: {page.inner_text('body')}"
        time.sleep(0.005)


def shown(page: Any) -> int:
    return int(page.get_attribute("#one", "data-id"))


def press(page: Any, key: str) -> None:
    """Press a key that decides, and wait until the next sample is shown."""
    before = shown(page)
    page.keyboard.press(key)
    wait(page, f"document.getElementById('one').dataset.id !== '{before}'")
