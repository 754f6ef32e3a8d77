"""Delete runs, or set them aside while a new run starts in the same folder.

An old run is renamed to ``.NAME.replaced`` before the new one starts, deleted once that has started, and renamed back
if it never does. A process that is killed in between leaves it aside; the next command restores it.
"""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from vista.analysis import suspect_files
from vista.core import collectives
from vista.files import shell
from vista.runs import folder as run_folder
from vista.runs.folder import RunFolder, find_runs
from vista.runs.record import COVERAGE
from vista.training.events import Interrupted
from vista.training.scheduler import STOP_SIGNALS, Job, handle_signals

# Files that other commands write into a run folder.
MADE_OF_RUNS = (suspect_files.TABLE, suspect_files.LIST, "report.html", "predictions.csv")


def check_removable(folder: RunFolder) -> None:
    """Reject a link, a folder that is not a run, and one that holds foreign files; a damaged run may be removed."""
    path = folder.path
    if path.is_symlink():
        raise ValueError(f"{path} is a link: name the run itself, {path.resolve()}, and remove the link with rm")
    if Path.cwd().is_relative_to(path.resolve()):
        raise ValueError(f"{path} is, or contains, the current folder: change to another folder first")
    folder.reject_links()
    below = next((run.path for run in find_runs(path) if run.path != path), None)
    if below is not None:
        raise ValueError(f"{path} contains another run, {below}: move or delete that first")
    if others := folder.foreign_entries(besides=MADE_OF_RUNS):
        raise ValueError(f"{path} contains {others[0]}, which is not part of the run: move or delete that first")
    try:
        folder.config()
    except FileNotFoundError:  # the rest of a run whose deletion was interrupted
        return
    except ValueError as error:
        if not (path / COVERAGE).exists():
            raise ValueError(f"{path} is not a run and was not removed: {error}; delete it by hand") from error


def delete_run(folder: RunFolder) -> None:
    """Delete a run that no process is training."""
    check_removable(folder)
    with folder.locked():
        folder.delete()


@dataclass
class Replacement:
    """Old runs in the folders of new ones: deleted once the new run has started, restored if it never does."""

    jobs: list[Job]
    _aside: dict[Path, list[tuple[Path, Path]]] = field(default_factory=dict)  # by job: original path, current path
    _held: ExitStack = field(default_factory=ExitStack)  # locks of the runs set aside, so that no other command acts

    def __enter__(self) -> Replacement:
        """Set the old runs aside; the first process does it, the others wait for it."""
        self._held.enter_context(_signals_raised(self.jobs[0].out))
        try:
            if collectives.rank() == 0:
                self._select_test()
            collectives.broadcast_int(0)
        except BaseException:
            self._restore()
            raise
        return self

    def _select_test(self) -> None:
        for job in self.jobs:
            RunFolder(job.out).reject_links()
        found = [_old_runs(job) for job in self.jobs]
        for folder in (folder for folders in found for folder in folders):
            check_removable(folder)  # all of them, before any is moved
        for job, folders in zip(self.jobs, found, strict=True):
            for folder in folders:
                self._held.enter_context(folder.locked())
                aside = run_folder.replaced_path(folder.path)
                if os.path.lexists(aside):
                    raise ValueError(f"{aside} is in the place where the old run would be set aside: move it away")
                self._aside.setdefault(job.out, []).append((folder.path, aside))
                folder.path.rename(aside)

    def delete_old(self, job: Job) -> None:
        """Delete the old runs of a job whose new run has started."""
        for _, aside in self._aside.pop(job.out, []):
            RunFolder(aside).delete()

    def __exit__(self, *_: object) -> None:
        """Restore the old runs of jobs that never started."""
        unexplained = {job.out for job in self.jobs if job.error is None}
        for path in self._restore():
            if any(path.is_relative_to(out) for out in unexplained):
                warnings.warn(f"{path} still holds the old run: it was not replaced", stacklevel=1)

    def _restore(self) -> list[Path]:
        with self._held:
            pairs = [pair for pairs in self._aside.values() for pair in pairs]
            self._aside.clear()
            return [path for path, aside in pairs if _restored(path, aside)]


@contextmanager
def _signals_raised(out: Path) -> Iterator[None]:
    """Raise on signals until the training handles them: otherwise they would end the process with runs set aside."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Interrupted(out, number)

    with handle_signals([number for number in STOP_SIGNALS if number != signal.SIGINT], stop):
        yield


def restore_replaced_runs(jobs: list[Job]) -> None:
    """Restore old runs that a killed command has set aside; the first process does it, the others wait for it."""
    if collectives.rank() == 0:
        for job in jobs:
            aside = run_folder.replaced_path(job.out)
            if aside.is_dir() and not job.out.is_symlink():
                _restore_one(job.out, aside)
            for aside in run_folder.find_replaced_runs(job.out / run_folder.EARLIER):
                _restore_one(original_path(aside), aside)
    collectives.broadcast_int(0)


def original_path(aside: Path) -> Path:
    """The path that a run had before it was set aside."""
    return aside.with_name(aside.name.removeprefix(".").removesuffix(run_folder.ASIDE))


def describe_set_aside(aside: Path) -> str:
    """What a killed ``--fresh`` has left in this folder, and what to do about it."""
    original = original_path(aside)
    if (original / run_folder.CONFIG).exists():
        return (
            f"the run that {original} has replaced is still in {aside}, because the command with --fresh was killed: "
            f"delete it with `{shell.command('vista', 'runs', 'delete', aside)}`"
        )
    first = f"move {original} away and " if original.exists() else ""
    return (
        f"{original} was set aside by a command with --fresh that was killed: {first}restore it with "
        f"`{shell.command('mv', aside, original)}`, or run that command again"
    )


def _restore_one(path: Path, aside: Path) -> None:
    """Fails while another command has set it aside, or trains in its folder; a folder that is no run is left alone."""
    if aside.is_symlink():
        return
    if (path / run_folder.CONFIG).exists():
        try:
            check_removable(RunFolder(aside))
        except (OSError, ValueError) as error:
            warnings.warn(f"{aside} is left alone: {error}", stacklevel=1)
            return
    elif not (aside / run_folder.CONFIG).is_file():
        return
    with RunFolder(aside).locked(), RunFolder(path).locked():
        if _restored(path, aside):
            warnings.warn(
                f"{path} was restored: the command that was replacing it was killed before the new run started",
                stacklevel=1,
            )


def _restored(path: Path, aside: Path) -> bool:
    """Delete the old run if a new one has started in its folder, or else restore it; whether it was restored."""
    if (path / run_folder.CONFIG).exists():
        with suppress(OSError):
            RunFolder(aside).delete()
        return False
    if path.is_dir() and (others := RunFolder(path).foreign_entries()):
        raise ValueError(f"{path} contains {others[0]}, but the run that was there before is in {aside}: move one away")
    with suppress(OSError):
        RunFolder(path).delete()  # at most the description of a new run that never started
    aside.rename(path)
    return True


def _old_runs(job: Job) -> list[RunFolder]:
    configs = (job.out / run_folder.CONFIG, *run_folder.files_named(run_folder.CONFIG, job.out / run_folder.EARLIER))
    folders = [config.parent for config in configs if config.exists()]
    outermost = [folder for folder in folders if not any(other in folder.parents for other in folders)]
    return [RunFolder(folder) for folder in outermost]
