"""``vista report runs/compare-digits-symmetric-0.4 -o page.html --figures figures``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from vista.analysis.groups import grouped, read_runs
from vista.analysis.runs import Run
from vista.cli import terminal
from vista.cli.arguments import parse, peek
from vista.cli.output_paths import PAGE, file_to_write, folder_to_write
from vista.report import drawing
from vista.report.page import write_page
from vista.report.payload import counted
from vista.report.watch import watch

HELP = "draw runs: a page to look through, and the paper's figures"
ABOUT = """Write one self-contained HTML page of the runs, or their figures as files.

A run is its folder, the folder of a TrajectoryRecorder, a .npz of epochs x samples, or a folder with runs below it."""
Name = Literal[
    "forgetting", "marginal-coverage", "life-expectancy", "end-of-training", "contributing-set", "test-vs-validation"
]


@dataclass(frozen=True)
class Report:
    runs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN...")]
    """What to draw; runs that differ in their seeds alone are drawn as one, with a band."""
    out: Annotated[str | None, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = None
    """The page, an .html file; report.html if neither this nor --figures is given."""
    figures: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Also write every figure to this folder."""
    formats: tuple[drawing.Format, ...] = ("png", "svg", "pdf")
    """Formats of the figures."""
    only: tuple[Name, ...] = ()
    """Only these figures."""
    watch: bool = False
    """Keep the page fresh until all runs have finished."""
    every: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 5.0
    """How often to look, while watching."""


def run(argv: list[str]) -> int:
    flags = parse(Report, argv, "report", ABOUT)
    _refuse_what_does_nothing(flags, argv)
    if not 0 < flags.every < float("inf"):
        raise ValueError(f"every is {flags.every}, but it must be a number of seconds greater than 0")
    page = _page(flags) if flags.out or not flags.figures or flags.watch else None
    figures = None if flags.figures is None else folder_to_write("figures", flags.figures)
    if flags.watch and page is not None:
        return _watch(flags, page, figures)
    runs = read_runs(flags.runs)
    if page is not None:
        write_page(runs, page)
        terminal.say(f"wrote {page}")
    _write_figures(flags, runs, figures)
    return 0


def _page(flags: Report) -> Path:
    """Where the page goes."""
    drawn = ((Path(run), "what is drawn") for run in flags.runs)
    page = file_to_write("out", flags.out or "report.html", PAGE, drawn)
    if not page.parent.is_dir():
        raise FileNotFoundError(f"{page.parent} is no folder, so {page} cannot be written there")
    return page


def _refuse_what_does_nothing(flags: Report, argv: list[str]) -> None:
    """Options that only say how, without the one that says what."""
    for name in ("only", "formats"):
        if flags.figures is None and peek(argv, name, ""):
            raise ValueError(f"{name} chooses among the figures, but none are written: add --figures DIR")
    if not flags.watch and peek(argv, "every", ""):
        raise ValueError(f"every is {flags.every}, but the page is written once: add --watch to keep it fresh")


def _watch(flags: Report, page: Path, figures: Path | None) -> int:
    def wrote(runs: Sequence[Run], over: bool) -> None:
        amount = f"{counted(len(runs), 'run')}, {counted(sum(len(run) for run in runs), 'epoch')}"
        terminal.say(f"wrote {page}: {amount}{', all finished' if over else ''}")

    def awaits(missing: Sequence[Path]) -> None:
        places = ", ".join(map(str, missing))
        terminal.say(f"no run yet in {places}: waiting until one begins there (Ctrl-C stops)", sys.stderr)

    terminal.say(f"open {page}; it follows the runs until they have finished (Ctrl-C stops)", sys.stderr)
    try:
        watch(flags.runs, page, wrote, awaits=awaits, seconds=flags.every)
    except KeyboardInterrupt:
        return 130
    _write_figures(flags, read_runs(flags.runs), figures)
    return 0


def _write_figures(flags: Report, runs: Sequence[Run], place: Path | None) -> None:
    if place is None:
        return
    empty = next((run for run in runs if not len(run)), None)
    if empty is not None:
        raise ValueError(f"{empty.path} has not ended its first epoch, so there is nothing to draw yet")
    names: Sequence[str] = flags.only or list(drawing.DRAWINGS)
    for path in drawing.save_all(grouped(runs), place, names, flags.formats):
        terminal.say(f"wrote {path}")
