"""Runs that go: deleted when somebody says so, or out of the way while a new one begins in their place."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from vista import exchange
from vista.analysis import suspect_files
from vista.training import run_folder
from vista.training.drive import Job
from vista.training.events import Interrupted
from vista.training.record import COVERAGE
from vista.training.run_folder import RunFolder, find_runs

# What other commands make of a run, where they put it by themselves or are often asked to.
MADE_OF_RUNS = (suspect_files.TABLE, suspect_files.LIST, "report.html", "predictions.csv")


def refuse_to_remove(folder: RunFolder) -> None:
    """Refuse a link, a folder with another program's ``config.json``, and what holds more; a damaged run may go."""
    path = folder.path
    if path.is_symlink():
        raise ValueError(f"{path} is a link: name the run itself, {path.resolve()}, and remove the link with rm")
    if Path.cwd().is_relative_to(path.resolve()):
        raise ValueError(f"{path} is, or holds, the folder you are in: go elsewhere first")
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
    """Old runs in the places of new ones: gone once the new one has begun, back if it fails before that."""

    jobs: list[Job]
    _aside: dict[Path, list[tuple[Path, Path]]] = field(default_factory=dict)  # by job: where it was, where it is

    def __enter__(self) -> Replaced:
        """The first process moves them, the others wait for it. What a run needs first may be there before the run."""
        if exchange.rank() == 0:
            found = [_old_runs(job) for job in self.jobs]
            for folder in (folder for folders in found for folder in folders):
                refuse_to_remove(folder)  # all of them or none
            try:
                for job, folders in zip(self.jobs, found, strict=True):
                    for folder in folders:
                        self._aside.setdefault(job.out, []).append(_set_aside(folder))
            except BaseException:
                self._put_back()
                raise
        exchange.first_ranks_word(0)
        return self

    def began(self, job: Job) -> None:
        """Its new run stands: the old one goes."""
        for _, aside in self._aside.pop(job.out, []):
            shutil.rmtree(aside)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Of those that never began: one that failed leaves the old run; one whose turn did not come, none."""
        broken = error is not None and not isinstance(error, Interrupted)
        for job in self.jobs:
            if job.error is None and not broken:
                self.began(job)
        self._put_back()

    def _put_back(self) -> None:
        for place, aside in (pair for pairs in self._aside.values() for pair in pairs):
            shutil.rmtree(place, ignore_errors=True)  # of the new one there is nothing yet but its description
            aside.rename(place)
        self._aside.clear()


def _old_runs(job: Job) -> list[RunFolder]:
    configs = (job.out / run_folder.CONFIG, *run_folder.files_named(run_folder.CONFIG, job.out / run_folder.EARLIER))
    folders = [config.parent for config in configs if config.exists()]
    outermost = [folder for folder in folders if not any(other in folder.parents for other in folders)]
    return [RunFolder(folder) for folder in outermost]


def _set_aside(folder: RunFolder) -> tuple[Path, Path]:
    """Move a run beside its place; where it came from and where it is."""
    aside = folder.path.with_name(f".{folder.path.resolve().name}.replaced")
    with folder.locked():
        shutil.rmtree(aside, ignore_errors=True)  # left by a command that was killed
        folder.path.rename(aside)
    return folder.path, aside
