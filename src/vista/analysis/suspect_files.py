"""Files of suspected labels: the list as CSV and JSON, and the corrected label file to train on."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vista.analysis import suspects
from vista.analysis.joint import Labels
from vista.analysis.suspects import LabelIssues
from vista.files import atomic, reader, spreadsheet
from vista.noise.label_files import are_ambiguous, are_words
from vista.runs import folder as run_folder
from vista.runs.folder import RunFolder
from vista.runs.predictions import FILE as PREDICTIONS

FORMAT = 1
TABLE, LIST = "suspected_labels.csv", "suspected_labels.json"
MOST_PAIRS = 100  # most frequent confusions in the list
FIELDS = ("id", "given", "given_name", "suggested", "suggested_name", "score")


def corrected(
    given: Labels, found: LabelIssues, count: int, *, drop: bool = False, kept: Labels | None = None
) -> Labels:
    """Correct the most suspect labels.

    Args:
        given: Given labels ``[N]`` of the original data.
        found: Ranked suspects.
        count: Number of suspects to change.
        drop: Mark them as unlabelled (-1) instead. Otherwise a label changes only where its suggestion is more likely.
        kept: Ids of samples whose label stays.

    Returns:
        A copy of the labels with the changes.
    """
    labels = given.copy()
    changes = np.ones(count, dtype=bool) if drop else found.is_doubted[:count]
    if kept is not None:
        changes = changes & ~np.isin(found.ids[:count], kept)
    labels[found.ids[:count][changes]] = -1 if drop else found.suggested[:count][changes]
    return labels


def write_label_file(
    path: Path, labels: Labels, files: Sequence[str] | None = None, classes: Sequence[str] = ()
) -> None:
    """Write the CSV ``id,label`` of every sample that ``--labels`` and ``--noise file:PATH`` read.

    Labels are class names, empty for none. Where names could be taken for numbers they are class numbers, -1 for none,
    and the column is called ``number`` if some of these are names of other classes. For data in files a third column
    names the file of each sample, so that changed data are detected.
    """
    label, values = "number" if are_ambiguous(classes) else "label", labels.tolist()
    if are_words(classes):
        values = ["" if value < 0 else classes[value] for value in values]
    columns = {"id": range(len(labels)), label: values} | ({} if files is None else {"file": files})
    atomic.write(path, spreadsheet.table(list(columns), zip(*columns.values(), strict=True)))


def rows(found: LabelIssues, count: int) -> list[dict[str, Any]]:
    """The first ``count`` suspects as JSON values."""
    table = []
    for k in range(min(count, len(found))):
        given, suggested = int(found.given[k]), int(found.suggested[k])
        row = {
            "id": int(found.ids[k]),
            "given": given,
            "given_name": found.classes[given],
            "suggested": suggested,
            "suggested_name": found.classes[suggested],
            "score": round(float(found.score[k]), 6),
        }
        if found.true is not None:
            row["true"] = int(found.true[k])
        if found.files is not None:
            row["file"] = found.files[int(found.ids[k])]
        if found.evidence is not None:
            row["evidence"] = str(found.evidence[k])
        table.append(row)
    return table


def write_csv(path: Path, found: LabelIssues, count: int) -> None:
    """Write the list as CSV, one line per suspect."""
    columns = (("true", found.true), ("file", found.files), ("evidence", found.evidence))
    known = [name for name, values in columns if values is not None]
    fields = (*FIELDS, *known)
    lines = ([row[name] for name in fields] for row in rows(found, count))
    atomic.write(path, spreadsheet.table(fields, lines))


def report(found: LabelIssues, count: int) -> dict[str, Any]:
    """The list as one JSON object."""
    return {
        "format": FORMAT,
        "samples": len(found),
        "estimated": found.estimated,
        "interval": list(found.interval),
        "noise_rate": round(found.noise_rate, 6),
        "unjudged": dict(found.unjudged),
        "caution": found.caution,
        "pairs": [
            {"given": given, "true": true, "count": round(count, 2)}
            for given, true, count in found.pairs()[:MOST_PAIRS]
        ],
        "quality": found.quality(),
        "suspects": rows(found, count),
    }


def run_report(folder: RunFolder, most: int) -> dict[str, Any] | None:
    """The first ``most`` suspects of a run, from its predictions or from the list that `vista labels` wrote."""
    if any((folder.path / name).exists() for name in (run_folder.TEACHER, PREDICTIONS)):
        found = suspects.of_run(folder)
        return report(found, min(found.estimated, most))
    if not (folder.path / LIST).exists():
        return None
    kept = read_json(folder.path / LIST, len(folder.data().classes))
    return {**kept, "suspects": kept["suspects"][: min(kept["estimated"], most)]}


def read_json(path: Path, num_classes: int) -> dict[str, Any]:
    """Read and validate a list that :func:`write_json` wrote."""
    kept = reader.read_object(path, "`vista labels RUN` writes it again")
    if kept.get("format") != FORMAT:
        raise ValueError(f"{path} has format {kept.get('format')!r}, but this version reads format {FORMAT}")
    if not isinstance(kept.get("suspects"), list) or not all(_is_whole(kept.get(n)) for n in ("samples", "estimated")):
        raise _damaged(path, "it lacks suspects, samples or estimated")
    for k, row in enumerate(kept["suspects"]):
        if not isinstance(row, dict) or any(name not in row for name in FIELDS):
            raise _damaged(path, f"suspect {k} lacks one of {', '.join(FIELDS)}")
        if not _is_whole(row["id"]) or row["id"] < 0:
            raise _damaged(path, f"id of suspect {k} must be an index, got {row['id']!r}")
        if not _is_number(row["score"]) or not 0 <= row["score"] <= 1:
            raise _damaged(path, f"score of suspect {k} must be from 0 to 1, got {row['score']!r}")
        for name in ("given", "suggested", "true"):
            if not _is_whole(row.get(name, 0)) or not 0 <= row.get(name, 0) < num_classes:
                raise ValueError(
                    f"{path}: {name} of sample {row['id']} is {row[name]}, but num_classes is {num_classes}"
                )
    _check_quality(path, kept)
    return kept


def _check_quality(path: Path, kept: dict[str, Any]) -> None:
    """``quality`` is null without true labels; ``auroc`` is null where no label or every label is wrong."""
    quality = kept.get("quality", ...)
    if quality is None:
        return
    if not isinstance(quality, dict):
        raise _damaged(path, "it lacks quality")
    for name in ("wrong",) if quality.get("auroc", ...) is None else ("wrong", "auroc", "average_precision"):
        if not _is_number(quality.get(name)):
            raise _damaged(path, f"quality.{name} must be a number, got {quality.get(name)!r}")


def _damaged(path: Path, what: str) -> ValueError:
    return ValueError(f"{path} is damaged: {what}; `vista labels RUN` writes it again")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_whole(value) or (isinstance(value, float) and math.isfinite(value))


def write_json(path: Path, found: LabelIssues, count: int) -> None:
    """Write the list as JSON."""
    atomic.write(path, (json.dumps(report(found, count), allow_nan=False) + "\n").encode())
