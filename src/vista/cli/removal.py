"""Runs that go: deleted when somebody says so, or out of the way while a new one begins in their place."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from vista.analysis import suspect_files
from vista.cli import terminal
from vista.core import collectives
from vista.runs import folder as run_folder
from vista.runs.folder import RunFolder, find_runs
from vista.runs.record import COVERAGE
from vista.training.events import Interrupted
from vista.training.scheduler import Job, handle_signals

# What other commands make of a run, where they put it by themselves or are often asked to.
MADE_OF_RUNS = (suspect_files.TABLE, suspect_files.LIST, "report.html", "predictions.csv")


def refuse_to_remove(folder: RunFolder) -> None:
    """Refuse a link, a folder with another program's ``config.json``, and what holds more; a damaged run may go."""
    path = folder.path
    if path.is_symlink():
        raise ValueError(f"{path} is a link: name the run itself, {path.resolve()}, and remove the link with rm")
    if Path.cwd().is_relative_to(path.resolve()):
        raise ValueError(f"{path} is, or holds, the folder you are in: go elsewhere first")
    folder.reject_links()
    below = next((run.path for run in find_runs(path) if run.path != path), None)
    if below is not None:
        raise ValueError(f"{path} holds another run, {below}: move that elsewhere, or delete it first")
    if others := folder.strangers(besides=MADE_OF_RUNS):
        raise ValueError(f"{path} holds {others[0]}, which is not of the run: move that elsewhere, or delete it first")
    try:
        folder.config()
    except ValueError as error:
        if not (path / COVERAGE).exists():
            raise ValueError(
                f"{path} is no run, and is left as it is: {error}; remove it by hand if nothing in it is needed"
            ) from error


def delete_run(folder: RunFolder) -> None:
    """Delete a run that nobody trains in."""
    refuse_to_remove(folder)
    with folder.locked():
        folder.delete()


@dataclass
class Replaced:
    """Old runs in the places of new ones: gone once the new one has begun, back if it never does."""

    jobs: list[Job]
    _aside: dict[Path, list[tuple[Path, Path]]] = field(default_factory=dict)  # by job: where it was, where it is
    _held: ExitStack = field(default_factory=ExitStack)  # the locks of what is aside: no other command puts it back

    def __enter__(self) -> Replaced:
        """The first process moves them, the others wait for it. What a run needs first may be there before the run."""
        self._held.enter_context(_signals_raised(self.jobs[0].out))
        try:
            if collectives.rank() == 0:
                self._set_aside()
            collectives.first_ranks_word(0)
        except BaseException:
            self._settle()
            raise
        return self

    def _set_aside(self) -> None:
        for job in self.jobs:
            RunFolder(job.out).reject_links()
        found = [_old_runs(job) for job in self.jobs]
        for folder in (folder for folders in found for folder in folders):
            refuse_to_remove(folder)  # all of them or none
        for job, folders in zip(self.jobs, found, strict=True):
            for folder in folders:
                self._held.enter_context(folder.locked())
                aside = run_folder.aside_of(folder.path)
                self._aside.setdefault(job.out, []).append((folder.path, aside))
                folder.path.rename(aside)

    def began(self, job: Job) -> None:
        """Its new run stands: the old one goes."""
        for _, aside in self._aside.pop(job.out, []):
            RunFolder(aside).delete()

    def __exit__(self, *_: object) -> None:
        """Those that never began, because they failed or their turn did not come, leave the old run."""
        untold = {job.out for job in self.jobs if job.error is None}
        for place in self._settle():
            if any(place.is_relative_to(out) for out in untold):
                terminal.say(f"vista: note: {place} is the old run again: it was not replaced", sys.stderr)

    def _settle(self) -> list[Path]:
        """Bring back what is aside still; which."""
        with self._held:
            pairs = [pair for pairs in self._aside.values() for pair in pairs]
            self._aside.clear()
            return [place for place, aside in pairs if _came_back(place, aside)]


@contextmanager
def _signals_raised(out: Path) -> Iterator[None]:
    """Before the training listens to them, signals would end the process with the old runs out of their places."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Interrupted(out, number)

    with handle_signals((signal.SIGTERM, signal.SIGHUP), stop):
        yield


def put_back_left_aside(jobs: list[Job]) -> None:
    """Settle what a command left aside that was killed; the first process does it, the others wait for it."""
    if collectives.rank() == 0:
        for job in jobs:
            own = run_folder.aside_of(job.out)
            if own.is_dir() and not own.is_symlink() and not job.out.is_symlink():
                _put_back(job.out, own)
            for aside in run_folder.set_aside_below(job.out / run_folder.EARLIER):
                _put_back(aside.with_name(aside.name.removeprefix(".").removesuffix(run_folder.ASIDE)), aside)
    collectives.first_ranks_word(0)


def _put_back(place: Path, aside: Path) -> None:
    """Refused while another command has it aside, or works in its place."""
    with RunFolder(aside).locked(), RunFolder(place).locked():
        if _came_back(place, aside):
            said = f"{place} is back: the command that was to replace it was killed before the new run began"
            terminal.say(f"vista: note: {said}", sys.stderr)


def _came_back(place: Path, aside: Path) -> bool:
    """An old run goes where a new one stands in its place, and comes back where none does; whether it did."""
    if (place / run_folder.CONFIG).exists():
        with suppress(OSError):
            RunFolder(aside).delete()
        return False
    if place.is_dir() and (others := RunFolder(place).strangers()):
        raise ValueError(
            f"{place} holds {others[0]}, but a run that was there before is in {aside}: move one of them elsewhere"
        )
    with suppress(OSError):
        RunFolder(place).delete()  # of a new one there is nothing yet but its description
    aside.rename(place)
    return True


def _old_runs(job: Job) -> list[RunFolder]:
    configs = (job.out / run_folder.CONFIG, *run_folder.files_named(run_folder.CONFIG, job.out / run_folder.EARLIER))
    folders = [config.parent for config in configs if config.exists()]
    outermost = [folder for folder in folders if not any(other in folder.parents for other in folders)]
    return [RunFolder(folder) for folder in outermost]
