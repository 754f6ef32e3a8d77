"""What the runs show, in words: the headline of the page, the sentences below it and the four tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vista import noise
from vista.analysis.groups import Group
from vista.analysis.table import Cell, Row
from vista.report import series
from vista.report.figures import Accuracy

DECIDED = 2.0  # standard errors of a difference from which on it is not called level
LEVEL = 0.05  # points below which two single runs are level
NOT_BEGUN = "No run has finished its first epoch yet"


@dataclass(frozen=True)
class Tile:
    """A number with its label and a note."""

    value: str
    label: str
    note: str = ""


@dataclass(frozen=True)
class Result:
    """The method that the page is about, what it is compared with, and their accuracies at the end in percent."""

    subject: Row
    rival: Row | None
    end: dict[str, Cell]  # by name, at the last epoch
    best: dict[str, Cell]  # at the best validation epoch, where known
    what: str  # which accuracy
    is_over: bool

    @property
    def difference(self) -> tuple[float, float | None]:
        """Points between subject and rival, and their standard error."""
        assert self.rival is not None
        return _difference(self.end[self.subject.name], self.end[self.rival.name])


def result(groups: Sequence[Group], rows: Sequence[Row], accuracy: Sequence[Accuracy]) -> Result:
    """Choose what to compare: VISTA with plain training; otherwise the method that ends highest with the next one.

    Args:
        groups: Groups of runs, in the order of the page.
        rows: Their rows of the comparison table.
        accuracy: Their curves.
    """
    of_name = {row.name: row for row in rows}
    end = {panel.name: _end(panel, of_name[panel.name]) for panel in accuracy}
    best = {row.name: cell for row in rows if (cell := row.cells["best"]) is not None}
    plain = series.baseline(groups)
    others = [group for group in groups if group is not plain]
    by_end = sorted(end, key=lambda name: -end[name].mean)
    if plain is None or not others:
        subject, rival = by_end[0], by_end[1] if len(by_end) > 1 else None
    else:
        methods = [series.method_of(group) for group in others]
        ours = next((k for k, method in enumerate(methods) if method == "vista"), None)
        ours = next((k for k, method in enumerate(methods) if method.startswith("vista")), 0) if ours is None else ours
        subject, rival = others[ours].name, plain.name
    shown = [of_name[name] for name in (subject, rival) if name is not None]
    return Result(
        subject=shown[0],
        rival=shown[1] if len(shown) > 1 else None,
        end=end,
        best=best,
        what=accuracy[0].what,
        is_over=all(row.planned is None or row.epochs >= row.planned for row in shown),
    )


def headline(found: Result, spec: str | None) -> str:
    """One sentence: by how much the subject ends above the rival, or that it does not.

    Args:
        found: From :func:`result`.
        spec: The noise of the runs, such as ``symmetric:0.4``, if known.
    """
    start, own = _under(spec), found.end[found.subject.name]
    verb = "ends" if found.is_over else f"is after epoch {found.subject.epochs}"
    if found.rival is None:
        return _sentence(f"{start}{found.subject.name} {verb} at {own.mean:.1f} % {found.what}")
    gap, error = found.difference
    if not _is_decided(gap, error):
        return _sentence(f"{start}{found.subject.name} {verb} level with {found.rival.name}")
    side = "above" if gap > 0 else "below"
    return _sentence(f"{start}{found.subject.name} {verb} {abs(gap):.1f} points {side} {found.rival.name}")


def detail(found: Result) -> str:
    """The numbers behind the headline, and what it leaves out."""
    compared = [row for row in (found.subject, found.rival) if row is not None]
    seeds = sorted({row.seeds for row in compared})
    of = "one seed" if seeds == [1] else f"mean ± standard error of {' or '.join(map(str, seeds))} seeds"
    when = "at the last epoch" if found.is_over else "at the latest epoch"
    numbers = ", ".join(f"{row.name} {_number(found.end[row.name])} %" for row in compared)
    sentences = [_sentence(f"{found.what} {when}, {of}: {numbers}.")]
    if found.rival is not None:
        gap, error = found.difference
        if not _is_decided(gap, error) and error is not None:
            sentences.append(f"The difference, {gap:+.1f} ± {error:.1f} points, is within two standard errors.")
        top = max(found.end, key=lambda name: found.end[name].mean)
        if _is_above(found.end[top], found.end[found.subject.name]) and top != found.rival.name:
            sentences.append(f"{top} ends highest, with {_number(found.end[top])} %.")
        sentences += _at_best(found, found.rival.name)
    return " ".join(sentences)


def tiles(found: Result, suspects: dict[str, Any] | None) -> list[Tile]:
    """Four tiles: accuracy at the end, gain, wrong labels, forgetting."""
    name, own = found.subject.name, found.end[found.subject.name]
    error = "one seed" if own.se is None else f"± {own.se:.1f}, {found.subject.seeds} seeds"
    when = "at the end" if found.is_over else f"after epoch {found.subject.epochs}"
    return [
        Tile(f"{own.mean:.1f} %", f"{found.what} of {name} {when}", error),
        _gain_tile(found),
        wrong_tile(suspects),
        _gap_tile(found),
    ]


def _gain_tile(found: Result) -> Tile:
    name = found.subject.name
    if found.rival is None:
        known = found.best.get(name)
        return Tile("–" if known is None else f"{known.mean:.1f} %", f"{found.what} at the best validation epoch")
    gap, _ = found.difference
    rival = found.rival.name
    note = ""
    if name in found.best and rival in found.best:
        note = f"{_difference(found.best[name], found.best[rival])[0]:+.1f} at the best validation epoch"
    return Tile(f"{gap:+.1f}", f"points {'above' if gap >= 0 else 'below'} {rival}", note)


def wrong_tile(suspects: dict[str, Any] | None) -> Tile:
    """How many labels look wrong, and whether that is uncertain where the truth is unknown."""
    if suspects is None:
        return Tile("–", "labels not judged", "no finished run has the predictions for it")
    estimated, samples = suspects["estimated"], suspects["samples"]
    notes = [f"{100 * estimated / max(samples, 1):.0f} %"]
    if suspects.get("interval"):
        low, high = suspects["interval"]
        notes.append(f"95 % interval {low:,} to {high:,}")
    if suspects.get("wrong") is not None:
        notes.append(f"truly {suspects['wrong']:,}")
    elif suspects.get("caution"):
        notes.append("uncertain: see Labels to check")
    return Tile(f"≈ {estimated:,}", f"of {samples:,} labels look wrong", "; ".join(notes))


def _gap_tile(found: Result) -> Tile:
    own = found.subject.cells["gap"]
    if own is None:
        return Tile("–", "forgotten: not recorded")
    theirs = None if found.rival is None else found.rival.cells["gap"]
    note = "" if theirs is None or found.rival is None else f"{found.rival.name}: {theirs.mean:.1f} %"
    return Tile(
        f"{own.mean:.1f} %", f"of validation samples forgotten by {found.subject.name}, mean of all epochs", note
    )


def _at_best(found: Result, rival: str) -> list[str]:
    own, theirs = (found.best.get(name) for name in (found.subject.name, rival))
    if own is None or theirs is None:
        return []
    top = max(found.best, key=lambda name: found.best[name].mean)
    highest = f"; {top} is highest there, with {_number(found.best[top])} %" if _is_above(found.best[top], own) else ""
    gap = _difference(own, theirs)[0]
    return [f"At the best validation epoch the difference is {gap:+.1f} points{highest}."]


def _end(panel: Accuracy, row: Row) -> Cell:
    """The final accuracy: of the metrics, which may belong to a fused prediction, else the end of the curve."""
    known = row.cells["last"] if panel.against == "test" else None
    error = None if panel.curve.se is None else 100 * float(panel.curve.se[-1])
    return known or Cell(100 * float(panel.curve.mean[-1]), error)


def _difference(one: Cell, other: Cell) -> tuple[float, float | None]:
    error = None if one.se is None or other.se is None else math.hypot(one.se, other.se)
    return one.mean - other.mean, error


def _is_above(one: Cell, other: Cell) -> bool:
    """Whether it is higher as shown, with two digits."""
    return round(one.mean, 2) > round(other.mean, 2)


def _is_decided(gap: float, error: float | None) -> bool:
    return abs(gap) >= LEVEL if error is None else abs(gap) > max(DECIDED * error, LEVEL)


def _under(spec: str | None) -> str:
    try:
        parsed = noise.parse(spec or "none")
    except ValueError:  # a recorder accepts any description
        return ""
    if parsed.rate is not None:
        return f"With {100 * float(parsed.rate):g} % wrong labels, " if parsed.rate else ""
    return {"human": "With human labels, ", "file": "With labels from a file, "}.get(parsed.kind, "")


def _number(cell: Cell) -> str:
    """Mean and standard error, kept on one line."""
    return f"{cell.mean:.2f}" + ("" if cell.se is None else f"\u00a0±\u00a0{cell.se:.2f}")


def _sentence(text: str) -> str:
    """Capitalise a sentence, unless it starts with a name that is written in capitals or by the user."""
    return text[:1].upper() + text[1:] if text.startswith(("test", "validation", "cross-entropy")) else text
