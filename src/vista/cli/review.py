"""``vista review runs/folder-photos-none-vista-seed0``."""

from __future__ import annotations

import webbrowser
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vista.analysis import suspects
from vista.cli import terminal
from vista.cli.arguments import parse
from vista.review import decisions, retrain
from vista.review.decisions import DecisionLog
from vista.review.run_decisions import subject_of, taken_over
from vista.review.samples import SampleViewer
from vista.review.session import Session
from vista.runs.folder import RunFolder

ABOUT = """Open a page in the browser to go through the labels that look wrong, and decide.

Each decision is written to decisions.jsonl in the run folder as it is made; run the command again to continue. The page
is served to this machine only, at an address with a secret key. The data are not changed."""


@dataclass(frozen=True)
class Review:
    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run."""
    port: int = 0
    """Port of the page; 0 takes a free one."""
    open: bool = True
    """Open the page in the web browser; the address is printed in any case."""
    author: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """Name to record with each decision; default: the user's name."""
    root: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder that contains the data sets, if it has moved."""


def run(argv: list[str]) -> int:
    flags = parse(Review, argv, "review", ABOUT)
    try:
        from vista.review import server
    except ImportError as error:
        raise ImportError(
            f"vista review needs the extra 'review': pip install 'vista-distill[review]' ({error})"
        ) from None
    folder = open_finished(flags.run)
    opened = server.listen(flags.port)
    with opened:
        found = suspects.of_run(folder)
        viewer = SampleViewer(folder, flags.root)
        log = DecisionLog(folder.path / decisions.FILE, subject_of(folder))
        try:
            if not log.revisions and (earlier := taken_over(folder)):
                log.append(earlier)
                terminal.say(f"{len(earlier):,} samples were decided in the review of {folder.config().split_from}")
            session = Session(folder, found, log, viewer, flags.author or decisions.user())
            _print_start(session)
            with suppress(KeyboardInterrupt):
                server.serve(session, opened, lambda address: _ready(address, flags.open))
        finally:
            log.close()
    return _print_end(session)


def open_finished(path: str) -> RunFolder:
    """A finished run; the message about another one names its current epoch."""
    folder = RunFolder.open(path)
    if not folder.is_finished():
        epochs = len(folder.record().lines)
        raise ValueError(
            f"{folder.path} has not finished: it has completed epoch {epochs} of {folder.config().epochs}; "
            f"`{folder.resume_command()}` continues it"
        )
    return folder


def _print_start(session: Session) -> None:
    found, decided = session.found, len(session.log.current)
    low, high = found.interval
    terminal.say(
        f"About {found.estimated:,} of {len(found):,} labels look wrong (95 % interval {low:,} to {high:,}); "
        f"{int(found.is_doubted.sum()):,} samples are listed first"
    )
    if decided:
        terminal.say(f"{decided:,} decisions were made before and are kept")


def _ready(address: str, wanted: bool) -> None:
    terminal.say(f"Review page: {address}")
    terminal.say("Press Ctrl-C here, or Finish on the page, to end the review.")
    if wanted and not webbrowser.open(address):
        terminal.say("No web browser was found: open the address in one on this machine.")


def _print_end(session: Session) -> int:
    log: DecisionLog = session.log
    counts = decisions.summary(log.current)
    if not counts:
        terminal.say("No decision was made.")
        terminal.say_next("vista", "review", session.folder.path)
        return 0
    skipped = counts.pop(decisions.SKIP, 0)
    listed = [f"{kind} {count:,}" for kind, count in counts.items()]
    left = f"; skipped, label unchanged: {skipped:,}" if skipped else ""
    terminal.say(f"{sum(counts.values()):,} decisions in {log.path}: {', '.join(listed) or 'none'}{left}")
    first, *others = retrain.commands(session.folder, Path(log.path))
    terminal.say(f"Next: {first}")
    for command in others:
        terminal.say(f"      {command}")
    return 0
