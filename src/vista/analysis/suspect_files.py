"""Suspected labels on disk: CSV and JSON to look through, and the corrected label file to train on."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vista.analysis import suspects
from vista.analysis.suspects import Labels, Suspects
from vista.files import atomic, reader, spreadsheet
from vista.runs import folder as run_folder
from vista.runs.folder import RunFolder

FORMAT = 1
TABLE, LIST = "suspected_labels.csv", "suspected_labels.json"
FIELDS = ("id", "given", "given_name", "suggested", "suggested_name", "score")


def corrected(given: Labels, found: Suspects, count: int, *, drop: bool = False) -> Labels:
    """All given labels ``[N]`` of the original data, the first ``count`` suspects corrected, or -1 with ``drop``.

    Only a label that is believed less than another one is corrected.
    """
    labels, listed = given.copy(), slice(count)
    if drop:
        labels[found.ids[listed]] = -1
    else:
        doubted = found.is_doubted[listed]
        labels[found.ids[listed][doubted]] = found.suggested[listed][doubted]
    return labels


def write_label_file(path: Path, labels: Labels, files: Sequence[str] | None = None) -> None:
    """CSV ``id,label`` of every sample, as ``--noise file:PATH`` reads it; one not named would keep its shipped one.

    Where each sample lies in a file, a third column names it, by which changed data are found out.
    """
    columns = {"id": range(len(labels)), "label": labels.tolist()} | ({} if files is None else {"file": files})
    atomic.write(path, spreadsheet.table(list(columns), zip(*columns.values(), strict=True)))


def rows(found: Suspects, count: int) -> list[dict[str, Any]]:
    """The first ``count`` suspects as plain values."""
    table = []
    for place in range(min(count, len(found))):
        given, suggested = int(found.given[place]), int(found.suggested[place])
        row = {
            "id": int(found.ids[place]),
            "given": given,
            "given_name": found.classes[given],
            "suggested": suggested,
            "suggested_name": found.classes[suggested],
            "score": round(float(found.score[place]), 6),
        }
        if found.true is not None:
            row["true"] = int(found.true[place])
        if found.files is not None:
            row["file"] = found.files[int(found.ids[place])]
        table.append(row)
    return table


def write_csv(path: Path, found: Suspects, count: int) -> None:
    """One line per suspect."""
    known = [name for name, values in (("true", found.true), ("file", found.files)) if values is not None]
    fields = (*FIELDS, *known)
    lines = ([row[name] for name in fields] for row in rows(found, count))
    atomic.write(path, spreadsheet.table(fields, lines))


def report(found: Suspects, count: int) -> dict[str, Any]:
    """Everything as one JSON object."""
    return {
        "format": FORMAT,
        "samples": len(found),
        "estimated": found.estimated,
        "quality": found.quality(),
        "suspects": rows(found, count),
    }


def report_of(folder: RunFolder, most: int) -> dict[str, Any] | None:
    """The first ``most`` suspects of a run: by its teacher, or by the list that was made while it had one."""
    if (folder.path / run_folder.TEACHER).exists():
        found = suspects.of_run(folder)
        return report(found, min(found.estimated, most))
    if not (folder.path / LIST).exists():
        return None
    kept = read_json(folder.path / LIST, len(folder.data().classes))
    return {**kept, "suspects": kept["suspects"][: min(kept["estimated"], most)]}


def read_json(path: Path, num_classes: int) -> dict[str, Any]:
    """What :func:`write_json` wrote; another format or a class that there is not is refused by name."""
    kept = reader.read_object(path, AGAIN)
    if kept.get("format") != FORMAT:
        raise ValueError(f"{path} has format {kept.get('format')!r}, but this version reads format {FORMAT}")
    if not isinstance(kept.get("suspects"), list) or not all(_is_whole(kept.get(n)) for n in ("samples", "estimated")):
        raise _damaged(path, "it lacks the suspects, or how many samples there are")
    for place, row in enumerate(kept["suspects"]):
        if not isinstance(row, dict) or any(name not in row for name in FIELDS):
            raise _damaged(path, f"suspect {place} lacks one of {', '.join(FIELDS)}")
        if not _is_whole(row["id"]) or row["id"] < 0:
            raise _damaged(path, f"id of suspect {place} is {row['id']!r}, where a place in the data belongs")
        if not _is_number(row["score"]) or not 0 <= row["score"] <= 1:
            raise _damaged(path, f"score of suspect {place} is {row['score']!r}, where a number from 0 to 1 belongs")
        for name in ("given", "suggested", "true"):
            if not _is_whole(row.get(name, 0)) or not 0 <= row.get(name, 0) < num_classes:
                raise ValueError(
                    f"{path}: {name} of sample {row['id']} is {row[name]}, but num_classes is {num_classes}"
                )
    _check_quality(path, kept)
    return kept


def _check_quality(path: Path, kept: dict[str, Any]) -> None:
    """Numbers where the truth is known, but for a ranking with nothing or everything wrong, which has no AUROC."""
    quality = kept.get("quality", ...)
    if quality is None:
        return
    if not isinstance(quality, dict):
        raise _damaged(path, "it lacks the quality of the ranking, which is null where the truth is not known")
    for name in ("wrong",) if quality.get("auroc", ...) is None else ("wrong", "auroc", "average_precision"):
        if not _is_number(quality.get(name)):
            raise _damaged(path, f"{name} of its quality is {quality.get(name)!r}, where a number belongs")


AGAIN = "`vista labels RUN` writes it again"


def _damaged(path: Path, what: str) -> ValueError:
    return ValueError(f"{path} is damaged: {what}; {AGAIN}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_whole(value) or (isinstance(value, float) and math.isfinite(value))


def write_json(path: Path, found: Suspects, count: int) -> None:
    atomic.write(path, (json.dumps(report(found, count), allow_nan=False) + "\n").encode())
