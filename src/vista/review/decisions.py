"""Decisions about labels, one JSON object per line: the last line of a sample counts, and an undo is a line too."""

from __future__ import annotations

import getpass
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vista.core.validation import suggest
from vista.files import reader
from vista.files.append import AppendOnly
from vista.files.reader import DamagedFile

FORMAT = 1
FILE = "decisions.jsonl"
ACCEPT, KEEP, OTHER, UNLABEL, SKIP, UNDO = KINDS = ("accept", "keep", "other", "unlabel", "skip", "undo")
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Subject:
    """What decisions are about: a run, its data and its classes."""

    run: str  # identity of the run
    data: str | None  # hash of its inputs
    classes: tuple[str, ...]
    given: Labels
    files: Sequence[str] | None = None


@dataclass(frozen=True)
class Decision:
    """A decision about the label of one sample.

    Attributes:
        id: The sample.
        decision: ``accept`` (the suggested class), ``keep``, ``other`` (another class), ``unlabel``, ``skip`` or
            ``undo``.
        label: The class that the sample gets; None for ``unlabel``, ``skip`` and ``undo``.
        given: The label that it had.
        file, content: File name and hash of the sample, where known.
        time, author: When, in UTC, and by whom.
    """

    id: int
    decision: str
    label: int | None
    given: int
    file: str | None = None
    content: str | None = None
    time: str = ""
    author: str = ""

    def line(self, subject: Subject) -> bytes:
        """The line of the file."""
        values = {
            "format": FORMAT,
            "run": subject.run,
            "data": subject.data,
            "id": self.id,
            "file": self.file,
            "content": self.content,
            "given": self.given,
            "decision": self.decision,
            "label": self.label,
            "time": self.time,
            "author": self.author,
        }
        return (json.dumps(values, ensure_ascii=True) + "\n").encode()


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def user() -> str:
    """The name of the user, for the decisions."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run without a user entry
        return "unknown"


class DecisionLog:
    """The decisions of a run, open for appending.

    Args:
        path: The file; created with the first decision.
        subject: The run. Decisions about other data are rejected.
    """

    def __init__(self, path: Path, subject: Subject) -> None:
        self.path, self.subject = path, subject
        try:
            self._file = AppendOnly(path)
        except BlockingIOError:
            raise ValueError(f"{path} is open in another `vista review`: use that page, or stop it first") from None
        self.current: dict[int, Decision] = {}
        self.revisions: Counter[int] = Counter()
        try:
            for each in read_lines(path, subject):
                self._take(each)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._file.close()

    def append(self, decisions: Iterable[Decision]) -> None:
        """Write decisions to the disk; only then do they count."""
        taken = list(decisions)
        self._file.append(b"".join(each.line(self.subject) for each in taken))
        for each in taken:
            self._take(each)

    def _take(self, decision: Decision) -> None:
        self.revisions[decision.id] += 1
        if decision.decision == UNDO:
            self.current.pop(decision.id, None)
        else:
            self.current[decision.id] = decision


def read(path: Path, subject: Subject) -> dict[int, Decision]:
    """Read the decisions of a file that count, by sample.

    Args:
        path: A file of :class:`DecisionLog`, which another process may be writing.
        subject: The run that the decisions must fit: same data, and the same given label of every sample.

    Returns:
        The last decision of each sample, without those that were undone.
    """
    found: dict[int, Decision] = {}
    for each in read_lines(path, subject):
        if each.decision == UNDO:
            found.pop(each.id, None)
        else:
            found[each.id] = each
    return found


def read_lines(path: Path, subject: Subject) -> list[Decision]:
    """Every complete line of a file; a last line without its end is left out."""
    content = reader.read_bytes(path)
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    remedy = "correct or delete this line"
    found = []
    for number, line in enumerate(lines, 1):
        where = f"{path} line {number}"
        found.append(_parse(reader.parse_object(line, where, remedy), where, subject))
    return found


def _parse(values: dict[str, Any], where: str, subject: Subject) -> Decision:
    if values.get("format") != FORMAT:
        raise ValueError(f"{where}: format is {values.get('format')!r}, but this version reads {FORMAT}")
    kind, sample, given = values.get("decision"), values.get("id"), values.get("given")
    remedy = "correct or delete this line"
    if kind not in KINDS:
        raise DamagedFile(where, f"decision must be one of {', '.join(KINDS)}, got {kind!r}", remedy)
    if subject.data is not None and values.get("data") not in (None, subject.data):
        raise ValueError(f"{where} is about other data than the run's: use the decisions that were made for this run")
    if type(sample) is not int or not 0 <= sample < len(subject.given):
        raise ValueError(f"{where}: id must be 0 to {len(subject.given) - 1}, got {sample!r}")
    if type(given) is not int or given != subject.given[sample]:
        raise ValueError(
            f"{where} was made for another run: sample {sample} had the label {given!r} there, and has "
            f"{int(subject.given[sample])} here"
        )
    label = None
    if kind in (ACCEPT, KEEP, OTHER):
        label = class_number(values.get("label"), subject.classes, where)
    text = {name: values.get(name) for name in ("file", "content", "time", "author")}
    kept = {name: value for name, value in text.items() if isinstance(value, str)}
    return Decision(sample, kind, label, int(given), **kept)


def class_number(label: Any, classes: Sequence[str], where: str) -> int:
    """The number of a class that is given by number or by name."""
    if type(label) is int and 0 <= label < len(classes):
        return label
    if isinstance(label, str) and label in classes:
        return list(classes).index(label)
    known = suggest(str(label), classes) if len(classes) <= 2000 else ""
    raise ValueError(f"{where}: label {label!r} is no class{f'; {known}' if known else ''}")


def corrected(given: Labels, decisions: Mapping[int, Decision]) -> Labels:
    """The labels after the decisions: undecided and skipped samples keep theirs, unlabelled ones get -1.

    >>> taken = {0: Decision(0, "accept", 2, 1), 2: Decision(2, "unlabel", None, 1)}
    >>> corrected(np.array([1, 1, 1]), taken).tolist()
    [2, 1, -1]
    """
    labels = given.copy()
    for sample, each in decisions.items():
        if each.decision == UNLABEL:
            labels[sample] = -1
        elif each.label is not None:
            labels[sample] = each.label
    return labels


def decided_and_skipped(decisions: Mapping[int, Decision]) -> tuple[int, int]:
    """Number of samples that were decided, and of those that were skipped to decide later."""
    skipped = sum(each.decision == SKIP for each in decisions.values())
    return len(decisions) - skipped, skipped


def summary(decisions: Mapping[int, Decision]) -> dict[str, int]:
    """Number of decisions by kind."""
    counts = Counter(each.decision for each in decisions.values())
    return {kind: counts[kind] for kind in KINDS if counts[kind]}
