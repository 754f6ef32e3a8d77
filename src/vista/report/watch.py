"""Keep a page fresh while its runs train."""

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
    """Write ``page`` whenever a record has changed, until every run has finished; ``wrote`` hears of it.

    ``awaits`` hears which of the places hold no run yet; the others are followed meanwhile.
    """
    before: State | None = None
    awaited: list[Path] = []
    while True:
        missing = [place for place in map(Path, paths) if not _has_run(place)]
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


def _has_run(place: Path) -> bool:
    return place.is_file() or bool(find_runs(place)) or bool(files_named(recorder.DESCRIPTION, place))


def _read_while_written(paths: Sequence[str | Path], wait: Callable[[], None]) -> list[Run]:
    """A run that is just being written may be caught between two of its files: what fails once is tried again."""
    try:
        return read_runs(paths)
    except (FileNotFoundError, ValueError):
        wait()
        return read_runs(paths)


def _state(runs: Sequence[Run]) -> State:
    """What changes when an epoch ends or a run does; sizes too: two writes may fall on one tick of the disk's clock."""
    found: State = {}
    for run in runs:
        files = (run.path / EPOCHS, run.path / folder.METRICS)
        states = [file.stat() for file in files if file.exists()]
        found[run.path] = [(state.st_mtime_ns, state.st_size) for state in states]
    return found
