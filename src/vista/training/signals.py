"""Signals that come to this process, handled for a while."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType


@contextmanager
def handled(numbers: Sequence[int], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let ``handler`` hear of these signals; only the main thread can, elsewhere nothing changes.

    What the process was told to ignore, as `nohup` does with the terminal's end, it goes on to ignore. Ctrl-C is none
    of it: a worker is deaf to that only between two runs.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heeded = [n for n in numbers if n == signal.SIGINT or signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
