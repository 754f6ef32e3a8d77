"""``vista labels runs/digits-symmetric-0.4-vista-seed0 --clean labels.csv``."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vista.analysis import suspect_files, suspects
from vista.analysis.suspects import Suspects
from vista.cli import terminal
from vista.cli.arguments import parse
from vista.cli.output_paths import TABLE, Kept, file_to_write, folder_to_write, trained_on, what_it_holds
from vista.runs.folder import RunFolder

ABOUT = """Rank the training samples of a finished run by how little its final teacher believes their given label.

Ids are positions in the data as shipped: in the training part of CIFAR, in the arrays of an .npz file, in
scikit-learn's digits, among the images of a folder sorted by class and file name. The list is written to
suspected_labels.csv and .json in the run folder."""
SHOWN = 20


@dataclass(frozen=True)
class Labels:
    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run whose method keeps a teacher."""
    top: Annotated[int | None, tyro.conf.arg(metavar="K", help_behavior_hint="")] = None
    """Number of samples to list; default: the estimated number of wrong labels."""
    min_score: Annotated[float | None, tyro.conf.arg(metavar="S", help_behavior_hint="")] = None
    """List the samples with at least this score, from 0 to 1; above 0.5 the teacher prefers another class."""
    out: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder for the lists; default: the run folder."""
    clean: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Write all labels, with the listed ones corrected, to a CSV file for --noise file:FILE."""
    drop: bool = False
    """With --clean: mark the listed samples as unlabelled (-1) instead of correcting them."""
    json: bool = False
    """Print one JSON object to stdout."""


def run(argv: list[str]) -> int:
    flags = parse(Labels, argv, "labels", ABOUT)
    if flags.drop and flags.clean is None:
        raise ValueError("drop requires --clean FILE, the file in which the listed samples become unlabelled")
    folder = RunFolder.open(flags.run)
    found = suspects.of_run(folder)
    count = _count(flags, found)
    place = folder_to_write("out", flags.out) if flags.out is not None else folder.path
    written = [place / suspect_files.TABLE, place / suspect_files.LIST]
    kept = list(trained_on(folder.config()))
    for path in written:
        if (held := what_it_holds(path, kept)) is not None:
            raise ValueError(f"out must be another folder, got {place}: its {path.name} holds {held}")
    clean = None if flags.clean is None else _label_file(flags.clean, written, kept)
    place.mkdir(parents=True, exist_ok=True)
    suspect_files.write_csv(written[0], found, count)
    suspect_files.write_json(written[1], found, count)
    if clean is not None:
        labels = suspect_files.corrected(folder.labels().given, found, count, drop=flags.drop)
        suspect_files.write_label_file(clean, labels, found.files)
        written.append(clean)
        believed = 0 if flags.drop else count - int(found.is_doubted[:count].sum())
        if believed:
            warnings.warn(
                f"{believed:,} of the {count:,} listed samples keep their label: the teacher prefers no other class",
                stacklevel=2,
            )
    if flags.json:
        print(json.dumps({"run": str(folder.path), **suspect_files.report(found, count)}, allow_nan=False))
        return 0
    _print(found, count, written)
    if clean is None:
        terminal.say_next("vista", "labels", folder.path, "--clean", "labels.csv")
    else:
        terminal.say_next("vista", "train", "--data", folder.config().data, "--noise", f"file:{clean}")
    return 0


def _label_file(given: str, lists: list[Path], kept: Kept) -> Path:
    """The file for the corrected labels, which must not be one of the lists."""
    path = file_to_write("clean", given, TABLE, kept)
    if path.resolve() in [each.resolve() for each in lists]:
        raise ValueError(f"clean must be another file, got {path}: the list of suspected labels is written there")
    return path


def _count(flags: Labels, found: Suspects) -> int:
    """The number of samples to list."""
    if flags.top is not None and flags.min_score is not None:
        raise ValueError("top and min_score cannot be combined: give one of them")
    if flags.top is not None:
        if not 1 <= flags.top <= len(found):
            raise ValueError(f"top must be between 1 and {len(found)}, the number of labelled samples, got {flags.top}")
        return flags.top
    if flags.min_score is not None:
        if not 0 <= flags.min_score <= 1:
            raise ValueError(f"min_score must be between 0 and 1, got {flags.min_score}")
        return int((found.score >= flags.min_score).sum())
    return found.estimated


def _title(found: Suspects, count: int) -> str:
    all_of_them, wrong = f"{len(found):,} training labels", f"{found.estimated:,}"
    if count == found.estimated:
        return f"{wrong} of {all_of_them} look wrong"
    return f"the {count:,} most suspect of {all_of_them}, of which about {wrong} look wrong"


def _nothing(found: Suspects) -> str:
    """Why no label is listed."""
    if not found.score.any():
        return "The teacher of this run equals the given labels: train for more epochs."
    return "No label has such a score." if found.estimated else "No label looks wrong."


def _print(found: Suspects, count: int, written: list[Path]) -> None:
    out = terminal.console()
    more = [name for name, known in (("true", found.true), ("file", found.files)) if known is not None]
    rows = []
    for row in suspect_files.rows(found, min(count, SHOWN)):
        cells = [str(row["id"]), row["given_name"], row["suggested_name"], f"{row['score']:.3f}"]
        if found.true is not None:
            cells.append(found.classes[row["true"]])
        cells += [row["file"]] if found.files is not None else []
        rows.append(cells)
    if count:
        terminal.print_rows(
            out, ("id", "given", "suggested", "score", *more), rows, ("id", "score"), _title(found, count)
        )
    else:
        out.print(_nothing(found))
    if count > SHOWN:
        out.print(f"... and {count - SHOWN:,} more in the files")
    quality = found.quality()
    if quality is not None and quality["auroc"] is not None:
        precision = ", ".join(f"{share:.3f} at {k}" for k, share in quality["precision_at"].items())
        out.print(
            f"{quality['wrong']:,} labels are truly wrong: AUROC {quality['auroc']:.4f}, "
            f"average precision {quality['average_precision']:.4f}, precision {precision}"
        )
    for path in written:
        out.print(f"Wrote {path}", soft_wrap=True)
