"""The decisions of a run on disk: how many suspects are decided, and what a retraining takes over."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vista.files import shell
from vista.review import decisions
from vista.review.decisions import KEEP, SKIP, Decision, Subject
from vista.runs.folder import RunFolder
from vista.training.resolve import identity


def subject_of(folder: RunFolder) -> Subject:
    """What decisions about a run refer to."""
    data = folder.data()
    return Subject(identity(folder.config()), data.inputs_hash, data.classes, folder.labels().given, data.files)


def count_decided(folder: RunFolder, samples: Iterable[int]) -> int | None:
    """How many of the samples are decided, skipped ones apart; ``None`` without a review."""
    path = folder.path / decisions.FILE
    if not path.exists():
        return None
    taken = decisions.read(path, subject_of(folder))
    return sum(each in taken and taken[each].decision != SKIP for each in samples)


def next_command(folder: RunFolder, is_decided: bool) -> str:
    """The command that reviews the suspects of a run, or that writes the decided labels."""
    if not is_decided:
        return shell.command("vista", "review", folder.path)
    path = folder.path / decisions.FILE
    return shell.command("vista", "labels", folder.path, "--decisions", path, "--clean", "labels.csv")


def taken_over(folder: RunFolder) -> list[Decision]:
    """Decisions of the run whose split this one has: samples that now have the decided label keep it.

    Samples are matched as ``--split-from`` does: by position in the same data, otherwise by content.
    """
    split_from = folder.config().split_from
    if split_from is None or not (Path(split_from) / decisions.FILE).exists():
        return []
    before = RunFolder.open(split_from)
    old, new = before.data(), folder.data()
    position: dict[str, int] | None = None
    if old.inputs_hash is None or old.inputs_hash != new.inputs_hash:
        position = {content: sample for sample, content in enumerate(folder.content_hashes() or ())}
    given, found = folder.labels().given, []
    for each in decisions.read(before.path / decisions.FILE, subject_of(before)).values():
        sample = each.id if position is None else position.get(each.content or "")
        if sample is None or each.label is None or given[sample] < 0:
            continue
        label = int(given[sample])
        if new.classes[label] == old.classes[each.label]:
            file = None if new.files is None else new.files[sample]
            found.append(Decision(sample, KEEP, label, label, file, each.content, each.time, each.author))
    return found
