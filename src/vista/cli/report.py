"""``vista report runs/compare-digits-symmetric-0.4 --open``."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from vista.analysis import suspect_files
from vista.analysis.groups import group_runs, read_runs
from vista.analysis.runs import Run
from vista.cli import terminal
from vista.cli.arguments import parse, peek
from vista.cli.output_paths import PAGE, file_to_write, folder_to_write
from vista.report import drawing
from vista.report.page import write_page
from vista.report.payload import MOST_SUSPECTS, after_review, counted, judging_runs
from vista.report.watch import watch
from vista.review import decisions, run_decisions
from vista.runs.folder import RunFolder

ABOUT = """Write one self-contained HTML page of the runs, or their figures as files.

A run is a run folder, the folder of a TrajectoryRecorder, an .npz file of epochs x samples, or a folder with runs
below it."""
Name = Literal["accuracy", "forgetting", "timeline", "marginal-coverage", "contributing-set", "test-vs-validation"]


@dataclass(frozen=True)
class Report:
    runs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN...", help_behavior_hint="")]
    """Runs to draw; runs that differ only in their seeds are drawn as one, with whiskers."""
    out: Annotated[str | None, tyro.conf.arg(aliases=["-o"], metavar="FILE", help_behavior_hint="")] = None
    """The page, an .html file; default: report.html in the folder of the runs. With --figures no page by default."""
    figures: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Write the figures to this folder."""
    formats: tuple[drawing.Format, ...] = ("png", "svg", "pdf")
    """File formats of the figures."""
    only: tuple[Name, ...] = ()
    """Only these figures; default: all that the runs have data for."""
    open: bool = False
    """Open the page in the web browser."""
    watch: bool = False
    """Update the page in place until all runs have finished."""
    every: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 5.0
    """Interval between updates with --watch."""


def run(argv: list[str]) -> int:
    flags = parse(Report, argv, "report", ABOUT)
    _check_options(flags, argv)
    page = _page(flags) if flags.out is not None or not flags.figures or flags.watch or flags.open else None
    figures = None if flags.figures is None else folder_to_write("figures", flags.figures)
    if flags.watch and page is not None:
        return _watch(flags, page, figures)
    runs = read_runs(flags.runs)
    if page is not None:
        write_page(runs, page)
        terminal.say(f"Wrote {page}")
        if flags.open:
            _open(page)
        judging = [run for run in judging_runs(group_runs(runs)) if run.metrics is not None]
        unfinished = [RunFolder(run.path) for run in runs if run.is_folder and run.metrics is None]
        if judging:
            terminal.say(f"Next: {_review_command(RunFolder(judging[0].path))}")
        elif unfinished:
            terminal.say(f"Next: {unfinished[0].resume_command()}")
        elif not flags.open:
            terminal.say_next("vista", "report", *map(Path, flags.runs), "--open")
    _write_figures(flags, runs, figures)
    return 0


def _review_command(run: RunFolder) -> str:
    """The command that reviews the suspects or, if all are decided, uses the decisions."""
    found = suspect_files.run_report(run, MOST_SUSPECTS) if (run.path / decisions.FILE).exists() else None
    return run_decisions.next_command(run, is_decided=False) if found is None else after_review(run, found)[1]


def _page(flags: Report) -> Path:
    """The full path of the page: by default in the run or the folder of runs, here if several were named."""
    folder = Path(flags.runs[0]) if len(flags.runs) == 1 else Path()
    default = (folder.parent if folder.is_file() else folder) / "report.html"
    drawn = ((Path(run), "what is drawn") for run in flags.runs)
    page = file_to_write("out", str(default) if flags.out is None else flags.out, PAGE, drawn).absolute()
    if flags.out and not page.parent.is_dir():
        raise FileNotFoundError(f"out must be in an existing folder, got {flags.out}: create {page.parent} first")
    return page


def _open(page: Path) -> None:
    if not webbrowser.open(page.as_uri()):
        terminal.say(f"no web browser found: open {page.as_uri()}", sys.stderr)


def _check_options(flags: Report, argv: list[str]) -> None:
    """Reject invalid values, and options without effect."""
    for name in ("only", "formats"):
        if flags.figures is None and peek(argv, name, ""):
            raise ValueError(f"{name} selects figures, but none are written: add --figures DIR")
    if not flags.watch and peek(argv, "every", ""):
        raise ValueError(f"every is {flags.every}, but the page is written only once: add --watch")
    if not 0 < flags.every < float("inf"):
        raise ValueError(f"every must be a number of seconds greater than 0, got {flags.every}")


def _watch(flags: Report, page: Path, figures: Path | None) -> int:
    shown = not flags.open

    def wrote(runs: Sequence[Run], over: bool) -> None:
        nonlocal shown
        amount = f"{counted(len(runs), 'run')}, {counted(sum(len(run) for run in runs), 'epoch')}"
        terminal.say(f"Wrote {page}: {amount}{', all finished' if over else ''}")
        if not shown:
            shown = True
            _open(page)

    def awaits(missing: Sequence[Path]) -> None:
        folders = ", ".join(map(str, missing))
        terminal.say(f"no run yet in {folders}: waiting for one to start (Ctrl-C stops)", sys.stderr)

    terminal.say(f"{page} is updated until all runs have finished (Ctrl-C stops)", sys.stderr)
    try:
        watch(flags.runs, page, wrote, awaits=awaits, seconds=flags.every)
    except KeyboardInterrupt:
        return 130
    _write_figures(flags, read_runs(flags.runs), figures)
    return 0


def _write_figures(flags: Report, runs: Sequence[Run], folder: Path | None) -> None:
    if folder is None:
        return
    empty = next((run for run in runs if not len(run)), None)
    if empty is not None:
        raise ValueError(f"{empty.path} has not finished its first epoch: nothing to draw yet")
    groups = group_runs(runs)
    names: Sequence[str] = flags.only or drawing.drawable(groups)
    for path in drawing.save_all(groups, folder, names, flags.formats):
        terminal.say(f"Wrote {path}")
