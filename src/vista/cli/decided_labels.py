"""``vista labels RUN --decisions FILE``: corrected labels, and files sorted by them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from rich.progress import track

from vista.analysis import suspect_files
from vista.cli import terminal
from vista.cli.output_paths import TABLE, file_to_write, trained_on
from vista.files import shell
from vista.review import decisions, retrain, samples, sorting
from vista.review.decisions import Decision, Labels
from vista.review.run_decisions import subject_of
from vista.review.sorting import Step
from vista.runs.folder import RunFolder
from vista.training.samples import load_source

SHOWN = 5


class Flags(Protocol):
    """The options of ``vista labels`` that say what decisions are turned into."""

    @property
    def decisions(self) -> str | None: ...
    @property
    def clean(self) -> str | None: ...
    @property
    def copy_to(self) -> str | None: ...
    @property
    def move(self) -> bool: ...
    @property
    def apply(self) -> bool: ...
    @property
    def json(self) -> bool: ...


def write(folder: RunFolder, flags: Flags) -> int:
    """Write what the options ask for."""
    assert flags.decisions is not None
    if flags.clean is None and flags.copy_to is None and not flags.move:
        raise ValueError("decisions needs --clean FILE, --copy-to DIR or --move: what the decisions are turned into")
    path = Path(flags.decisions).expanduser()
    if not path.is_file():
        raise FileNotFoundError(
            f"decisions {path} does not exist: `{shell.command('vista', 'review', folder.path)}` writes it"
        )
    taken = decisions.read(path, subject_of(folder))
    given, data = folder.labels().given, folder.data()
    labels = decisions.corrected(given, taken)
    clean = None
    if flags.clean is not None:
        clean = file_to_write("clean", flags.clean, TABLE, list(trained_on(folder.config())))
        suspect_files.write_label_file(clean, labels, data.files, data.classes)
    counts = _counts(given, labels, taken)
    if flags.json:
        print(json.dumps({"run": str(folder.path), "clean": None if clean is None else str(clean), **counts}))
    else:
        terminal.say(
            f"{counts['decisions']:,} decisions: {counts['changed']:,} labels change, {counts['unlabelled']:,} of them "
            f"to no label; {counts['unchanged']:,} labels stay as given"
        )
        if clean is not None:
            terminal.say(f"Wrote {clean}")
    if flags.copy_to is not None or flags.move:
        _sort(folder, flags, labels)
    elif not flags.json and clean is not None:
        terminal.say(f"Next: {retrain.train_command(folder, clean)}")
    return 0


def _counts(given: Labels, labels: Labels, taken: dict[int, Decision]) -> dict[str, int]:
    changed = int((given != labels).sum())
    return {
        "decisions": len(taken),
        "changed": changed,
        "unlabelled": int(((labels < 0) & (given >= 0)).sum()),
        "unchanged": len(given) - changed,
    }


def _sort(folder: RunFolder, flags: Flags, labels: Labels) -> None:
    """Copy or move the images, or print what would be done."""
    config, data = folder.config(), folder.data()
    place = samples.folder_of(config.data, config.root)
    assert data.files is not None
    samples.check_same_samples(folder, load_source(config, config.root))
    given = folder.labels().given
    if flags.copy_to is not None:
        steps = sorting.plan_copy(place, Path(flags.copy_to).expanduser(), data.files, labels, data.classes)
    else:
        steps = sorting.plan_move(place, data.files, given, labels, data.classes)
    verb = "copy" if flags.copy_to is not None else "move"
    kept = [step for step in steps if step.target is not None]
    if not flags.apply:
        for step in kept[:SHOWN]:
            terminal.say(f"  {step.source} -> {step.target}")
        more = f", {len(kept) - SHOWN:,} more not shown" if len(kept) > SHOWN else ""
        terminal.say(f"Would {verb} {len(kept):,} files{more}; nothing was changed. Add --apply to do it.")
        return
    if verb == "copy":
        done = _followed(sorting.copy(steps), len(steps), "copying")
        terminal.say(f"Copied {sum(step.target is not None for step in done):,} files to {flags.copy_to}")
        target = f"folder:{flags.copy_to}"
    else:
        undo = sorting.undo_path(folder.path)
        count = len(_followed(sorting.move(steps, undo), len(steps), "moving"))
        terminal.say(f"Moved {count:,} files; to move them back: sh {undo}")
        target = config.data
    terminal.say(f"Next: {retrain.train_command(folder, None, data=target)}")


def _followed(steps: Iterator[Step], total: int, verb: str) -> Sequence[Step]:
    out = terminal.console(sys.stderr)
    return list(track(steps, verb, total, console=out, transient=True, disable=not sys.stderr.isatty()))
