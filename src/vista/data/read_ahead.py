"""Compute results in threads before they are needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

AHEAD = 4  # results in progress, or waiting to be used

A = TypeVar("A")
B = TypeVar("B")


def read_ahead(function: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
    """Yield the function of each item in order, while threads compute those of the next items.

    >>> list(read_ahead(abs, [-3, 1, -2]))
    [3, 1, 2]
    """
    pool = ThreadPoolExecutor(AHEAD)
    try:
        running: deque[Future[B]] = deque()
        for item in items:
            running.append(pool.submit(function, item))
            if len(running) > AHEAD:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
