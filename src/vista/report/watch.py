"""Rewrite a page while its runs train."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from vista.analysis import recorder
from vista.analysis.groups import read_runs
from vista.analysis.runs import Run
from vista.report.page import write_page
from vista.runs import folder
from vista.runs.folder import files_named, find_runs
from vista.runs.record import EPOCHS

State = dict[Path, list[tuple[int, int]]]


def watch(
    paths: Sequence[str | Path],
    page: Path,
    wrote: Callable[[Sequence[Run], bool], None],
    *,
    awaits: Callable[[Sequence[Path]], None] = lambda missing: None,
    seconds: float = 5.0,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Write ``page`` whenever a record changes, until every run has finished.

    Args:
        paths: Runs, and folders with runs below them.
        page: The HTML file.
        wrote: Called after each write with the runs and whether all have finished.
        awaits: Called with the paths that hold no run yet; the other runs are shown meanwhile.
        seconds: Polling interval.
        wait: Sleeps between two polls.
    """
    before: State | None = None
    awaited: list[Path] = []
    while True:
        missing = [path for path in map(Path, paths) if not _has_run(path)]
        if missing and missing != awaited:
            awaits(missing)
        awaited = missing
        if paths and len(missing) == len(paths):
            wait(seconds)
            continue
        runs = _read_while_written([path for path in paths if Path(path) not in missing], lambda: wait(seconds))
        state = _state(runs)
        over = not missing and all(run.is_over for run in runs)
        if state != before or over:
            write_page(runs, page, watching=not over, refresh_seconds=max(1, round(seconds)))
            wrote(runs, over)
            before = state
        if over:
            return
        wait(seconds)


def _has_run(path: Path) -> bool:
    return path.is_file() or bool(find_runs(path)) or bool(files_named(recorder.DESCRIPTION, path))


def _read_while_written(paths: Sequence[str | Path], wait: Callable[[], None]) -> list[Run]:
    """Retry once: a run that is being written may lack one of its files for a moment."""
    try:
        return read_runs(paths)
    except (FileNotFoundError, ValueError):
        wait()
        return read_runs(paths)


def _state(runs: Sequence[Run]) -> State:
    """Modification times and sizes of the files that each epoch changes; two writes may have the same time."""
    found: State = {}
    for run in runs:
        files = (run.path / EPOCHS, run.path / folder.METRICS)
        states = [file.stat() for file in files if file.exists()]
        found[run.path] = [(state.st_mtime_ns, state.st_size) for state in states]
    return found
